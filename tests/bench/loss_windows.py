"""The loss windows that PostgreSQL shows under synchronous_commit=off, as docs/loss-windows.md.

    make windows

One row for each wal_writer_delay, wal_writer_flush_after and rate of the load. What a row has measured is
noted at once, so an interrupted command goes on where it stopped (results/loss-windows.jsonl, by commit).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from crashlab.judging.audit import Audit, Peak
from crashlab.judging.judge import judge_states
from crashlab.judging.verdict import CrashKind
from crashlab.kill import MeasurePlan
from crashlab.recording.record import RecordPlan
from crashlab.recording.recorded import Recording
from crashlab.recording.write_log import Kind
from crashlab.states.lives import Life
from crashlab.states.plan import PlannedState
from crashlab.subject import Subject
from engines.engine import FileRole
from engines.provenance import commit
from knobs.contract import Contract
from tests.bench.loss_windows_page import CUT, KILL, Case, Row, page
from tests.bench.postgresql_lab import (
    CHECKOUT,
    DATA,
    RESULTS,
    PostgresqlLab,
    command_line,
    origin,
    postgresql_lab,
    with_load,
)
from tests.crashlab_tests.proof_journal import Journal

MODULE = "tests.bench.loss_windows"
PAGE = CHECKOUT / "docs" / "loss-windows.md"
DELAYS_MS = (10, 200, 2_000, 10_000)
FLUSH_AFTER = ("", "1GB")
"""wal_writer_flush_after; "" is the default, 1 MB."""
RATES = (0, 50)
CLIENTS = 4
KILLS, RUNS = 5, 1
WARMUP_S, SECONDS_MIN, DELAYS_RECORDED = 1.0, 4.0, 3.5
DELAYS_AT_LEAST = 1.5
"""With less than this a window as long as the delay may not come to its end."""
MOMENTS = 1_000
AGREES_MS = 0.001
_OPERATIONS_PER_S_UNTRIED = 2_000.0
_EXTREMES: Sequence[tuple[CrashKind, str]] = ((KILL, "cache"), (CUT, "synced"))
"""The crash, and the model of states that lose everything that the audit calls exposed to it."""


def cases() -> list[Case]:
    """The rows, the ones that differ in the delay alone beside one another."""
    return [Case(delay, after, rate) for rate, after, delay in product(RATES, FLUSH_AFTER, DELAYS_MS)]


def recorded_s(case: Case) -> float:
    """How long a recorded run lasts: so long that the delay can pass in it more than twice."""
    return max(SECONDS_MIN, DELAYS_RECORDED * case.delay_ms / 1_000.0)


# ---- what one run shows ----


def kill_once(place: PostgresqlLab, subject: Subject, case: Case, seed: int) -> dict[str, Any]:
    """One measured run, killed after a time that the seed draws, and what it lost."""
    measure_s = random.Random(f"{case.name}/{seed}").uniform(0.5, 2.0)
    killed = place.lab.measure(subject, MeasurePlan(WARMUP_S, measure_s, case.rate_per_s), seed)
    judgement = killed.judge(Contract("strict"))
    return {
        "loss_ms": judgement.loss_ms,
        "lost": judgement.lost,
        "acks": judgement.acks,
        "throughput_per_s": killed.throughput,
        "unknown_why": judgement.unknown_why,
    }


def record_once(
    place: PostgresqlLab, subject: Subject, case: Case, operations_per_s: float, seed: int
) -> dict[str, Any]:
    """One recorded run in which nothing was provoked, its audit, and its worst positions as real states."""
    plan = RecordPlan(
        operations=max(1, int((case.rate_per_s or operations_per_s) * recorded_s(case))),
        provoke="",
        target_per_s=case.rate_per_s,
        deadline_s=60.0 + 5.0 * recorded_s(case),
    )
    folder = place.lab.scratch.folder(place.lab.data, "recorded")
    try:
        recording = place.lab.record(subject, Contract("strict"), plan, folder / "recording", seed)
        why = recording.disbelief or too_short(recording, case.delay_ms)
        if why:
            return {"disbelief": why, "worst": []}
        worst = [
            asdict(judged_worst(place, subject, recording, peak, model, seed))
            for crash, model in _EXTREMES
            for peak in counted_peaks(recording, crash)[:1]
        ]
        return {"disbelief": "", **shown(recording, seed), "worst": worst}
    finally:
        place.lab.scratch.remove(folder)


def counted_from(audit: Audit, first_position: int, crash: CrashKind) -> int:
    """From which position on nothing that was acknowledged before the load began is exposed any more."""
    before = audit.history.acknowledged & audit.located & (audit.history.end < first_position)
    exposed_to = audit.covered_from if crash == CUT else audit.unwritten_to + 1
    return max(first_position, int(exposed_to[before].max(initial=0)))


def counted_peaks(recording: Recording, crash: CrashKind) -> list[Peak]:
    """The positions that count, those with the widest windows first."""
    audit, timeline = recording.audit, recording.timeline
    first = counted_from(audit, recording.facts.first_position, crash)
    return [peak for peak in audit.peaks(timeline, len(audit.history), crash) if peak.position >= first]


def too_short(recording: Recording, delay_ms: float) -> str:
    """Why a recorded run is too short to show what the delay may do; "" where it is not."""
    timeline, first = recording.timeline, recording.facts.first_position
    late = max(counted_from(recording.audit, first, crash) for crash in (KILL, CUT))
    if late >= timeline.last_position:
        return "what was acknowledged before the load stayed exposed to its end"
    counted_ms = (timeline.span_ns[1] - timeline.ns_at(late + 1)) / 1e6
    if counted_ms < DELAYS_AT_LEAST * delay_ms:
        return f"only {counted_ms:.0f} ms of it count, for a delay of {delay_ms:g} ms"
    return ""


def shown(recording: Recording, seed: int) -> dict[str, Any]:
    """What a recording tells without any state of it: windows of either crash, the longest flush."""
    timeline, audit = recording.timeline, recording.audit
    last_ns = timeline.span_ns[1]
    found: dict[str, Any] = {
        "acks": audit.acks,
        "unlocated": audit.unlocated,
        "flush_ms": longest_flush_ms(recording.lives.values(), recording.reader.role),
    }
    for crash, _ in _EXTREMES:
        first_ns = timeline.ns_at(counted_from(audit, recording.facts.first_position, crash) + 1)
        draw = random.Random(f"{seed}/{crash}")
        moments = [timeline.position_at(int(draw.uniform(first_ns, last_ns))) for _ in range(MOMENTS)]
        peaks = counted_peaks(recording, crash)
        found[f"{crash}/s"] = (last_ns - first_ns) / 1e9
        found[f"{crash}/max_ms"] = peaks[0].window_ms if peaks else 0.0
        found[f"{crash}/median_ms"] = median(
            audit.peak_at(each, timeline, crash).window_ms for each in moments
        )
    return found


def longest_flush_ms(lives: Iterable[Life], role: Callable[[str], FileRole]) -> float:
    """The longest sync of a segment of the log under its own name; 0 where there is none.

    A segment that is being made ready under another name is synced too, before anything is written to it.
    """
    flushes = [
        (sync.end_ns or sync.begin_ns) - sync.begin_ns
        for life in lives
        if role(life.path) == "wal"
        for sync in life.file.syncs
        if sync.kind in (Kind.FSYNC, Kind.FDATASYNC) and life.begin <= sync.begin < life.end
    ]
    return max(flushes, default=0) / 1e6


# ---- the worst position as a real state ----


@dataclass(frozen=True)
class Agreement:
    """One worst position: what the audit says of it and what its recovered state lost. ``unlocated`` are
    acknowledgements before it of which the audit cannot tell; ``note`` has the judgement's own words."""

    model: str
    position: int
    audit_ms: float
    audit_exposed: int
    unlocated: int
    judged_ms: float
    judged_lost: int
    agrees: bool
    note: str = ""


def judged_worst(
    place: PostgresqlLab, subject: Subject, recording: Recording, peak: Peak, model: str, seed: int
) -> Agreement:
    """Rebuild, recover and judge the state of a position."""
    planned = PlannedState(model, peak.position, seed, "exposure", "the widest window")
    recovered = place.lab.recover(recording, subject, [planned])
    (state,) = judge_states(recording, recovered, Contract("strict"))
    judged, told = state.judgement, state.disagreement
    history = recording.history
    unlocated = int((history.acknowledged & ~recording.audit.located & (history.end < peak.position)).sum())
    agrees = agree(peak, unlocated, judged.loss_ms, judged.lost)
    agrees = agrees and (told is None or not (told.survived or told.vanished))
    note = f"{judged.verdict.value} {', '.join(judged.reasons)} {judged.unknown_why} {told or ''}".strip()
    return Agreement(
        model,
        peak.position,
        peak.window_ms,
        peak.exposed,
        unlocated,
        judged.loss_ms,
        judged.lost,
        agrees,
        note,
    )


def agree(peak: Peak, unlocated: int, judged_ms: float, judged_lost: int) -> bool:
    """Whether a recovered state lost what the audit says: since the same moment, and as many."""
    as_many = peak.exposed <= judged_lost <= peak.exposed + unlocated
    return as_many and abs(peak.window_ms - judged_ms) <= AGREES_MS


# ---- the command ----


def measure(place: PostgresqlLab, case: Case, kills: int, runs: int, journal: Journal) -> Row:
    """All of a row that is not noted yet, one run after another."""
    subject = place.subject(case.settings, CLIENTS)
    killed: list[dict[str, Any]] = []
    for seed in range(1, kills + 1):
        key = f"{case.name}: kill"
        noted = journal.finished(key, seed)
        killed.append(noted or journal.add(key, seed, with_load(kill_once(place, subject, case, seed))))
    rates = [kill["throughput_per_s"] for kill in killed] or [_OPERATIONS_PER_S_UNTRIED]
    recorded: list[dict[str, Any]] = []
    for seed in range(1, runs + 1):
        key = f"{case.name}: recorded"
        noted = journal.finished(key, seed)
        if noted is None:
            made = record_once(place, subject, case, median(rates), seed)
            noted = journal.add(key, seed, with_load(made))
        recorded.append(noted)
    return Row(case, killed, recorded)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every row and write the page; 1 where a state and the audit do not agree."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS, help="killed runs a row (%(default)s)")
    parser.add_argument("--runs", type=int, default=RUNS, help="recorded runs a row (%(default)s)")
    parser.add_argument("--data", type=Path, default=DATA, help="where the clusters lie (%(default)s)")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    options = parser.parse_args(arguments)
    command = command_line("windows", MODULE, sys.argv[1:] if arguments is None else arguments)
    journal = Journal(RESULTS / "loss-windows.jsonl", commit() or "no commit")
    rows: list[Row] = []
    with postgresql_lab(options.data) as place:
        todo = cases()
        for number, case in enumerate(todo, 1):
            began_s = time.monotonic()
            rows.append(measure(place, case, options.kills, options.runs, journal))
            took = f"{time.monotonic() - began_s:.0f} s"
            print(f"[{number}/{len(todo)}, {took}] {rows[-1].summary}", file=sys.stderr, flush=True)
        text = page(rows, origin(command, place, journal), MOMENTS, CLIENTS)
    options.page.write_text(text, encoding="utf-8")
    print(f"written: {options.page}", file=sys.stderr)
    return 1 if any(any(row.disagreements) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
