"""Double states: what they are, which states are crashed again, and where; judged by the first cut."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashlab.judging.evidence import Terms
from crashlab.judging.judge import RecoveredState, judge_states
from crashlab.judging.verdict import Verdict
from crashlab.models import MODELS
from crashlab.models.partial import PartialModel
from crashlab.recording.recorded import Logged
from crashlab.states.double import (
    DOUBLE,
    SECONDS_MAX,
    DoubleState,
    choose_firsts,
    double_share,
    plan_seconds,
)
from crashlab.states.plan import PlannedState
from engines.rocksdb.log_reader import RocksdbLogReader
from knobs.contract import Contract
from tests.crashlab_tests.runs import facts, recorded_log, recording, recovered
from tests.crashlab_tests.tapes import Tape
from tests.crashlab_tests.test_evidence import END, SHORT, WHOLE, evidence
from tests.crashlab_tests.test_judge import LATER

STRICT = Contract("strict")
ALL = ("cache", "synced", "torn", "torn-512", "reordered", "synced-posix")
SINGLE = st.sampled_from(list(MODELS))


def single(model: str, position: int = 7, why: str = "a test") -> PlannedState:
    return PlannedState(model, position, 1, "uniform", why)


def double(first: str, second: str, position: int = 7) -> DoubleState:
    return DoubleState(single(first, position), PlannedState(second, 97, 5, "recovery", "the end"))


def recovery() -> Logged:
    """RocksDB's: a table and a MANIFEST are written and synced, CURRENT is renamed, the log removed."""
    tape = Tape()
    tape.create("db/000004.log", 1)
    tape.write(1, 0, b"log")
    first_position = tape.position
    tape.create("db/000009.sst", 2)
    tape.write(2, 0, b"t" * 500)
    tape.fsync(2)
    tape.create("db/MANIFEST-000010", 3)
    tape.write(3, 0, b"manifest")
    tape.fsync(3)
    tape.fsync(3)
    tape.create("db/000010.dbtmp", 4)
    tape.write(4, 0, b"MANIFEST-000010")
    tape.fsync(4)
    tape.rename("db/000010.dbtmp", "db/CURRENT", 4)
    tape.fsync_folder()
    tape.unlink("db/000004.log", 1)
    tape.unlink("db/000003.sst", 9)
    made = object.__new__(Logged)
    made.folder, made.reader, made.facts = (
        Path("nowhere"),
        RocksdbLogReader(),
        facts(first_position=first_position),
    )
    made.__dict__.update(disk=tape.disk())
    return made


# What they are.


def test_a_double_state_is_named_by_both_of_its_crashes() -> None:
    state = DoubleState(
        PlannedState("torn", 81234, 5, "uniform", "a moment"),
        PlannedState("synced", 97, 6, "recovery", "the end of the recovery"),
    )
    assert state.id == "torn@81234#5>synced@97#6"
    assert (state.model, state.group, state.position) == ("torn>synced", DOUBLE, 81234)
    assert (state.source, state.why) == ("recovery", "the end of the recovery, from: a moment")


@given(SINGLE, SINGLE)
def test_it_is_what_the_harder_of_the_two_is(first: str, second: str) -> None:
    state = double(first, second)
    both = MODELS[first], MODELS[second]
    assert (state.crash == "power-cut") is any(model.crash == "power-cut" for model in both)
    assert state.draws is any(model.draws for model in both)
    assert (state.metadata == "posix") is any(model.metadata == "posix" for model in both)


@pytest.mark.parametrize(("total", "share"), [(3, 0), (19, 0), (20, 2), (30, 3), (60, 6), (300, 30)])
def test_a_tenth_of_many_states_is_double(total: int, share: int) -> None:
    assert double_share(total) == share


# Which are crashed again.


def test_states_with_most_to_replay_come_first_and_every_model_in_turn() -> None:
    held = [
        (single("torn", 1), 900),
        (single("cache", 2), 100),
        (single("cache", 3), 300),
        (single("synced", 4), 200),
        (single("synced-posix", 5), 999),
    ]
    chosen = choose_firsts(held, 4 * SECONDS_MAX)
    assert [(state.model, state.position) for state in chosen] == [
        ("cache", 3),
        ("synced", 4),
        ("torn", 1),
        ("cache", 2),
    ]
    # What is drawn is not the only one: what breaks behind it hangs on the draw.
    assert choose_firsts(held, 1) == choose_firsts(held, SECONDS_MAX) == chosen[:1]
    assert choose_firsts([], 3) == []


# Where.


def test_of_few_crashes_each_kind_of_moment_is_one() -> None:
    log = recovery()
    planned = plan_seconds(log, ALL, 5, 1)
    assert len({state.id for state in planned}) == 5
    last = log.disk.last_position + 1
    assert PlannedState("synced", last, 1, "recovery", "the end of the recovery") in planned
    (removed,) = [s for s in planned if MODELS[s.model].draws and s.why == "after the unlink of wal"]
    model = MODELS[removed.model]
    assert isinstance(model, PartialModel)
    # The log is gone, and of what is to replace it only what was synced and one piece is there.
    how = model.how(removed.position, removed.seed)
    assert (how.names, how.scope) == ("most", "one kept")
    image = model.image(log.disk, log.horizons, removed.position, removed.seed)
    assert "db/000004.log" not in image.files and "db/000009.sst" in image.files
    before = [state for state in planned if state.why == "before a sync of table covers 500 bytes"]
    assert {state.model for state in before} >= {"synced"}
    assert any(state.model == "cache" for state in planned)
    image = MODELS["synced"].image(log.disk, log.horizons, before[0].position, 1)
    assert "db/000009.sst" not in image.files, "its sync has not ended"


def test_only_what_a_recovery_does_is_crashed_and_what_covers_nothing_is_no_moment() -> None:
    log = recovery()
    planned = plan_seconds(log, ALL, 1_000, 1)
    assert all(state.position > log.facts.first_position for state in planned)
    assert all(left.position <= right.position for left, right in pairwise(planned))
    assert not any("of other" in state.why or "covers 0" in state.why for state in planned)
    # The second sync of the MANIFEST covers nothing; no recovery begins with a table that goes.
    assert len({s.position for s in planned if "sync of manifest" in s.why}) == 1
    assert {s.why for s in planned if s.why.startswith("after")} == {
        "after the unlink of wal",
        "after the rename of current",
    }
    assert {state.model for state in planned} == {*ALL} - {"synced-posix"}


def test_recoveries_of_one_run_are_crashed_in_different_ways() -> None:
    plans = [plan_seconds(recovery(), ALL, 3, 1, place) for place in range(4)]
    assert len({tuple(state.id for state in plan) for plan in plans}) > 2
    assert all(any(state.why == "the end of the recovery" for state in plan) for plan in plans)


@given(st.integers(1, 40), st.integers(0, 2**31), st.integers(0, 9), st.sets(SINGLE, min_size=1))
@settings(max_examples=40, deadline=None)
def test_a_plan_keeps_its_budget_and_repeats_itself(
    states: int, seed: int, place: int, models: set[str]
) -> None:
    names = sorted(models)
    planned = plan_seconds(recovery(), names, states, seed, place)
    assert len(planned) <= states
    assert len({(state.model, state.position) for state in planned}) == len(planned)
    assert {state.model for state in planned} <= models
    assert planned == plan_seconds(recovery(), names, states, seed, place)


# How they are judged.


def test_acknowledgements_before_the_first_cut_count_and_no_others() -> None:
    tape, log_map = recorded_log(LATER)
    made = recording(tape.disk(), LATER, log_map)
    for position, acks in ((23, 1), (25, 2)):
        state = RecoveredState(double("synced", "cache", position), recovered(WHOLE))
        (found,) = judge_states(made, [state], STRICT)
        assert found.judgement.acks == acks
        # A state of its own log is no `synced` state of the run's.
        assert found.disagreement is None


def test_double_states_count_as_any_other() -> None:
    broken = RecoveredState(double("cache", "synced", END), recovered(SHORT))
    held = RecoveredState(double("cache", "cache", END), recovered(WHOLE))
    verdict = evidence(broken, held, synced=True).under(Terms(STRICT))
    assert (verdict.power_cut.verdict, verdict.power_cut.seen_in) == (Verdict.BROKEN, broken.planned.id)
    assert verdict.process_crash.verdict is Verdict.HELD
    summary = verdict.models[DOUBLE]
    assert (summary.verdict, summary.states, summary.uniform) == (Verdict.BROKEN, 2, 0)


def test_a_failure_of_the_lab_decides_nothing() -> None:
    lost = RecoveredState(double("cache", "synced", END), None, "the recovery from x: not believed")
    verdict = evidence(lost, synced=True).under(Terms(STRICT))
    assert verdict.models[DOUBLE].verdict is Verdict.UNKNOWN
