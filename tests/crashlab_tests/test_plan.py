"""The plan of crash states: reproducible, likeliest first, from every source, the models side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashlab.models import MODELS
from crashlab.models.covering import changes_before
from crashlab.models.partial import PartialModel
from crashlab.recording.write_log import Kind
from crashlab.states.plan import plan_models, plan_states
from crashlab.states.run_view import RunView
from crashlab.validate import split_states
from engines.engine import LogMap, LogOrder, LogPlace
from tests.crashlab_tests.histories import W, history
from tests.crashlab_tests.runs import recording
from tests.crashlab_tests.tapes import Tape


def view(puts: int = 200, syncs: bool = True) -> RunView:
    """A run with a log, tables, renames and another log; a sync after every tenth write."""
    tape = Tape()
    tape.create("db/000001.log", 1)
    tape.fsync_folder()
    first_position = tape.position
    writes, places = [], []
    for number in range(puts):
        begin = tape.begin()
        tape.write(1, 10 * number, b"0123456789")
        writes.append(W(1, number, begin, tape.begin()))
        places.append(LogPlace(1, number + 1, 0, 10 * (number + 1)))
        if syncs and number % 10 == 9:
            tape.fdatasync(1)
        if number == 30:
            tape.create("db/000002.log", 2)
            tape.write(2, 0, b"0123456789")
            tape.fdatasync(2)
        if number % 50 == 25:
            inode = 100 + number
            tape.create(f"db/{number:06d}.sst", inode)
            tape.write(inode, 0, b"table")
            tape.fsync(inode)
            tape.create(f"db/{number:06d}.dbtmp", inode + 1000)
            tape.rename(f"db/{number:06d}.dbtmp", "db/CURRENT", inode + 1000)
    log_map = LogMap(places, [LogOrder(0, 1)], [])
    return recording(tape.disk(), history(writes), log_map, first_position=first_position).view


@pytest.fixture(scope="module")
def run() -> RunView:
    return view()


@pytest.mark.parametrize("states", [6, 10, 30])
@pytest.mark.parametrize("model", ["cache", "synced", "torn", "reordered"])
def test_every_source_has_its_share(run: RunView, model: str, states: int) -> None:
    planned = plan_states(run, model, states, 1)
    assert len(planned) == states
    shares = Counter(state.source for state in planned)
    assert {"exposure", "event", "operation", "uniform"} <= set(shares)
    assert shares["uniform"] >= states // 6 and shares["event"] + shares["operation"] >= states // 4


def test_fewer_states_of_a_model_are_the_first_of_more(run: RunView) -> None:
    for model in MODELS:
        more = plan_states(run, model, 60, 7)
        assert all(plan_states(run, model, states, 7) == more[:states] for states in (1, 2, 5, 20, 59))


SHARES = {"cache": 10, "synced": 5, "torn": 5, "synced-posix": 3}


def test_the_models_go_side_by_side_the_first_of_each_before_all_others(run: RunView) -> None:
    together = list(plan_models(run, SHARES, 3))
    assert [state.model for state in together[: len(SHARES)]] == list(SHARES)
    for model, share in SHARES.items():
        own = [state for state in together if state.model == model]
        assert own == plan_states(run, model, share, 3)
    for judged in range(len(SHARES), len(together)):
        counts = Counter(state.model for state in together[:judged])
        done = [counts[model] / share for model, share in SHARES.items()]
        # A state's own share of its model is the most by which that can be ahead.
        assert max(done) - min(done) <= 1 / min(SHARES.values())
    assert list(plan_models(run, SHARES, 3)) == together


def test_a_plan_is_made_as_far_as_it_is_asked_for(run: RunView) -> None:
    endless = plan_models(run, dict.fromkeys(MODELS, 10**9), 3)
    assert len({next(endless).id for _ in range(100)}) == 100


def test_the_end_of_the_run_and_the_widest_window_are_always_looked_at(run: RunView) -> None:
    chosen = [state.position for state in plan_states(run, "synced", 3, 1)]
    (widest,) = run.audit.peaks(run.timeline, 1)
    assert chosen[:2] == [widest.position, run.timeline.last_position]


def test_of_few_states_that_tear_writes_the_first_is_where_most_are_unsynced(run: RunView) -> None:
    data = replace(run, role=lambda _: "relation")
    (only,) = plan_states(data, "torn", 1, 1)
    assert (only.source, only.position) == ("unsynced", data.unsynced[0][0])
    assert {state.source for state in plan_states(data, "torn", 4, 1)} >= {"unsynced", "exposure"}


@given(st.integers(1, 60), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_a_plan_keeps_its_budget_and_repeats_itself(states: int, seed: int) -> None:
    run = RUN
    planned = plan_states(run, "cache", states, seed)
    assert planned == plan_states(run, "cache", states, seed)
    assert 1 <= len(planned) <= states
    assert len({state.id for state in planned}) == len(planned)
    assert all(run.first_position < state.position <= run.timeline.last_position for state in planned)


RUN = view(puts=60)


def test_other_seeds_and_models_draw_other_moments(run: RunView) -> None:
    plans = [
        tuple(state.position for state in plan_states(run, model, 30, seed))
        for model in ("cache", "synced")
        for seed in range(5)
    ]
    assert len(set(plans)) == len(plans)


def test_operations_are_those_that_a_position_is_inside_of_or_just_after(run: RunView) -> None:
    aimed = [
        state
        for seed in range(10)
        for state in plan_states(run, "cache", 60, seed)
        if state.source == "operation"
    ]
    kinds = set()
    for state in aimed:
        where, label = state.why.split(" a ")
        kinds.add(label)
        kind = Kind[label.split(" of ")[0].upper()]
        at = next(ops for each, ops in run.classes.items() if str(each) == label)
        assert all(operation.kind is kind for operation in at)
        if where == "inside":
            assert any(o.begin < state.position <= (o.end or 0) for o in at)
        else:
            assert any(state.position == (o.end or 0) + 1 for o in at)
    assert {
        "write of wal",
        "write of table",
        "rename of current",
        "create of table",
        "fdatasync of wal",
    } <= kinds


def test_a_run_with_few_events_is_still_planned() -> None:
    short = view(puts=3, syncs=False)
    assert len(plan_states(short, "synced", 5, 1)) == 5


@pytest.mark.parametrize("total", [3, 4, 10, 30, 100])
@pytest.mark.parametrize("models", [["cache", "synced"], ["cache", "synced", "torn"]])
def test_the_models_share_the_states(models: list[str], total: int) -> None:
    share = split_states(models, total)
    assert set(share) == set(models)
    assert sum(share.values()) == total and min(share.values()) >= 1


CUTS = ["cache", "synced", "torn", "reordered", "synced-posix", "torn-posix"]


@pytest.mark.parametrize("total", [10, 30, 100])
def test_a_tenth_warns_of_names_that_only_a_journal_keeps(total: int) -> None:
    share = split_states(CUTS, total)
    assert share["synced-posix"] == total // 10 and "torn-posix" not in share
    assert sum(share.values()) == total
    assert max(share[name] - share["reordered"] for name in ("synced", "torn")) <= 1


@pytest.mark.parametrize("total", [6, 10, 30, 100])
def test_where_they_were_asked_for_every_model_has_its_share(total: int) -> None:
    share = split_states(CUTS, total, "posix")
    assert set(share) >= set(CUTS[:4]) and sum(share.values()) == total
    cuts = [share.get(name, 0) for name in CUTS[1:]]
    assert max(cuts) - min(cuts) <= 1


def test_of_fewer_states_than_models_the_last_ones_get_none() -> None:
    assert split_states(CUTS, 3) == {"cache": 1, "synced": 1, "torn": 1}


def crossing(syncs_first: bool) -> RunView:
    """A log that is written after another, which is not synced before it is removed."""
    tape = Tape()
    tape.create("db/000001.log", 1)
    tape.fsync_folder()
    first_position = tape.position
    tape.write(1, 0, b"x" * 100)
    if syncs_first:
        tape.fdatasync(1)
    tape.create("db/000002.log", 2)
    for number in range(50):
        tape.write(2, 100 * number, b"y" * 100)
    tape.unlink("db/000001.log", 1)
    for number in range(50, 100):
        tape.write(2, 100 * number, b"y" * 100)
    past = history([W(1, 0, tape.begin(), tape.begin())])
    return recording(tape.disk(), past, first_position=first_position).view


@pytest.mark.parametrize("model", ["torn", "reordered"])
def test_the_moments_are_aimed_at_when_two_logs_are_not_synced(model: str) -> None:
    run = crossing(syncs_first=False)
    ((begin, end),) = run.crossings
    aimed = [state for state in plan_states(run, model, 20, 1) if state.source == "logs"]
    assert len(aimed) >= 5 and all(begin <= state.position <= end for state in aimed)
    chosen = MODELS[model]
    assert isinstance(chosen, PartialModel)
    drawn = {chosen.how(state.position, state.seed) for state in aimed}
    assert {(how.scope, how.share, how.names) for how in drawn} == {("file", 1 / 2, "least")}
    assert [state for state in plan_states(run, "synced", 20, 1) if state.source == "logs"] == []


def test_a_log_that_is_synced_before_the_next_one_is_no_such_moment() -> None:
    assert crossing(syncs_first=True).crossings == []


def test_what_is_unsynced_at_a_sync_is_what_no_sync_had_covered(run: RunView) -> None:
    tape = Tape()
    for inode in (1, 2):
        tape.create(f"db/{inode:06d}.sst", inode)
    tape.write(1, 0, b"one")
    tape.write(2, 0, b"two")
    first, second = tape.fsync(1), tape.fsync(2)
    past = history([W(1, 0, tape.begin(), tape.begin())])
    short = replace(recording(tape.disk(), past).view, role=lambda _: "relation")
    # The second begins at the very position from which the first is done.
    assert second.begin == (first.end or 0) + 1
    assert short.unsynced == [(first.begin, 2), (second.begin, 1)]
    data = replace(run, role=lambda _: "relation")
    for position, writes in data.unsynced:
        assert writes == sum(
            change.kind is Kind.WRITE and not is_durable
            for file in run.disk.files
            for change, is_durable in changes_before(file, run.horizons, position, position)
        )
