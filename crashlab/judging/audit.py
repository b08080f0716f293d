"""The audit: for every acknowledgement, whether its bytes were durable when it was given.

A necessary condition, checked by offsets: the log record that carries the write, every earlier byte
of that log, and every older log still needed must lie inside completed syncs. A write is durable
too once a released log (a flush whose manifest edit is synced) makes its log unnecessary.

The audit aims the crash states and explains what they show; it gives no verdict. What it cannot
locate counts as unlocated, never as covered or exposed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from crashlab.judging.oracle import NEVER, Booleans, History, Integers, recovered_index
from crashlab.judging.timeline import Timeline
from crashlab.judging.verdict import CrashKind
from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import written_bytes
from crashlab.states.horizon import Horizons
from crashlab.states.lives import Life
from engines.engine import LogMap, LogPlace


@dataclass(frozen=True)
class Peak:
    """A position where acknowledgements stood exposed: how many, and since when the oldest."""

    position: int
    exposed: int
    window_ms: float


@dataclass(frozen=True)
class Audit:
    """For each row of the history: up to which position its bytes were in the engine's memory alone, and
    from which they were written, and were durable.

    NEVER in ``unwritten_to`` and ``written_from`` of an unlocated row; in ``covered_from`` of one that no
    sync covered.
    """

    history: History
    located: Booleans
    unwritten_to: Integers
    written_from: Integers
    covered_from: Integers
    opaque: str

    @property
    def acks(self) -> int:
        return int(np.count_nonzero(self.history.acknowledged))

    @property
    def covered(self) -> int:
        """Acknowledgements whose bytes were durable before they were given."""
        return int(np.count_nonzero(self._acked_and_located & (self.covered_from <= self.history.end)))

    @property
    def exposed(self) -> int:
        """Acknowledgements given before their bytes were durable."""
        return int(np.count_nonzero(self._acked_and_located & (self.covered_from > self.history.end)))

    @property
    def unwritten(self) -> int:
        """Acknowledgements given while their bytes lay in the engine's own memory only."""
        return int(np.count_nonzero(self._acked_and_located & (self.written_from > self.history.end)))

    @property
    def unlocated(self) -> int:
        return int(np.count_nonzero(self.history.acknowledged & ~self.located))

    @property
    def _acked_and_located(self) -> Booleans:
        return self.history.acknowledged & self.located

    def exposed_at(self, position: int, crash: CrashKind = "power-cut") -> Booleans:
        """Which acknowledged and located writes this crash at the position must lose, a cut in `synced`."""
        exposed = (self.history.end < position) & (position <= self._exposed_to(crash))
        return self._acked_and_located & exposed

    def _exposed_to(self, crash: CrashKind) -> Integers:
        """The last position at which each write is lost by this crash, acknowledged or not."""
        return self.covered_from - 1 if crash == "power-cut" else self.unwritten_to

    def covered_at(self, position: int) -> Booleans:
        """Which acknowledged and located writes a power cut at the position must keep."""
        return self._acked_and_located & (self.history.end < position) & (self.covered_from <= position)

    def peaks(self, timeline: Timeline, count: int, crash: CrashKind = "power-cut") -> list[Peak]:
        """The positions with the widest windows of exposure to this crash, widest first.

        Each is the moment just before a sync ends that covers something (for a process crash: just before a
        write begins that brings something to the file), or the end of the run.
        """
        exposed_to = self._exposed_to(crash)
        ever_exposed = self._acked_and_located & (self.history.end < exposed_to)
        moments = np.unique(np.minimum(exposed_to[ever_exposed], timeline.last_position))
        acked, ended = self.history.end[ever_exposed], exposed_to[ever_exposed]
        counts = np.searchsorted(np.sort(acked), moments) - np.searchsorted(np.sort(ended), moments)
        oldest = _oldest_at(moments, acked, ended, self.history.end_ns[ever_exposed])
        peaks = [
            Peak(moment, exposed, (timeline.ns_at(moment) - oldest_ns) / 1e6)
            for moment, exposed, oldest_ns in zip(moments.tolist(), counts.tolist(), oldest, strict=True)
        ]
        return sorted(peaks, key=lambda peak: (-peak.window_ms, peak.position))[:count]

    def peak_at(self, position: int, timeline: Timeline, crash: CrashKind = "power-cut") -> Peak:
        """How many acknowledgements stand exposed to this crash at a position, over which window."""
        exposed = self.exposed_at(position, crash)
        if not exposed.any():
            return Peak(position, 0, 0.0)
        window_ms = (timeline.ns_at(position) - int(self.history.end_ns[exposed].min())) / 1e6
        return Peak(position, int(np.count_nonzero(exposed)), window_ms)


def _oldest_at(moments: Integers, acked: Integers, exposed_to: Integers, acked_ns: Integers) -> list[int]:
    """For each of the ascending moments the earliest time of the acknowledgements that stand exposed there;
    each of them has one, for it is where an exposure ends.

    One sweep, because a run of fifty thousand writes has as many moments.
    """
    order = np.argsort(acked, kind="stable")
    coming = zip(acked[order].tolist(), exposed_to[order].tolist(), acked_ns[order].tolist(), strict=True)
    waiting = next(coming, None)
    open_now: list[tuple[int, int]] = []
    oldest = []
    for moment in moments.tolist():
        while waiting is not None and waiting[0] < moment:
            heappush(open_now, (waiting[2], waiting[1]))
            waiting = next(coming, None)
        while open_now[0][1] < moment:
            heappop(open_now)
        oldest.append(open_now[0][0])
    return oldest


@dataclass(frozen=True)
class Disagreement:
    """Where a `synced` state and the audit do not agree at one position.

    ``survived`` exposed writes are there although nothing made them durable: the recorder or the
    audit is wrong. ``vanished`` covered writes are gone although their bytes were durable: recovery
    ignored durable bytes.
    """

    position: int
    survived: int
    vanished: int


def audit_run(lives: Mapping[int, Life], horizons: Horizons, log_map: LogMap, history: History) -> Audit:
    """Locate every write of the history and work out since when its bytes were written and durable."""
    reach = {order.file: _Reach(lives[order.file], horizons, order.base_bytes) for order in log_map.logs}
    release = _Releases(lives, horizons, log_map)
    rank = {order.file: order.rank for order in log_map.logs}
    barrier = _barriers(log_map, reach, release)

    client = np.array([place.client for place in log_map.places], dtype=np.int64)
    sequence = np.array([place.sequence for place in log_map.places], dtype=np.int64)
    rows = history.index(client, sequence)
    located = np.zeros(len(history), dtype=np.bool_)
    unwritten_to = np.full(len(history), NEVER, dtype=np.int64)
    written_from = np.full(len(history), NEVER, dtype=np.int64)
    covered_from = np.full(len(history), NEVER, dtype=np.int64)
    for row, place in zip(rows.tolist(), log_map.places, strict=True):
        if row < 0:
            continue
        written = reach[place.file].written_from(place.end_offset)
        if written == NEVER:
            continue
        located[row] = True
        unwritten_to[row] = reach[place.file].unwritten_to(place.end_offset)
        written_from[row] = written
        covered_from[row] = _durable_from(place, reach, rank, barrier, release)
    return Audit(history, located, unwritten_to, written_from, covered_from, log_map.opaque)


def _durable_from(
    place: LogPlace,
    reach: dict[int, _Reach],
    rank: dict[int, int],
    barrier: dict[int, int],
    release: _Releases,
) -> int:
    by_log = max(reach[place.file].covered_from(place.end_offset), barrier[place.file])
    return min(by_log, release.from_position(rank[place.file], place.family))


def _barriers(log_map: LogMap, reach: dict[int, _Reach], release: _Releases) -> dict[int, int]:
    """For each log, from when on every older log is whole on disk or no longer needed."""
    barrier, latest = {}, 0
    for order in sorted(log_map.logs, key=lambda order: order.rank):
        barrier[order.file] = latest
        latest = max(latest, min(reach[order.file].whole_from, release.from_position(order.rank, None)))
    return barrier


class _Reach:
    """How far into a log the bytes were written, and were durable, by which position.

    A log grows at its end, but an engine may write a page again as it fills, zeros and all. So a write
    reaches as far as what it wrote is what the log holds in the end.
    """

    def __init__(self, life: Life, horizons: Horizons, base_bytes: int | None = None) -> None:
        self._horizons, self._file = horizons, life.file
        self._reached: list[int] = []
        self._begun: list[int] = []
        self._ended: list[int] = []
        self._durable: list[int] = []
        base = life.file.base
        if base_bytes is None:
            base_bytes = base.size if base and life.is_of_base else 0
        reached, ended, durable = base_bytes, 0, 0
        self._base_bytes = base_bytes
        self._unfinished = False
        final = life.final_content
        for change in life.changes:
            if change.kind is not Kind.WRITE:
                continue
            if change.end is None:
                self._unfinished = True
                break
            data = bytes(change.data[: written_bytes(change)])
            reached = max(reached, change.a + _common(data, final[change.a : change.a + len(data)]))
            ended = max(ended, change.end)
            durable = max(durable, self._durable_from(change))
            self._reached.append(reached)
            self._begun.append(change.begin)
            self._ended.append(ended)
            self._durable.append(durable)

    def unwritten_to(self, offset: int) -> int:
        """Up to which position a byte before the offset had not begun to be written; NEVER if none was."""
        if offset <= self._base_bytes:
            return 0
        index = bisect_left(self._reached, offset)
        return self._begun[index] if index < len(self._begun) else int(NEVER)

    def written_from(self, offset: int) -> int:
        """From which position on every byte before the offset had been written; NEVER if none."""
        if offset <= self._base_bytes:
            return 0
        index = bisect_left(self._reached, offset)
        return self._ended[index] + 1 if index < len(self._ended) else int(NEVER)

    def covered_from(self, offset: int) -> int:
        """From which position on every byte before the offset was durable; NEVER if none."""
        if offset <= self._base_bytes:
            return 0
        index = bisect_left(self._reached, offset)
        return self._durable[index] if index < len(self._durable) else int(NEVER)

    def _durable_from(self, change: Operation) -> int:
        """From when on one write is durable: at once where it was a sync of its own."""
        covered = self._horizons.covered_from(self._file, change)
        return int(NEVER) if covered is None else covered

    @property
    def whole_from(self) -> int:
        """From which position on the whole file, as the run left it, was durable."""
        if self._unfinished:
            return int(NEVER)
        return self.covered_from(self._reached[-1]) if self._reached else 0


def _common(first: bytes, second: bytes) -> int:
    """How many bytes two texts have in common at their begin."""
    if first == second:
        return len(first)
    length = min(len(first), len(second))
    differs = np.frombuffer(first, np.uint8, length) != np.frombuffer(second, np.uint8, length)
    return int(np.argmax(differs)) if differs.any() else length


class _Releases:
    """From when on logs below a rank are not needed any more."""

    def __init__(self, lives: Mapping[int, Life], horizons: Horizons, log_map: LogMap) -> None:
        reach: dict[int, _Reach] = {}
        self._by_family: dict[int | None, list[tuple[int, int]]] = {}
        for statement in log_map.released:
            if statement.file not in reach:
                reach[statement.file] = _Reach(lives[statement.file], horizons)
            since = reach[statement.file].covered_from(statement.end_offset)
            self._by_family.setdefault(statement.family, []).append((statement.rank, since))

    def from_position(self, rank: int, family: int | None) -> int:
        """From when on the log of this rank is not needed, by the family or (None) by anyone."""
        everyone = self._earliest(None, rank)
        if family is not None:
            return min(everyone, self._earliest(family, rank))
        families = [known for known in self._by_family if known is not None]
        each = max((self._earliest(known, rank) for known in families), default=int(NEVER))
        return min(everyone, each)

    def _earliest(self, family: int | None, rank: int) -> int:
        statements = self._by_family.get(family, [])
        return min((since for below, since in statements if below > rank), default=int(NEVER))


def disagreement(
    audit: Audit, rows: npt.NDArray[np.void], lost_indices: tuple[int, ...], position: int
) -> Disagreement:
    """Hold one `synced` state's recovered rows against the audit at its position."""
    history = audit.history
    rows = history.keyed(rows)
    present = recovered_index(history, rows)
    key = rows["key"].astype(np.int64)
    recovered_begin = np.full(history.registers, -1, dtype=np.int64)
    recovered_begin[key[present >= 0]] = history.begin[present[present >= 0]]
    reflected = np.zeros(len(history), dtype=np.bool_)
    reflected[present[present >= 0]] = True
    newer = recovered_begin[history.register] > history.end
    survived = audit.exposed_at(position) & (reflected | newer)
    lost = np.zeros(len(history), dtype=np.bool_)
    lost[list(lost_indices)] = True
    vanished = audit.covered_at(position) & lost
    return Disagreement(position, int(np.count_nonzero(survived)), int(np.count_nonzero(vanished)))
