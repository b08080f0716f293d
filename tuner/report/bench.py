"""What a bench measured, as the JSON that other programs rely on, and as text for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from crashlab.kill import MeasurePlan
from knobs.contract import Contract
from knobs.errors import Undecided
from knobs.finding import Finding
from tuner.report.findings import finding_lines
from tuner.search.interleaved import Measured
from tuner.search.interval import METHOD, RatioInterval, ratio_interval

UNJUDGED = "measured only: nothing was crashed, so this says nothing of what survives; duratune crash does"
_WHOLE = "READ-MODIFY-WRITE"
"""Counted besides as the READ and the UPDATE that it is made of (YCSB, CoreWorkload.java)."""


@dataclass(frozen=True)
class BenchedConfig:
    """One configuration and its runs, one a round."""

    name: str
    settings: Mapping[str, str]
    effective: Mapping[str, str]
    findings: Sequence[Finding]
    runs: Sequence[Measured]

    @property
    def throughputs(self) -> list[float]:
        return [run.throughput_per_s for run in self.runs]

    @property
    def throughput(self) -> float:
        """The median of the rounds, in operations per second."""
        return median(self.throughputs)

    @property
    def errors(self) -> int:
        """Calls that the engine answered with an error, in all rounds."""
        return sum(_errors(run) for run in self.runs)

    @property
    def operations(self) -> list[str]:
        return list(dict.fromkeys(name for run in self.runs for name in run.figures["per_operation"]))

    def latency_us(self, figure: str) -> dict[str, float]:
        """For each operation that has the figure (``p50_us`` ...) the median of the rounds."""
        found = {}
        for name in self.operations:
            values = [value for run in self.runs if (value := _latency_us(run, name, figure)) is not None]
            if values:
                found[name] = median(values)
        return found


@dataclass(frozen=True)
class Bench:
    """One bench: the configuration, where there are two the other behind it, and how they were measured."""

    contract: Contract
    engine: str
    seed: int
    plan: MeasurePlan
    configs: Sequence[BenchedConfig]

    @property
    def ratios(self) -> list[float]:
        """The first configuration's throughput over the second's, round by round."""
        first, second = self.configs
        return [a / b for a, b in zip(first.throughputs, second.throughputs, strict=True)]

    def interval(self) -> RatioInterval | None:
        """The ratio with its interval; None where there is one configuration."""
        return ratio_interval(self.ratios, self.seed) if len(self.configs) == 2 else None


def refuse_idle(bench: Bench) -> None:
    """Raises Undecided where a run did nothing: it has no throughput to compare."""
    for config in bench.configs:
        for number, run in enumerate(config.runs, start=1):
            if run.throughput_per_s <= 0:
                raise Undecided(
                    f"no operation ended in the measured phase of round {number}",
                    where=config.name,
                    hint=run.figures["last_error"] or "measure longer: --time 10s",
                )


def as_json(bench: Bench, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The `bench` document of the JSON contract; ``ratio`` is null where there is one configuration."""
    interval = bench.interval()
    return {
        "schema": 1,
        "provenance": dict(provenance),
        "engine": bench.engine,
        "contract": str(bench.contract),
        "seed": bench.seed,
        "crashed": False,
        "rounds": len(bench.configs[0].runs),
        "warmup_s": bench.plan.warmup_s,
        "measure_s": bench.plan.measure_s,
        "target_per_s": bench.plan.target_per_s,
        "runs": [_config_json(config) for config in bench.configs],
        "ratio": None if interval is None else _ratio_json(interval),
        "findings": [
            {"config": config.name, **finding.as_dict()}
            for config in bench.configs
            for finding in config.findings
        ],
    }


def as_text(bench: Bench) -> str:
    """The bench for a person: each configuration's figures, and the ratio with its interval."""
    lines = [line for config in bench.configs for line in _config_lines(config)]
    for config in bench.configs:
        lines += finding_lines(config.findings, f"{config.name}: ")
    interval = bench.interval()
    if interval is not None:
        lines += _ratio_lines(bench, interval)
    lines.append(f"verdict        none: {UNJUDGED}")
    return "\n".join(lines)


def _config_lines(config: BenchedConfig) -> list[str]:
    lines = [
        f"throughput     {config.name}: {_spread(config)} operations/s, {config.errors} errors",
    ]
    for name in config.operations:
        lines.append(f"  {name:<12} {_latency_words(config, name)}")
    if config.errors:
        error = next((run.figures["last_error"] for run in config.runs if run.figures["last_error"]), "")
        lines.append(f"  last error   {error}")
    return lines


def _latency_words(config: BenchedConfig, name: str) -> str:
    words = f"p50 {config.latency_us('p50_us')[name]:.1f} us, p99 {config.latency_us('p99_us')[name]:.1f} us"
    if name in config.latency_us("intended_p50_us"):
        words += (
            f"; from the intended start p50 {config.latency_us('intended_p50_us')[name]:.1f} us, "
            f"p99 {config.latency_us('intended_p99_us')[name]:.1f} us"
        )
    return words


def _spread(config: BenchedConfig) -> str:
    rates = config.throughputs
    if len(rates) == 1:
        return f"{rates[0]:.0f}"
    return f"median {config.throughput:.0f} ({min(rates):.0f} to {max(rates):.0f}, {len(rates)} rounds)"


def _ratio_lines(bench: Bench, interval: RatioInterval) -> list[str]:
    first, second = bench.configs
    if interval.low > 1.0:
        words = f"{first.name} is faster"
    elif interval.high < 1.0:
        words = f"{first.name} is slower"
    else:
        words = "no difference as far as can be told"
    lines = [f"ratio          {interval} of {first.name} to {second.name}: {words} ({METHOD})"]
    lines.append(f"               median of the rounds {median(interval.rounds):.2f}")
    if first.settings == second.settings and first.effective == second.effective:
        lines.append("               the two are the same configuration, so the ratio shows the noise alone")
    return lines


def _config_json(config: BenchedConfig) -> dict[str, Any]:
    return {
        "config": config.name,
        "settings": dict(config.settings),
        "throughput": config.throughput,
        "throughput_min": min(config.throughputs),
        "throughput_max": max(config.throughputs),
        "p50_us": config.latency_us("p50_us"),
        "p99_us": config.latency_us("p99_us"),
        "intended_p50_us": config.latency_us("intended_p50_us"),
        "intended_p99_us": config.latency_us("intended_p99_us"),
        "errors": config.errors,
        "rounds": [run.figures for run in config.runs],
        "effective": dict(config.effective),
    }


def _ratio_json(interval: RatioInterval) -> dict[str, Any]:
    return {
        "median": median(interval.rounds),
        "mean": interval.ratio,
        "low": interval.low,
        "high": interval.high,
        "rounds": list(interval.rounds),
        "method": METHOD,
    }


def _errors(run: Measured) -> int:
    operations = run.figures["per_operation"]
    return sum(int(figures["errors"]) for name, figures in operations.items() if name != _WHOLE)


def _latency_us(run: Measured, operation: str, figure: str) -> float | None:
    figures = run.figures["per_operation"].get(operation, {})
    return float(figures[figure]) if figure in figures else None
