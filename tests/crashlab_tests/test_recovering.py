"""States recovered in their order: those of one content once, as many as there is time for."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from crashlab.judging.judge import Budget, RecoveredState, judge_states, recover_states
from crashlab.states.plan import PlannedState
from engines.scratch import Scratch
from knobs.contract import Contract
from tests.crashlab_tests.histories import W, history, rows
from tests.crashlab_tests.runs import recorded_log, recording, recovered
from workloads.workload import Recovered

STRICT = Contract("strict")
LATER = history([W(1, 0, 21, 22), W(1, 1, 23, 24)], initial_records=3)
WHOLE = rows((0, 1, 1), (1, 1, 2), (2, 0, 3))


class Recoveries:
    """Subjects whose recovery is counted: what a folder holds is read by nobody."""

    def __init__(self, folder: Path, takes_s: float = 0.0) -> None:
        self.tape, self.log_map = recorded_log(LATER)
        self.made = recording(self.tape.disk(), LATER, self.log_map)
        self.made.folder = folder / "recording"
        (self.made.folder / "base").mkdir(parents=True)
        self.parent = folder / "parent"
        self.parent.mkdir()
        self.count = itertools.count()
        self.done: list[int] = []
        self.takes_s = takes_s

    def verify(self, *_: object, **__: object) -> Recovered:
        self.done.append(next(self.count))
        time.sleep(self.takes_s)
        return recovered(WHOLE, recovery_s=float(len(self.done)))

    def recover(
        self, planned: Iterable[PlannedState], budget: Budget | None = None, verify: Any = None
    ) -> list[RecoveredState]:
        subject = MagicMock()
        subject.engine.runs_as, subject.engine.recovers_in_memory = None, False
        subject.workload.verifier.return_value.__enter__.return_value.verify = verify or self.verify
        with Scratch() as scratch:
            return recover_states(self.made, subject, planned, scratch, self.parent, budget=budget)


def cache_at(*positions: int) -> list[PlannedState]:
    return [PlannedState("cache", position, 1, "uniform", "") for position in positions]


def test_states_of_one_content_are_recovered_once_and_judged_each_at_its_own_position(tmp_path: Path) -> None:
    runs = Recoveries(tmp_path)
    planned = [*cache_at(23, 24, 25), PlannedState("synced", 25, 1, "uniform", ""), *cache_at(7)]
    found = runs.recover(planned)
    assert [state.planned for state in found] == planned
    assert [state.same_as for state in found] == ["", "cache@23#1", "cache@23#1", "", ""]
    assert len(runs.done) == 3
    assert found[0].recovered is found[1].recovered is found[2].recovered is not found[3].recovered
    # What a later one holds with right is from after the first one's cut.
    judged = list(judge_states(runs.made, found[:3], STRICT))
    assert [state.same_as for state in judged] == ["", "cache@23#1", "cache@23#1"]
    assert [state.judgement.acks for state in judged] == [1, 1, 2]
    assert ["phantom" in state.judgement.reasons for state in judged] == [True, False, False]


def test_a_failed_recovery_decides_nothing_of_any_state_of_its_content(tmp_path: Path) -> None:
    def verify(*_: object, **__: object) -> Recovered:
        raise OSError("no room")

    found = Recoveries(tmp_path).recover(cache_at(23, 24), verify=verify)
    assert [state.failure for state in found] == ["OSError: no room"] * 2
    assert [state.same_as for state in found] == ["", "cache@23#1"]


def test_what_cannot_be_built_is_the_failure_of_that_state_alone(tmp_path: Path) -> None:
    runs = Recoveries(tmp_path)
    broken = replace(cache_at(24)[0], model="no such model")
    found = runs.recover([*cache_at(23), broken, *cache_at(25)])
    assert ["KeyError" in state.failure for state in found] == [False, True, False]
    assert [state.same_as for state in found] == ["", "", "cache@23#1"]


def endless(asked: list[int]) -> Iterator[PlannedState]:
    """States that all differ, as many as there are writes, and then all the same."""
    for number in itertools.count(1):
        asked.append(number)
        yield from cache_at(number)


def test_without_time_the_first_are_recovered_all_the_same(tmp_path: Path) -> None:
    runs, asked = Recoveries(tmp_path), list[int]()
    found = runs.recover(endless(asked), Budget(1e-9, 4))
    assert [state.planned.position for state in found] == [1, 2, 3, 4] and len(asked) == 4


def test_when_the_time_is_over_what_is_under_way_is_finished_and_nothing_is_begun(tmp_path: Path) -> None:
    runs, asked = Recoveries(tmp_path, takes_s=0.2), list[int]()
    found = runs.recover(endless(asked), Budget(0.5, 1))
    assert [state.planned.position for state in found] == list(range(1, len(found) + 1))
    assert len(asked) == len(found) and all(state.recovered for state in found)


def test_states_that_end_before_their_time_are_all_there(tmp_path: Path) -> None:
    planned = cache_at(1, 2, 3, 4, 5)
    assert [state.planned for state in Recoveries(tmp_path).recover(planned, Budget(3_600.0, 1))] == planned
