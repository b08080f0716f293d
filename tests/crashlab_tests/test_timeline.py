"""Positions and times of a run, told by its write log and its ledger together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crashlab.judging.timeline import Timeline
from crashlab.recording.write_log import Kind
from tests.crashlab_tests.histories import W, history
from tests.crashlab_tests.tapes import MILLISECOND, Tape


def timeline() -> Timeline:
    """A create at 1 and 2, an open write at 3, a client's write from 5 to 8, one unanswered at 6."""
    tape = Tape()
    tape.create("a", 1)
    tape.add(Kind.WRITE, 1, data=b"x", answered=False)
    return Timeline(tape.operations, history([W(1, 0, 5, 8), W(2, 0, 6, None)]))


def test_the_time_at_a_position_is_that_of_the_event_before_it() -> None:
    wanted = {1: 0, 2: 1, 3: 2, 4: 3, 5: 3, 6: 5, 7: 6, 8: 6, 9: 8, 100: 8}
    assert {position: timeline().ns_at(position) for position in wanted} == {
        position: ms * MILLISECOND for position, ms in wanted.items()
    }


def test_the_position_at_a_time_sees_everything_until_then() -> None:
    found = timeline()
    assert found.position_at(0) == 1
    assert found.position_at(3 * MILLISECOND) == 5
    assert found.position_at(4 * MILLISECOND) == 5
    assert found.position_at(8 * MILLISECOND) == found.last_position == 9
    assert found.span_ns == (MILLISECOND, 8 * MILLISECOND)


def test_an_empty_run_has_a_timeline() -> None:
    empty = Timeline([], history([]))
    assert (empty.last_position, empty.ns_at(5), empty.position_at(5), empty.span_ns) == (1, 0, 1, (0, 0))


@given(st.lists(st.integers(0, 50), min_size=2, max_size=20))
def test_time_never_goes_back(times: list[int]) -> None:
    """A thread may be stopped between taking its position and reading the clock."""
    operations = []
    for position, ms in enumerate(times, start=1):
        operation = Tape().add(Kind.WRITE, 1, at=(position, None), data=b"x")
        object.__setattr__(operation, "begin_ns", ms * MILLISECOND)
        operations.append(operation)
    found = Timeline(operations, history([]))
    seen = [found.ns_at(position) for position in range(1, len(times) + 2)]
    assert seen == sorted(seen)
    for position in range(1, len(times) + 2):
        assert found.position_at(found.ns_at(position)) >= position
