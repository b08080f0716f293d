"""PostgreSQL: crash states judged per minute, what recording costs, and where the time of a trial goes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from crashlab.judging.judge import judge_states, recover_states
from crashlab.recording.record import RecordPlan, record
from crashlab.recording.recorded import Recording
from crashlab.validate import plan_all, split_states
from crashlab.workers import workers_at_most
from knobs.contract import Contract
from knobs.errors import MachineLacks
from knobs.native import missing
from tests.bench.figures import Figure, Sheet, ratio
from tests.bench.pgbench_runs import PgbenchRuns
from tests.bench.postgresql_lab import WORKLOAD, PostgresqlLab, postgresql_lab
from tests.bench.rounds import Measure, in_turn
from tests.bench.trial_time import time_trials
from tests.crashlab_tests.block_tests.disks import need_disks
from tuner.request import resolve
from tuner.search.study_plan import default_trial_plan

pytestmark = pytest.mark.bench

SCALE, CLIENTS, SEED = 5, 4, 7
STATES, STATE_ROUNDS, STATES_PER_MINUTE_MIN = 60, 3, 200
RECORDED = RecordPlan(operations=1_500)
ROUNDS, SECONDS = 24, 1.5
TRIALS, OWN_S_MAX = 3, 1.5


@pytest.fixture
def place() -> Iterator[PostgresqlLab]:
    absent = missing()
    if absent:
        pytest.skip(f"not built: {', '.join(part.name for part in absent)}")
    try:
        with postgresql_lab() as place:
            yield place
    except MachineLacks as lack:
        pytest.skip(str(lack))


def recorded(place: PostgresqlLab, folder: Path) -> Recording:
    """A run at the full scale, which the lab by itself would record at scale 1."""
    subject = place.subject({}, CLIENTS, SCALE)
    base = place.lab.scratch.folder(place.lab.data, "base")
    subject.workload.load(subject.launch(base), base, SEED)
    recorder, scratch = place.lab.recorder, place.lab.scratch
    recording = record(subject, base / "db", folder, scratch, recorder, RECORDED, SEED, place.lab.data)
    scratch.remove(base)
    assert recording.believable, recording.facts.faults
    return recording


def test_postgresql_crash_states(place: PostgresqlLab, sheet: Sheet, tmp_path: Path) -> None:
    recording = recorded(place, tmp_path / "recording")
    subject = place.subject({}, CLIENTS, SCALE)
    planned = plan_all(recording, split_states(place.engine.controls, STATES), SEED)
    per_minute, judging_ms, cpu_s, touched = [], [], [], 0
    for _ in range(STATE_ROUNDS):
        begin_s, cpu_before_s = time.monotonic(), sum(os.times()[:4])
        recovered = recover_states(recording, subject, planned, place.lab.scratch, place.lab.data)
        middle_s = time.monotonic()
        judged = list(judge_states(recording, recovered, Contract("strict")))
        end_s = time.monotonic()
        assert [state.judgement.unknown_why for state in judged] == [""] * len(planned)
        assert [one for one in recovered if not (one.recovered and one.recovered.recovered)] == []
        per_minute.append(60.0 * len(planned) / (end_s - begin_s))
        cpu_s.append((sum(os.times()[:4]) - cpu_before_s) / len(planned))
        judging_ms.append(1000.0 * (end_s - middle_s) / len(planned))
        touched = sum(any("amcheck" in check for check in state.checks) for state in judged)
    base = [path for path in (recording.folder / "base").rglob("*") if path.is_file()]
    base_mib = sum(path.stat().st_size for path in base) / 2**20
    workers = workers_at_most()
    goal = f">= {STATES_PER_MINUTE_MIN}"
    sheet.add(
        "PostgreSQL: crash states",
        f"{len(planned)} states of all four models of a recorded run ({WORKLOAD} at scale {SCALE}, "
        f"{recording.facts.operations} transactions of {CLIENTS} clients, {recording.facts.log_bytes >> 20} "
        f"MiB of write log), {workers} at a time: each rebuilt from a base of {len(base)} files and "
        f"{base_mib:.0f} MiB, recovered, read with the candidate's and with neutral settings, and judged; "
        f"{touched} of them, whose data files differ from the base, with checksums and amcheck too.",
        [
            Figure("states per minute", per_minute, "", goal, median(per_minute) >= STATES_PER_MINUTE_MIN),
            Figure("CPU time of a state, all processes", cpu_s, "s"),
            Figure(
                "states per minute that this CPU time allows",
                [60.0 * (os.cpu_count() or 1) / s for s in cpu_s],
            ),
            Figure("of it judging one state", judging_ms, "ms"),
        ],
    )


def test_postgresql_recording(place: PostgresqlLab, sheet: Sheet) -> None:
    subject = place.subject({}, CLIENTS, SCALE)
    plain = PgbenchRuns(place, subject, SECONDS, "plain")
    stamped = PgbenchRuns(place, subject, SECONDS, "acks stamped")
    whole = PgbenchRuns(place, subject, SECONDS, "recorded")
    rates = in_turn(ROUNDS, _measures(plain, stamped, whole))
    figures = [
        ratio("recorded over plain", rates["recorded"], rates["plain"], 0.98),
        ratio("CPU time of a transaction, plain over recorded", plain.cpu_us, whole.cpu_us),
        ratio("acks only over plain", rates["acks stamped"], rates["plain"], 0.95),
        ratio("CPU time of a transaction, plain over acks", plain.cpu_us, stamped.cpu_us),
        Figure("plain pgbench", rates["plain"], "transactions/s"),
    ]
    sheet.add(
        "PostgreSQL: the recorder",
        f"Transactions per second of {WORKLOAD} at scale {SCALE} with {CLIENTS} clients, {SECONDS:g} s, by "
        "pgbench's own log: plain, with acknowledgements stamped in the server (as measured runs are), and "
        "with the write log too (as recorded runs are), in turn, each on a fresh clone. CPU time is the "
        "server's.",
        figures,
    )


def test_postgresql_on_disks(place: PostgresqlLab, sheet: Sheet) -> None:
    need_disks()
    subject = place.subject({}, CLIENTS, SCALE)
    plain = PgbenchRuns(place, subject, SECONDS, "plain")
    virtual = PgbenchRuns(place, subject, SECONDS, "recorded", "virtual")
    alone = PgbenchRuns(place, subject, SECONDS, "acks stamped", "virtual")
    journaled = PgbenchRuns(place, subject, SECONDS, "plain", "journaled")
    preloaded = PgbenchRuns(place, subject, SECONDS, "recorded", "journaled")
    rates = in_turn(ROUNDS, _measures(plain, virtual, alone, journaled, preloaded))
    figures = [
        ratio("block over plain", rates[virtual.name], rates[plain.name], 0.75),
        ratio("block without the files' log over plain", rates[alone.name], rates[plain.name]),
        ratio("block over plain on a journaled ext4", rates[virtual.name], rates[journaled.name], 0.75),
        ratio("preload over plain on a journaled ext4", rates[preloaded.name], rates[journaled.name], 0.98),
        ratio("plain on a journaled ext4 over plain", rates[journaled.name], rates[plain.name]),
    ]
    sheet.add(
        "PostgreSQL: the block recorder",
        "The same load on a virtual disk with ext4, which is recorded with the files on it, and on an ext4 "
        "with a journal on a loop device over a file, in turn, each on a fresh clone.",
        figures,
    )


def _measures(*runs: PgbenchRuns) -> dict[str, Measure]:
    return {each.name: each.transactions_per_s for each in runs}


def test_postgresql_trial(place: PostgresqlLab, sheet: Sheet, tmp_path: Path) -> None:
    found = resolve(
        "postgresql", None, (), WORKLOAD, None, "strict", SEED, CLIENTS, SCALE, "default", 100_000
    )
    workload = found.family.watched(found.workload, place.supervisor)
    request = replace(found, engine=place.engine, workload=workload)
    plan = default_trial_plan(SECONDS, states=request.states, recorded=request.kind.recorded)
    figures = time_trials(place.lab, request, plan, TRIALS, OWN_S_MAX, tmp_path)
    sheet.add(
        "PostgreSQL: the time of a trial",
        f"Seconds of a trial of the defaults under `strict` ({WORKLOAD} at scale {SCALE}, {CLIENTS} clients, "
        f"{plan.measure.warmup_s:g} s of warm-up and {plan.measure.measure_s:g} s measured, for the "
        f"candidate and for the reference after it, {plan.record.operations} transactions recorded at scale "
        "1, "
        f"{sum(plan.few.values())} crash states). A run counts from its start to its kill, a recovery with "
        "its checks; duratune's own is the rest: cloning, killing, reading ledger and write log, rebuilding, "
        "judging, writing.",
        figures,
    )
