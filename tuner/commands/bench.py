"""`duratune bench`: measure one configuration, or two side by side. It judges nothing."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from crashlab.kill import MeasurePlan
from engines.lock import exclusive
from knobs.errors import InvalidInput
from tuner import folders, options
from tuner.kinds.family import Size
from tuner.options import Asked, takes_asked
from tuner.origin import origin
from tuner.output import Output
from tuner.report import bench as bench_report
from tuner.report.bench import Bench, BenchedConfig
from tuner.report.settings import in_short
from tuner.request import Request, open_lab, resolve_asked
from tuner.search.interleaved import Measured, interleaved
from tuner.search.interval import ROUNDS_MIN
from tuner.static_check import breaking, differences

SIZE = Size(records=50_000, scale=10)
ROUNDS_ALONE = 3
ROUNDS_PAIRED = 6
"""Even, so that each of the two goes first equally often."""
WARMUP_S_MAX = 1.0
"""A run warms up for this long, or as long as it measures if that is shorter."""
DOCUMENT = "bench.json"
DEFAULT = "default"


@takes_asked
def command(
    asked: Asked,
    vs: Annotated[
        str | None,
        typer.Option(
            "--vs", metavar="CONFIG", help="Another CONFIG, or 'default': measured in turn with it."
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds", min=1, help=f"Runs of each; default {ROUNDS_ALONE}, with --vs {ROUNDS_PAIRED}."
        ),
    ] = None,
    time: options.RunTime = "3s",
) -> int:
    """Measure one configuration, or two in turn with the ratio and its interval. Nothing is crashed.

    --set lies over CONFIG only. Exit code 0: measured.
    """
    output = Output(json=asked.json, quiet=asked.quiet)
    count = _rounds(rounds, vs)
    properties, rate = _target(asked.properties or [], asked.target)
    # What is empty was given all the same, and is refused where nothing takes it.
    asked = replace(asked, properties=asked.properties and properties, target=rate)
    measure_s = options.seconds(time)
    plan = MeasurePlan(min(WARMUP_S_MAX, measure_s), measure_s, rate)
    first = resolve_asked(asked, SIZE)
    requests = {_name(asked.config, asked.sets or []): first}
    if vs is not None:
        # --set lies over CONFIG only; everything else, a seed that was drawn too, is the same for both.
        other = replace(asked, config=None if vs == DEFAULT else vs, sets=None, seed=first.seed)
        requests[vs if vs not in requests else f"{vs} again"] = resolve_asked(other, SIZE)
    name = folders.default_name(asked.engine, first.workload.name, first.contract, "bench-")
    folder = folders.for_one_run(asked.study, name)
    output.result(_asked(requests, plan, count))
    with exclusive(folder), folders.kept_with(folder, DOCUMENT):
        _bench(requests, plan, count, folder, asked.data, output)
    return 0


def _rounds(asked: int | None, vs: str | None) -> int:
    if vs is None:
        return asked or ROUNDS_ALONE
    if asked is not None and asked < ROUNDS_MIN:
        raise InvalidInput(
            f"{asked} rounds give no interval", where="--rounds", hint=f"with --vs at least {ROUNDS_MIN}"
        )
    return asked or ROUNDS_PAIRED


def _target(properties: Sequence[str], target: float | None) -> tuple[list[str], float]:
    """The rate from --target or from YCSB's own property of that name, and the properties without it."""
    stated = [pair for pair in properties if pair.startswith("target=")]
    rest = [pair for pair in properties if not pair.startswith("target=")]
    if not stated:
        return rest, target or 0.0
    if target is not None:
        raise InvalidInput("the rate is stated twice", where="--target", hint=f"leave out -p {stated[-1]}")
    try:
        rate = float(stated[-1].partition("=")[2])
    except ValueError:
        rate = -1.0
    if not 0 <= rate < float("inf"):
        raise InvalidInput(
            f"{stated[-1]} is no rate", where="-p", hint="operations per second, 0 for no limit"
        )
    return rest, rate


def _name(config: str | None, sets: Sequence[str]) -> str:
    """What the configuration is called; its settings have a line of their own."""
    return (config or DEFAULT) + (" with --set" if sets else "")


def _bench(
    requests: dict[str, Request],
    plan: MeasurePlan,
    rounds: int,
    folder: Path,
    data: Path | None,
    output: Output,
) -> None:
    first = next(iter(requests.values()))
    for note in first.notes:
        output.note(note)
    with open_lab(first, folder, data, list(requests.values())[1:], output.note) as (lab, bound, beside):
        come_from = origin(bound, lab.data)
        subjects = [request.subject() for request in (bound, *beside)]
        progress = output.progress()
        progress.start(rounds, "rounds")
        try:
            measured = interleaved(lab, subjects, plan, rounds, bound.seed, progress.advance)
        finally:
            progress.close()
    configs = [
        _benched(name, request, [runs[index] for runs in measured])
        for index, (name, request) in enumerate(requests.items())
    ]
    bench = Bench(first.contract, first.engine.name, first.seed, plan, configs)
    bench_report.refuse_idle(bench)
    document = bench_report.as_json(bench, come_from)
    _save(folder / DOCUMENT, document)
    output.result(bench_report.as_text(bench))
    output.result(f"results        {folder / DOCUMENT}")
    output.document(document)


def _benched(name: str, request: Request, runs: Sequence[Measured]) -> BenchedConfig:
    effective = request.engine.in_force(runs[0].effective)
    findings = [
        *request.findings,
        # What is predicted to break the contract is told beside the speed, and is no verdict.
        *breaking(request, request.settings),
        *differences(request, request.settings, runs[0].effective),
    ]
    return BenchedConfig(name, request.settings, effective, findings, runs)


def _asked(requests: dict[str, Request], plan: MeasurePlan, rounds: int) -> str:
    request = next(iter(requests.values()))
    turns = "in turn, " if len(requests) > 1 else ""
    lines = [
        f"run            {request.in_words()}, seed {request.seed}",
        f"measuring      {turns}{rounds} round{'s' if rounds > 1 else ''} of {plan.measure_s:g} s "
        f"after {plan.warmup_s:g} s of warm-up",
    ]
    for name, asked in requests.items():
        lines.append(f"settings       {name}: {in_short(asked, asked.settings)}")
    return "\n".join(lines)


def _save(path: Path, document: dict[str, Any]) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(json_module.dumps(document, indent=1, allow_nan=False), encoding="utf-8")
    part.replace(path)
