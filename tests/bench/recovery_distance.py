"""Predicted recovery times of PostgreSQL against those of a log that was really filled: docs/recovery.md.

    make recovery

For the default pair of max_wal_size and checkpoint_timeout a recovery is predicted from a run of a few
seconds; then the same load goes on until the log since the last checkpoint is nearly as long as the pair
allows, is killed, and is recovered. What is measured is noted at once, so an interrupted command goes on
where it stopped (results/recovery-distance.jsonl, by commit).
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from crashlab.copying import clone_folder
from crashlab.kill import MeasurePlan
from crashlab.subject import Subject
from engines.postgresql import integrity
from engines.postgresql import replay as engine_replay
from engines.postgresql.launch import PostgresqlLaunch
from engines.postgresql.server import Server
from engines.postgresql.server_log import Message
from engines.postgresql.session import Session
from engines.provenance import commit
from knobs.contract import Contract
from knobs.errors import Undecided
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
from tests.bench.recovery_distance_page import RULES, Filling, Judged, Pair, Repetition, Replay, page
from tests.crashlab_tests.proof_journal import Journal
from workloads.pgbench.run import PgbenchRun
from workloads.pgbench.workload import PgbenchWorkload
from workloads.workload import EFFECTIVE_NAME, Plan

MODULE = "tests.bench.recovery_distance"
PAGE = CHECKOUT / "docs" / "recovery.md"
PAIRS = (Pair("1GB", "5min"), Pair("64GB", "1h"), Pair("128MB", "5min"))
"""The first is the default, whose distance is filled; a checkpoint comes by volume there."""
TIMED = Pair("1GB", "1min")
"""Its distance is filled too; a checkpoint comes by time there, as it does with the default at a load whose
transactions wait for the disk."""
SCALE, CLIENTS, REPETITIONS, RECOVERIES, ROUNDS = 10, 8, 3, 2, 3
SHORT_S = 4.0
FASTER: Mapping[str, str] = {"synchronous_commit": "off"}
FILLED_SHARE = 0.9
"""How much of the longest distance is filled: near its end a checkpoint may end at any time."""
TIMED_S = FILLED_SHARE * 1.9 * 60.0
"""The same of TIMED's longest distance: from one checkpoint's begin to the end of the next, which begins
after checkpoint_timeout and lasts for checkpoint_completion_target of it."""
CONTRACTS = ("strict,recovery=5s", "strict,recovery=60s")
AGAIN_SHARE = 0.9
FILL_DEADLINE_S, POLL_S = 3_600.0, 0.1
START_DEADLINE_S, WALDUMP_DEADLINE_S = 900.0, 300.0

_DISTANCE = "select pg_wal_lsn_diff(pg_current_wal_lsn(), redo_lsn)::bigint from pg_control_checkpoint()"
_REDO = re.compile(r"redo (starts|done) at ([0-9A-F]+/[0-9A-F]+)")
_CPU = re.compile(r"redo done .* CPU: user: ([0-9.]+) s, system: ([0-9.]+) s")
_TOTAL = re.compile(r"^Total\s+(\d+)\s+(\d+) \[.*?\]\s+(\d+) \[", re.MULTILINE)


# ---- filling and recovering ----


@dataclass(frozen=True)
class Killed:
    """What a killed run left to replay, recovered once or more; the settings in force; its seconds."""

    replays: Sequence[Replay]
    effective: str
    took_s: float


def run_and_recover(
    place: PostgresqlLab, subject: Subject, seed: int, recoveries: int, until: float | int
) -> Killed:
    """Load, run, kill and recover. The run lasts for seconds (a float), or until the log since the last
    checkpoint has so many bytes (an int)."""
    folder = place.lab.scratch.folder(place.lab.data, "run")
    try:
        launch = subject.launch(folder)
        subject.workload.load(launch, folder, seed)
        with subject.workload.start(launch, Plan(subject.threads, seed), folder) as run:
            assert isinstance(run, PgbenchRun), "it has a server to ask"
            took_s = fill(run.server, until) if isinstance(until, int) else last(run.server, until)
            run.kill()
        effective = (folder / EFFECTIVE_NAME).read_text(encoding="utf-8")
        replays = [recover(place, launch, folder / "clone") for _ in range(recoveries)]
        return Killed(replays, effective, took_s)
    finally:
        place.lab.scratch.remove(folder)


def last(server: Server, seconds: float) -> float:
    """Let the load go on for this long."""
    ends_s = time.monotonic() + seconds
    while (left_s := ends_s - time.monotonic()) > 0:
        server.check()
        time.sleep(min(1.0, left_s))
    return seconds


def fill(server: Server, distance_bytes: int) -> float:
    """Wait until the log since the last checkpoint is as long as asked; returns the seconds that it took.

    Where a checkpoint ends before, which one by time may, the next wait is for nearly what was reached.
    Raises Undecided at the deadline.
    """
    began_s, longest = time.monotonic(), 0
    with Session(server.address) as session:
        while longest < distance_bytes:
            server.check()
            distance = int(session.value(_DISTANCE))
            if distance < longest:
                say(f"a checkpoint ended at {longest >> 20} of {distance_bytes >> 20} MiB")
                distance_bytes = int(AGAIN_SHARE * longest)
            if time.monotonic() - began_s > FILL_DEADLINE_S:
                raise Undecided(f"{distance} bytes after {FILL_DEADLINE_S:g} s", where="filling the log")
            longest = distance
            time.sleep(POLL_S)
    return time.monotonic() - began_s


def recover(place: PostgresqlLab, launch: PostgresqlLaunch, clone: Path) -> Replay:
    """Recover a clone, as the lab does with a killed run, and count what was replayed."""
    clone_folder(launch.database, clone, place.engine.log_reader)
    try:
        with launch.at(clone).start(deadline_s=START_DEADLINE_S) as server:
            start_s, messages = server.start_s, server.messages()
    finally:
        shutil.rmtree(clone)
    return replay(messages, start_s, counted(launch, messages))


def counted(launch: PostgresqlLaunch, messages: Sequence[Message]) -> str:
    """What pg_waldump --stats says of the log that a recovery of it replayed."""
    ends: dict[str, str] = {}
    for message in messages:
        found = _REDO.match(message.text)
        if found is not None:
            ends[found[1]] = found[2]
    if len(ends) != 2:
        raise Undecided("the server does not say what it replayed", where="recovery")
    with launch.cluster.seen() as seen:
        words = ["--stats", "-p", f"{seen.path}/pg_wal", "-s", ends["starts"], "-e", ends["done"]]
        return launch.cluster.run("pg_waldump", words, seen, WALDUMP_DEADLINE_S).stdout


def replay(messages: Sequence[Message], start_s: float, stats: str) -> Replay:
    """A recovery by the server's own messages and pg_waldump's totals; raises Undecided without them."""
    redo, total = integrity.redo(messages), _TOTAL.search(stats)
    if redo is None or total is None:
        raise Undecided("the server or pg_waldump does not say what was replayed", where="recovery")
    cpu = next((found for message in messages if (found := _CPU.match(message.text))), None)
    cpu_s = None if cpu is None else float(cpu[1]) + float(cpu[2])
    return Replay(start_s, redo[1], cpu_s, redo[0], int(total[1]), int(total[3]))


# ---- the command ----


def by_volume(place: PostgresqlLab) -> Subject:
    """The load whose checkpoints come by volume."""
    subject = place.subject({**PAIRS[0].settings, **FASTER}, CLIENTS, SCALE)
    assert isinstance(subject.workload, PgbenchWorkload)
    return replace(subject, workload=subject.workload.with_options(protocol="prepared"))


def by_time(place: PostgresqlLab) -> Subject:
    """The load whose checkpoints come by time."""
    return place.subject(TIMED.settings, CLIENTS, SCALE)


def repeat(place: PostgresqlLab, subject: Subject, seconds: float | None, seed: int) -> Repetition:
    """Predict from a short run, then fill the distance: for these seconds, None by its length."""
    short = run_and_recover(place, subject, seed, 1, SHORT_S)
    (left,) = short.replays
    settings, seen = place.engine.in_force(short.effective), left.seen(short.took_s)
    longest = engine_replay.longest_log(settings, replace(seen, image_bytes=0))
    by_records = engine_replay.longest_log(settings, seen)
    until = seconds or int(FILLED_SHARE * longest)
    filled = run_and_recover(place, subject, seed, RECOVERIES, until)
    return Repetition(left, short.took_s, filled.replays, filled.took_s, longest, by_records)


def judge(place: PostgresqlLab, pair: Pair, seed: int) -> Judged:
    """Measure, kill, recover and judge a run of the pair, as the lab itself does."""
    killed = place.lab.measure(place.subject(pair.settings, CLIENTS, SCALE), MeasurePlan(), seed)
    assert killed.recovered is not None, "it was to be recovered"
    verdicts = []
    for contract in CONTRACTS:
        judgement = killed.judge(Contract.parse(contract))
        why = ", ".join(judgement.reasons) or judgement.unknown_why
        verdicts.append(f"{judgement.verdict.value} {why}".strip())
    return Judged(pair, killed.throughput, killed.recovered.recovery_s, killed.recovery_s_predicted, verdicts)


def noted_repetition(noted: Mapping[str, Any]) -> Repetition:
    """A repetition as the journal keeps it."""
    names = ("short_s", "filled_s", "log_bytes_max", "by_records_bytes")
    filled = [Replay(**each) for each in noted["filled"]]
    return Repetition(short=Replay(**noted["short"]), filled=filled, **{name: noted[name] for name in names})


def noted_judged(noted: Mapping[str, Any]) -> Judged:
    """A judged run as the journal keeps it."""
    names = ("throughput_per_s", "recovery_s", "predicted_s", "verdicts")
    return Judged(Pair(**noted["pair"]), **{name: noted[name] for name in names})


def say(text: str) -> None:
    """For whoever waits."""
    print(text, file=sys.stderr, flush=True)


def judge_all(place: PostgresqlLab, journal: Journal) -> list[Judged]:
    """The verdicts that are not noted yet, the pairs taking turns."""
    judged: list[Judged] = []
    for seed in range(1, ROUNDS + 1):
        for pair in PAIRS if seed % 2 else reversed(PAIRS):
            key = f"judged: {pair.name}"
            noted = journal.finished(key, seed)
            noted = noted or journal.add(key, seed, with_load(asdict(judge(place, pair, seed))))
            judged.append(noted_judged(noted))
            say(f"{pair.name}, round {seed}: {' / '.join(judged[-1].verdicts)}")
    return sorted(judged, key=lambda each: PAIRS.index(each.pair))


def fill_all(
    place: PostgresqlLab, journal: Journal, key: str, subject: Subject, seconds: float | None
) -> list[Repetition]:
    """The repetitions that are not noted yet."""
    repetitions: list[Repetition] = []
    for seed in range(1, REPETITIONS + 1):
        noted = journal.finished(key, seed)
        if noted is None:
            noted = journal.add(key, seed, with_load(asdict(repeat(place, subject, seconds, seed))))
        each = noted_repetition(noted)
        repetitions.append(each)
        for filled in each.filled:
            told = ", ".join(
                f"{name} {rule(each.short, filled.log_bytes):.2f} s" for name, rule in RULES.items()
            )
            say(
                f"{key} {seed}: {filled.log_bytes >> 20} MiB in {each.filled_s:.0f} s, recovery "
                f"{filled.start_s:.2f} s; predicted {told}"
            )
    return repetitions


def method() -> list[str]:
    """How it was measured, for the page."""
    return [
        f"- load: pgbench, tpcb-like, scale {SCALE}, {CLIENTS} clients; the short run lasts {SHORT_S:g} s",
        "- checkpoints by volume: the default pair, with prepared statements and synchronous_commit=off, by "
        "which a transaction's log is the same and comes faster; by time: with synchronous commit",
        f"- killed at {FILLED_SHARE:.0%} of the longest distance; each log recovered {RECOVERIES} times, "
        "from a clone just made, so that files are in the page cache and their syncs are part of the start",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="where the clusters lie (%(default)s)")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    options = parser.parse_args(arguments)
    command = command_line("recovery", MODULE, sys.argv[1:] if arguments is None else arguments)
    journal = Journal(RESULTS / "recovery-distance.jsonl", commit() or "no commit")
    with postgresql_lab(options.data) as place:
        judged = judge_all(place, journal)
        timed = fill_all(place, journal, "timed", by_time(place), TIMED_S)
        filled = fill_all(place, journal, "filled", by_volume(place), None)
        told = origin(command, place, journal)
    fillings = (
        Filling(PAIRS[0], "checkpoints by volume", FILLED_SHARE, filled),
        Filling(TIMED, "checkpoints by time", FILLED_SHARE, timed),
    )
    text = page(fillings, judged, CONTRACTS, told, method())
    options.page.write_text(text, encoding="utf-8")
    say(f"written: {options.page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
