"""What states cover: every cell counted as it can be counted by hand, and what is told of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashlab.states.coverage import Coverage, coverage
from crashlab.states.disk import SYNC_OF_A_FOLDER, SYNCS
from crashlab.states.events import Event
from crashlab.states.plan import plan_models
from crashlab.states.run_view import RunView
from tests.crashlab_tests.test_events import flush_and_compaction, view_of
from tests.crashlab_tests.test_plan import view as busy_view
from tuner.report.coverage import MISSED_MAX, coverage_lines

RUN = view_of(flush_and_compaction())
BUSY = busy_view(puts=60)


def operation_states(run: RunView, positions: list[int]) -> dict[tuple[str, str], int]:
    """The states of each cell of operations, each operation looked at for each state."""
    told = {
        operation.begin: str(each) for each, operations in run.classes.items() for operation in operations
    }
    load = [each for each in run.disk.operations if each.begin in told]
    found = {(label, phase): 0 for label in told.values() for phase in ("inside", "after")}
    for position in positions:
        ended = [each for each in load if each.end is not None and each.end < position]
        inside = {told[each.begin] for each in load if each.begin < position and each not in ended}
        last = max(ended, key=lambda each: each.end or 0, default=None)
        for label in inside:
            found[label, "inside"] += 1
        if last is not None:
            found[told[last.begin], "after"] += 1
    return found


def in_phase(run: RunView, event: Event, phase: str, position: int) -> bool:
    """Whether a state lies in a phase of one event."""
    if phase == "before":
        return position == event.first_sync or event.begin < position <= event.first_sync
    if phase == "inside":
        return event.first_sync < position and (event.end is None or position <= event.end)
    ends = [each.end for operations in run.classes.values() for each in operations if each.end is not None]
    return event.end is not None and max((end for end in ends if end < position), default=-1) == event.end


@given(st.sampled_from([RUN, BUSY]), st.data())
@settings(max_examples=60, deadline=None)
def test_every_cell_is_what_is_counted_by_hand(run: RunView, data: st.DataObject) -> None:
    last = run.timeline.last_position
    positions = data.draw(st.lists(st.integers(run.first_position + 1, last), max_size=20))
    found = coverage(run, positions)
    cells = {(f"{cell.operation} of {cell.role}", cell.phase): cell.states for cell in found.operations}
    assert cells == operation_states(run, positions)
    for cell in found.events:
        happened = run.events[cell.event]
        lies = [any(in_phase(run, each, cell.phase, position) for each in happened) for position in positions]
        assert cell.states == sum(lies)


def test_the_cells_say_how_many_operations_there_were_and_name_what_has_no_state() -> None:
    (table, *_) = [cell for cell in coverage(RUN, []).operations if cell.role == "table"]
    assert (table.operation, table.operations, table.states) == ("create", 2, 0)
    found = coverage(RUN, [operation.begin + 1 for operation in RUN.disk.operations])
    by_phase = {cell.states > 0 for cell in found.operations if cell.phase == "inside"}
    assert by_phase == {True} and all(" inside" not in name for name in found.missed if " of " in name)
    assert coverage(RUN, []).covered == 0 and len(coverage(RUN, []).missed) == len(found.operations) + 9
    assert set(found.absent) == {"recycle", "manifest roll"}


def test_syncs_of_folders_are_a_class_of_their_own() -> None:
    syncs = [each for each in RUN.disk.operations if each.kind in SYNCS and each.flags & SYNC_OF_A_FOLDER]
    (found,) = [operations for each, operations in RUN.classes.items() if each.role == "folder"]
    assert list(found) == syncs


def test_a_state_counts_once_for_an_event_in_whichever_phases_it_lies() -> None:
    flush, compaction = RUN.events["memtable flush"][0], RUN.events["compaction install"][0]
    assert flush.end is not None
    found = coverage(RUN, [flush.first_sync, flush.first_sync + 1, flush.end + 1, compaction.first_sync])
    assert found.event_states == {"WAL switch": 0, "memtable flush": 3, "compaction install": 1}


def test_just_before_an_event_that_has_no_sync_is_before_it() -> None:
    (switch,) = RUN.events["WAL switch"]
    found = [
        [cell.states for cell in coverage(RUN, [position]).events if cell.event == "WAL switch"]
        for position in (switch.begin - 1, switch.begin, switch.begin + 1, switch.begin + 2)
    ]
    assert found == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize("seed", range(4))
def test_enough_states_cover_everything(seed: int) -> None:
    """Without aim they would not: the classes are few operations among many writes."""
    shares = {"cache": 60, "synced": 60, "torn": 60, "reordered": 60}
    planned = [state.position for state in plan_models(BUSY, shares, seed)]
    assert coverage(BUSY, planned).missed == []


def test_what_was_covered_is_told_in_two_lines_and_in_json() -> None:
    none = coverage(RUN, [])
    first, second = coverage_lines(none)
    assert first.startswith(f"coverage       0 of {len(none.operations)} (operation x role x phase); ")
    assert "memtable flush 0" in first
    assert f" and {len(none.missed) - MISSED_MAX} more; not in this run: recycle, manifest roll" in second
    document = json.loads(json.dumps(none.as_json()))
    assert document["missed"] == none.missed and document["cells"] == len(document["operations"])
    assert {"operation", "role", "phase", "operations", "states"} == set(document["operations"][0])
    assert {"event", "phase", "events", "states"} == set(document["events"][0])
    (only,) = coverage_lines(Coverage((), (), {}, ()))
    assert only == "coverage       0 of 0 (operation x role x phase)"
