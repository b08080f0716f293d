"""docs/recovery.md: what `make recovery` predicted and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from engines import engine
from engines.postgresql import replay
from engines.postgresql.replay import IMAGE_BYTE_COST

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

    def seen(self, written_s: float) -> engine.Replay:
        """The same in the engine's words."""
        return engine.Replay(self.log_bytes, self.image_bytes, self.redo_s, written_s)

    @property
    def record_bytes(self) -> int:
        """The log without its page images."""
        return self.log_bytes - self.image_bytes


@dataclass(frozen=True)
class Repetition:
    """One short run and one that filled the distance: what each left to replay, and how long it ran.

    ``log_bytes_max`` is how long the engine says that the log may become, at the short run's rate of log;
    ``by_records_bytes`` the same at its rate of records, with two rounds of page images.
    """

    short: Replay
    short_s: float
    filled: Sequence[Replay]
    filled_s: float
    log_bytes_max: int
    by_records_bytes: int


@dataclass(frozen=True)
class Filling:
    """A pair whose distance was filled, what ends that distance, and how much of it was filled."""

    pair: Pair
    bound: str
    share: float
    repetitions: Sequence[Repetition]


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


def by_work(short: Replay, log_bytes: int) -> float:
    """What duratune predicts (engines/postgresql/replay.py): records take the time, page images little of it,
    and a long distance has two rounds of images."""
    return short.start_s - short.redo_s + replay.redo_s(short.seen(1.0), log_bytes)


RULES: Mapping[str, Rule] = {"by bytes": by_bytes, "by work": by_work}


def image_byte_costs(repetitions: Sequence[Repetition]) -> list[float]:
    """What a byte of a page image takes over what a byte of a record takes, by CPU time, as far as two
    replays of one load with different shares of images tell."""
    found = []
    for each in repetitions:
        short = each.short
        for filled in each.filled:
            if not (short.redo_cpu_s and filled.redo_cpu_s):
                continue
            times = filled.redo_cpu_s / short.redo_cpu_s
            images = times * short.image_bytes - filled.image_bytes
            if images > 0:
                found.append((filled.record_bytes - times * short.record_bytes) / images)
    return found


def spread(values: Sequence[float]) -> str:
    """Least, middle and greatest."""
    if len(set(values)) == 1:
        return f"{values[0]:.2f}"
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def ratios(repetitions: Sequence[Repetition], rule: Rule, share: float | None = None) -> list[float]:
    """Measured over predicted, whole starts: at the distance that was replayed, or (with a share) at this
    share of the distance that the rule expects."""
    return [
        filled.start_s / rule(each.short, _distance(each, filled, rule, share))
        for each in repetitions
        for filled in each.filled
    ]


def cpu_ratios(repetitions: Sequence[Repetition], rule: Rule, share: float | None = None) -> list[float]:
    """The same of the CPU time of the redo, which other work on the machine disturbs less."""
    found = []
    for each in repetitions:
        short = each.short
        for filled in each.filled:
            if short.redo_cpu_s and filled.redo_cpu_s:
                predicted_s = rule(short, _distance(each, filled, rule, share))
                times = (predicted_s - short.start_s) / short.redo_s + 1.0
                found.append(filled.redo_cpu_s / (short.redo_cpu_s * times))
    return found


def _distance(each: Repetition, filled: Replay, rule: Rule, share: float | None) -> int:
    if share is None:
        return filled.log_bytes
    return int(share * (each.log_bytes_max if rule is by_bytes else each.by_records_bytes))


def page(
    fillings: Sequence[Filling],
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
        "Two rules are held against it; duratune uses the second. *by bytes*: every byte takes the time",
        "that one of the short run took, and comes at its rate. *by work*: a byte of a full-page image takes",
        f"{IMAGE_BYTE_COST:g} of the time of a byte of a record, log comes at the short run's rate of",
        "records, and the longest distance has two rounds of images (one after each of the two checkpoints",
        "that begin in it), each as large as that of the short run.",
        *(line for filling in fillings for line in _filling(filling)),
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


def _filling(filling: Filling) -> Iterator[str]:
    repetitions = filling.repetitions
    yield from (
        "",
        f"## {filling.pair.name}: {filling.bound}",
        "",
        "| | run, s | log, MiB | of it page images | records | start, s | redo, s | its CPU time, s |",
        "|---|---|---|---|---|---|---|---|",
        *_replays(repetitions),
        "",
        "Measured over predicted; 1 is right, above 1 it was more than predicted. *log*: how long it became.",
        "*known*: the recovery of just so much log. *told*: that of the log that the rule expects, which is",
        "what is predicted. *CPU*: the same of the CPU time of the redo, which other work on the machine",
        "disturbs less. Median (least to greatest).",
        "",
        "| rule | log | known | known, CPU | told | told, CPU |",
        "|---|---|---|---|---|---|",
        *_rules(filling),
        "",
    )
    costs = image_byte_costs(repetitions)
    if costs:
        yield f"A byte of a page image took {spread(costs)} of the CPU time of a byte of a record."


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


def _rules(filling: Filling) -> Iterator[str]:
    repetitions, share = filling.repetitions, filling.share
    for name, rule in RULES.items():
        distances = [
            filled.log_bytes / _distance(each, filled, rule, share)
            for each in repetitions
            for filled in each.filled
        ]
        cells = (
            distances,
            ratios(repetitions, rule),
            cpu_ratios(repetitions, rule),
            ratios(repetitions, rule, share),
            cpu_ratios(repetitions, rule, share),
        )
        yield f"| {name} | {' | '.join(spread(cell) if cell else '-' for cell in cells)} |"


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
