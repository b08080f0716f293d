"""docs/recovery.md: what `make recovery` predicted and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

_MIB = 1 << 20


@dataclass(frozen=True)
class Pair:
    """max_wal_size and checkpoint_timeout, which bound the log that a recovery replays."""

    max_wal_size: str
    checkpoint_timeout: str

    @property
    def settings(self) -> dict[str, str]:
        return {"max_wal_size": self.max_wal_size, "checkpoint_timeout": self.checkpoint_timeout}

    @property
    def name(self) -> str:
        return f"{self.max_wal_size}, {self.checkpoint_timeout}"


@dataclass(frozen=True)
class Replay:
    """One recovery: its whole start and the redo in it, in seconds; ``redo_cpu_s`` is the CPU time of the
    redo (None before PostgreSQL 14); ``image_bytes`` are the full-page images in the log."""

    start_s: float
    redo_s: float
    redo_cpu_s: float | None
    log_bytes: int
    records: int
    image_bytes: int

    @property
    def record_bytes(self) -> int:
        """The log without its page images."""
        return self.log_bytes - self.image_bytes


@dataclass(frozen=True)
class Repetition:
    """One short run and one that filled the distance: what each left to replay, and how long it ran."""

    short: Replay
    short_s: float
    filled: Sequence[Replay]
    filled_s: float
    log_bytes_max: int


@dataclass(frozen=True)
class Judged:
    """A measured and killed run of a pair, and its verdict and reasons under each contract."""

    pair: Pair
    throughput_per_s: float
    recovery_s: float
    predicted_s: float | None
    verdicts: Sequence[str]


Rule = Callable[[Replay, int], float]
"""Seconds of a recovery of so many bytes of log, by what a short run left."""


def by_bytes(short: Replay, log_bytes: int) -> float:
    """Every byte of the log takes the same time, whatever it holds."""
    return short.start_s + short.redo_s * (log_bytes / short.log_bytes - 1.0)


def by_records(short: Replay, log_bytes: int) -> float:
    """Records take the time, and the longest distance has two rounds of page images.

    An image is written when a page is first changed after a checkpoint has begun; the longest distance
    reaches over two such begins. Each round is taken to be as large as that of the short run, which is the
    least that it can be, so that what is left for records, and so the time, is the most.
    """
    longest = max(short.record_bytes, log_bytes - 2 * short.image_bytes)
    return short.start_s + short.redo_s * (longest / short.record_bytes - 1.0)


def spread(values: Sequence[float]) -> str:
    """Least, middle and greatest."""
    if len(set(values)) == 1:
        return f"{values[0]:.2f}"
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def ratios(repetitions: Sequence[Repetition], rule: Rule) -> list[float]:
    """Measured over predicted, whole starts, at the distance that was really replayed."""
    return [
        filled.start_s / rule(each.short, filled.log_bytes) for each in repetitions for filled in each.filled
    ]


def cpu_ratios(repetitions: Sequence[Repetition], rule: Rule) -> list[float]:
    """The same of the CPU time of the redo, which other work on the machine disturbs less."""
    found = []
    for each in repetitions:
        short = each.short
        for filled in each.filled:
            if short.redo_cpu_s and filled.redo_cpu_s:
                times = (rule(short, filled.log_bytes) - short.start_s) / short.redo_s + 1.0
                found.append(filled.redo_cpu_s / (short.redo_cpu_s * times))
    return found


def page(
    repetitions: Sequence[Repetition],
    judged: Sequence[Judged],
    contracts: Sequence[str],
    origin: Sequence[str],
    method: Sequence[str],
) -> str:
    """The whole page."""
    lines = [
        "# Recovery at the distance that the settings allow",
        "",
        "A killed run of a few seconds leaves little log. How long a recovery may take later is told by a",
        "rule from that of the little log; here the rule is held against a log that was really filled.",
        "Written by the command below; run it again rather than edit this page.",
        "",
        *origin,
        *method,
        "",
        "## Predicted and measured",
        "",
        "| | run, s | log, MiB | of it page images | records | start, s | redo, s | its CPU time, s |",
        "|---|---|---|---|---|---|---|---|",
        *_replays(repetitions),
        "",
        "Measured over predicted, at the distance that was replayed; 1 is right, above 1 the recovery took",
        "longer than predicted. Median (least to greatest).",
        "",
        "| rule | whole start | CPU time of the redo |",
        "|---|---|---|",
        *_rules(repetitions),
        "",
        "*by bytes*: every byte of log takes the time that a byte of the short run took. *by records*: page",
        "images take none, and the longest distance has two rounds of them, each as large as that of the",
        "short run.",
        "",
        "## Verdicts",
        "",
        "A pair of max_wal_size and checkpoint_timeout under the defaults otherwise, so with synchronous",
        "commit; each run is measured, killed, recovered and judged as `duratune` does it. The ratio is of",
        "transactions per second to those of the first pair in the same round.",
        "",
        f"| pair | rate over the first's | recovery measured, s | predicted, s | {' | '.join(contracts)} |",
        f"|---|---|---|---|{'---|' * len(contracts)}",
        *_verdicts(judged, len(contracts)),
    ]
    return "\n".join(lines) + "\n"


def _replays(repetitions: Sequence[Repetition]) -> Iterator[str]:
    for number, each in enumerate(repetitions, 1):
        yield _replay(f"{number}, short", each.short_s, each.short)
        for filled in each.filled:
            yield _replay(f"{number}, filled", each.filled_s, filled)


def _replay(what: str, took_s: float, replay: Replay) -> str:
    cpu = "-" if replay.redo_cpu_s is None else f"{replay.redo_cpu_s:.2f}"
    return (
        f"| {what} | {took_s:.0f} | {replay.log_bytes / _MIB:.0f} | "
        f"{replay.image_bytes / replay.log_bytes:.0%} | {replay.records} | {replay.start_s:.2f} | "
        f"{replay.redo_s:.2f} | {cpu} |"
    )


def _rules(repetitions: Sequence[Repetition]) -> Iterator[str]:
    for name, rule in (("by bytes", by_bytes), ("by records", by_records)):
        cpu = cpu_ratios(repetitions, rule)
        yield f"| {name} | {spread(ratios(repetitions, rule))} | {spread(cpu) if cpu else '-'} |"


def _verdicts(judged: Sequence[Judged], contracts: int) -> Iterator[str]:
    pairs = list(dict.fromkeys(each.pair for each in judged))
    runs = {pair: [each for each in judged if each.pair == pair] for pair in pairs}
    for pair in pairs:
        first = runs[pairs[0]]
        faster = [a.throughput_per_s / b.throughput_per_s for a, b in zip(runs[pair], first, strict=True)]
        predicted = [each.predicted_s for each in runs[pair] if each.predicted_s is not None]
        verdicts = [
            ", ".join(_counted([each.verdicts[number] for each in runs[pair]])) for number in range(contracts)
        ]
        yield (
            f"| {pair.name} | {spread(faster)} | {spread([each.recovery_s for each in runs[pair]])} | "
            f"{spread(predicted) if predicted else '-'} | {' | '.join(verdicts)} |"
        )


def _counted(words: Sequence[str]) -> Iterator[str]:
    for word in dict.fromkeys(words):
        yield f"{word} ({words.count(word)} of {len(words)})"
