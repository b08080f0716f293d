"""The lab: crash states judged per minute, and where the time of a trial goes."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import pytest

from crashlab.judging.judge import judge_states
from crashlab.recording.record import RecordPlan
from crashlab.validate import Lab, plan_all, split_states
from tests.bench.figures import Figure, Sheet
from tests.bench.trial_time import time_trials
from tuner.request import Request, resolve
from tuner.search.study_plan import default_trial_plan

pytestmark = pytest.mark.bench

STATES = 120
STATE_ROUNDS = 3
TRIALS, OWN_S_MAX = 3, 1.0
RECORDS = 50_000
SYNCED = "WriteOptions.sync=true"


def request_of(*sets: str) -> Request:
    return resolve("rocksdb", None, sets, "ycsb:a", None, "strict", 7, 16, None, "default", RECORDS)


def test_crash_states(lab: Lab, sheet: Sheet, tmp_path: Path) -> None:
    figures = []
    for name, sets in {"synced": (SYNCED,), "not synced": ()}.items():
        request = request_of(*sets)
        subject = request.subject()
        recording = lab.record(subject, request.contract, RecordPlan(), tmp_path / name, request.seed)
        assert recording.believable, recording.facts.faults
        planned = plan_all(recording, split_states(request.engine.controls, STATES), request.seed)
        per_minute, judging_s = [], []
        for _ in range(STATE_ROUNDS):
            begin_s = time.monotonic()
            recovered = lab.recover(recording, subject, planned)
            middle_s = time.monotonic()
            judged = list(judge_states(recording, recovered, request.contract))
            end_s = time.monotonic()
            assert [state.judgement.unknown_why for state in judged] == [""] * len(planned)
            # A recovery that ran into its deadline would be told as a slow lab, and is a wrong verdict.
            assert [one for one in recovered if not (one.recovered and one.recovered.recovered)] == []
            per_minute.append(60.0 * len(planned) / (end_s - begin_s))
            judging_s.append(1000.0 * (end_s - middle_s) / len(planned))
        met = median(per_minute) >= 600
        figures.append(Figure(f"states per minute, {name}", per_minute, "", ">= 600", met))
        figures.append(Figure(f"of it judging one state, {name}", judging_s, "ms"))
    sheet.add(
        "Crash states",
        f"{STATES} states of both models of a recorded run (YCSB A, 2000 records, "
        f"{RecordPlan().operations} operations): each rebuilt, recovered by RocksDB, read whole with the "
        "candidate's and with neutral settings, and judged.",
        figures,
    )


def test_the_time_of_a_trial(lab: Lab, sheet: Sheet, tmp_path: Path) -> None:
    request = request_of(SYNCED)
    plan = default_trial_plan(2.0, recorded=request.kind.recorded)
    figures = time_trials(lab, request, plan, TRIALS, OWN_S_MAX, tmp_path)
    sheet.add(
        "The time of a trial",
        f"Seconds of a trial under `strict` ({SYNCED}, {RECORDS} records, {plan.measure.warmup_s:g} s of "
        f"warm-up and {plan.measure.measure_s:g} s measured, for the candidate and for the reference after "
        f"it, {plan.record.operations} recorded operations, {sum(plan.few.values())} crash states). A run "
        "counts from its start to its kill, opening included; duratune's own is the rest: cloning, killing, "
        "reading ledger and write log, rebuilding, judging, writing.",
        figures,
    )
