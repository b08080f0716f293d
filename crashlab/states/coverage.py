"""Which operations and events of a recorded run crash states fell into.

A state lies *inside* an operation that had begun at its position and not ended, and *after* the one that had
ended last. Of an event it lies *before* where the event had begun and no sync of it had, *inside* from then
until it was complete, and *after* where nothing has ended since. What a state was aimed at does not matter
here: every state counts wherever it lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crashlab.states.events import PHASES, Event, Phase
from crashlab.states.run_view import RunView

OPERATION_PHASES: tuple[Literal["inside", "after"], ...] = ("inside", "after")
NEVER = 2**62
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OperationCell:
    """One kind of operation on one role of file in one phase: how many there were, and the states there."""

    operation: str
    role: str
    phase: Phase
    operations: int
    states: int

    def __str__(self) -> str:
        return f"{self.operation} of {self.role} {self.phase}"


@dataclass(frozen=True)
class EventCell:
    """One event in one phase: how many of the events had that phase, and the states there."""

    event: str
    phase: Phase
    events: int
    states: int

    def __str__(self) -> str:
        return f"{self.event} {self.phase}"


@dataclass(frozen=True)
class Coverage:
    """Every cell of a run; ``event_states`` are the states at or in each event, each state counted once,
    and ``absent`` the events of the engine that the run did not have."""

    operations: tuple[OperationCell, ...]
    events: tuple[EventCell, ...]
    event_states: Mapping[str, int]
    absent: tuple[str, ...]

    @property
    def covered(self) -> int:
        """Operation cells with a state in them."""
        return sum(1 for cell in self.operations if cell.states)

    @property
    def missed(self) -> list[str]:
        """The cells without a state, the events' first."""
        cells: list[EventCell | OperationCell] = [*self.events, *self.operations]
        return [str(cell) for cell in cells if not cell.states]

    def as_json(self) -> dict[str, Any]:
        return {
            "covered": self.covered,
            "cells": len(self.operations),
            "operations": [asdict(cell) for cell in self.operations],
            "events": [asdict(cell) for cell in self.events],
            "event_states": dict(self.event_states),
            "missed": self.missed,
            "absent": list(self.absent),
        }


def coverage(view: RunView, positions: Sequence[int]) -> Coverage:
    """What these positions cover, one for each state: two states at one position are two."""
    at = np.array(positions, dtype=np.int64)
    last_ended = _last_ended(view, at)
    cells = []
    for each, operations in view.classes.items():
        begins = np.array([operation.begin for operation in operations], dtype=np.int64)
        ends = np.sort(np.array([operation.end for operation in operations], dtype=np.int64))
        # Those begun before the position less those ended before it are under way.
        inside = np.searchsorted(begins, at) > np.searchsorted(ends, at)
        found = {"inside": inside, "after": np.isin(last_ended, ends)}
        cells += [
            OperationCell(each.operation, each.role, phase, len(operations), int(found[phase].sum()))
            for phase in OPERATION_PHASES
        ]
    events, event_states = [], {}
    for name, happened in view.events.items():
        lies = {phase: _in_phase(happened, phase, at, last_ended) for phase in PHASES}
        for phase in PHASES:
            had = sum(1 for event in happened if event.positions(phase))
            if had:
                events.append(EventCell(name, phase, had, int(lies[phase].sum())))
        event_states[name] = int(np.logical_or.reduce(list(lies.values())).sum())
    absent = tuple(name for name in view.reader.event_names if name not in view.events)
    return Coverage(tuple(cells), tuple(events), event_states, absent)


def _last_ended(view: RunView, at: Integers) -> Integers:
    """For each position the end of the operation that had ended last there, -1 where none had."""
    found = [operation.end for operations in view.classes.values() for operation in operations]
    ends = np.sort(np.array([-1, *found], dtype=np.int64))
    return ends[np.searchsorted(ends, at) - 1]


def _in_phase(
    events: Sequence[Event], phase: Phase, at: Integers, last_ended: Integers
) -> npt.NDArray[np.bool_]:
    begin = np.array([event.begin for event in events], dtype=np.int64)
    first_sync = np.array([event.first_sync for event in events], dtype=np.int64)
    end = np.array([NEVER if event.end is None else event.end for event in events], dtype=np.int64)
    if phase == "after":
        return np.isin(last_ended, end)
    # One that begins with its first sync, or has none, is before it at that very position.
    opens = np.where(begin == first_sync, begin - 1, begin)
    low, high = (opens, first_sync) if phase == "before" else (first_sync, end)
    lies: npt.NDArray[np.bool_] = (low < at[:, None]) & (at[:, None] <= high)
    found: npt.NDArray[np.bool_] = np.any(lies, axis=1, keepdims=True)[:, 0]
    return found
