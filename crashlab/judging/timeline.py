"""When each position was: positions and CLOCK_MONOTONIC nanoseconds of one recorded run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crashlab.judging.oracle import NEVER, History
from crashlab.recording.write_log import Operation


class Timeline:
    """The clock of a run, read off its write log and its ledger."""

    def __init__(self, operations: Sequence[Operation], history: History) -> None:
        acked = history.end < NEVER
        logged = [(o.begin, o.begin_ns) for o in operations]
        logged += [(o.end, o.end_ns) for o in operations if o.end is not None and o.end_ns is not None]
        events = np.array(logged, dtype=np.int64).reshape(-1, 2)
        positions = np.concatenate([events[:, 0], history.begin, history.end[acked]])
        times = np.concatenate([events[:, 1], history.begin_ns, history.end_ns[acked]])
        order = np.argsort(positions, kind="stable")
        self._positions = positions[order]
        self._ns = np.maximum.accumulate(times[order]) if len(order) else times

    @property
    def last_position(self) -> int:
        """One past the last event: a crash there sees everything."""
        return int(self._positions[-1]) + 1 if len(self._positions) else 1

    def ns_at(self, position: int) -> int:
        """The time of the latest event before the position (0 where there is none)."""
        index = int(np.searchsorted(self._positions, position, side="left")) - 1
        return int(self._ns[index]) if index >= 0 else 0

    def position_at(self, ns: int) -> int:
        """The first position after the given time."""
        index = int(np.searchsorted(self._ns, ns, side="right"))
        return int(self._positions[index]) if index < len(self._positions) else self.last_position

    @property
    def span_ns(self) -> tuple[int, int]:
        """The times of the first and the last event."""
        return (int(self._ns[0]), int(self._ns[-1])) if len(self._ns) else (0, 0)
