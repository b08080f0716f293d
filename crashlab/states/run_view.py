"""What planning sees of a recorded run: where it is exposed, what its operations and events were."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from crashlab.judging.audit import Audit, Peak
from crashlab.judging.timeline import Timeline
from crashlab.judging.verdict import CrashKind
from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import (
    CONTENT_CHANGES,
    NAME_CHANGES,
    SYNC_OF_A_FOLDER,
    SYNCS,
    Disk,
    File,
    is_its_own_sync,
)
from crashlab.states.events import Event, events_of
from crashlab.states.horizon import Horizons
from engines.engine import FileRole, LogReader

UNTOLD_ROLES = ("lock", "info-log", "cache")
"""Roles of files that recovery does not read: no moment is worth a state for them."""
_TOLD = NAME_CHANGES | CONTENT_CHANGES | SYNCS


@dataclass(frozen=True)
class OperationClass:
    """Operations of one kind on files of one role, in words."""

    operation: str
    role: str

    def __str__(self) -> str:
        return f"{self.operation} of {self.role}"


@dataclass(frozen=True)
class RunView:
    """What planning needs to see of a recorded run. ``first_position`` is where the load began; ``device``
    the virtual disk below the files, where there is one; ``fault_moments`` are positions that a fault makes
    worth a state, and why."""

    disk: Disk
    horizons: Horizons
    timeline: Timeline
    audit: Audit
    role: Callable[[Operation], FileRole]
    first_position: int
    reader: LogReader
    device: tuple[Disk, Horizons] | None = None
    fault_moments: Sequence[tuple[int, str]] = ()

    def peaks(self, crash: CrashKind) -> Sequence[Peak]:
        """The widest windows of exposure to this crash, widest first."""
        return self._power_cut_peaks if crash == "power-cut" else self._process_crash_peaks

    @cached_property
    def _power_cut_peaks(self) -> Sequence[Peak]:
        return self._peaks("power-cut")

    @cached_property
    def _process_crash_peaks(self) -> Sequence[Peak]:
        return self._peaks("process-crash")

    def _peaks(self, crash: CrashKind) -> Sequence[Peak]:
        found = self.audit.peaks(self.timeline, len(self.audit.history), crash)
        return [peak for peak in found if peak.position > self.first_position]

    @cached_property
    def unsynced(self) -> list[tuple[int, int]]:
        """The begins of syncs of data files at which writes to such files were unsynced, and how many; those
        with most of them first. On a virtual disk it is the disk that is synced, and every write that
        counts."""
        if self.device is not None:
            disk, horizons = self.device
            load = range(self.first_position + 1, self.timeline.last_position)
            flushes = [sync.begin for file in disk.files for sync in file.syncs if sync.begin in load]
            return _most_first(_Unsynced(disk.files, horizons), flushes)
        data = [
            file
            for file in self.disk.files
            if any(self.role(each) == "relation" for each in file.changes[:1])
        ]
        moments = {sync.begin for file in data for sync in file.syncs if sync.begin > self.first_position}
        return _most_first(_Unsynced(data, self.horizons), moments)

    @cached_property
    def crossings(self) -> list[tuple[int, int]]:
        """Between which positions a log has unsynced writes while the next one is written already, the
        longest first."""
        logs = sorted(
            (writes[0].begin, file)
            for file in self.disk.files
            if (writes := [each for each in file.changes if each.kind is Kind.WRITE])
            and self.role(writes[0]) == "wal"
        )
        found = []
        for (_, older), (began, _) in pairwise(logs):
            last = self.timeline.last_position
            until = min((end for end in self._ends_of(older) if end > began), default=last)
            if began > self.first_position and _Unsynced([older], self.horizons).at(until):
                found.append((began, until))
        return sorted(found, key=lambda each: (each[0] - each[1], each))

    def before_flush(self, position: int) -> int:
        """A moment when what a sync covers that ends at the position was not flushed yet: the position
        itself; on a virtual disk where the sync begins, for the disk is told to flush before the sync
        returns."""
        return position if self.device is None else self._sync_begins.get(position, position)

    @cached_property
    def _sync_begins(self) -> Mapping[int, int]:
        return {sync.end: sync.begin + 1 for sync in self.disk.syncs if sync.end is not None}

    def _ends_of(self, file: File) -> Iterator[int]:
        """Where syncs of a file end, and where its names are taken away."""
        yield from (sync.end for sync in file.syncs if sync.end is not None)
        yield from (
            change.operation.begin
            for change in self.disk.name_changes
            if change.file is file and change.operation.kind in (Kind.UNLINK, Kind.RENAME)
        )

    @cached_property
    def classes(self) -> Mapping[OperationClass, Sequence[Operation]]:
        """The ended operations of the load by their kind and the role of their file."""
        classes: dict[tuple[Kind, str], list[Operation]] = {}
        for operation in self.disk.operations:
            if operation.begin < self.first_position or operation.end is None:
                continue
            if operation.kind not in _TOLD:
                continue
            is_of_folder = operation.kind in SYNCS and operation.flags & SYNC_OF_A_FOLDER
            role = "folder" if is_of_folder else self.role(operation)
            if role not in UNTOLD_ROLES:
                classes.setdefault((operation.kind, role), []).append(operation)
        return {
            OperationClass(kind.name.lower(), role): classes[kind, role] for kind, role in sorted(classes)
        }

    @cached_property
    def events(self) -> Mapping[str, Sequence[Event]]:
        """The engine's events of the load, by their names."""
        found: dict[str, list[Event]] = {}
        for event in events_of(self.disk, self.reader, self.first_position):
            found.setdefault(event.name, []).append(event)
        return {name: found[name] for name in self.reader.event_names if name in found}


def _most_first(unsynced: _Unsynced, moments: Iterable[int]) -> list[tuple[int, int]]:
    """The moments at which writes were unsynced, and how many."""
    found = [(moment, unsynced.at(moment)) for moment in sorted(moments)]
    return sorted(((p, n) for p, n in found if n), key=lambda each: (-each[1], each[0]))


class _Unsynced:
    """How many writes to some files no sync covered, at any position."""

    def __init__(self, files: Sequence[File], horizons: Horizons) -> None:
        begun, durable = [], []
        for file in files:
            horizon = horizons.of(file)
            for write in file.changes:
                if write.kind is not Kind.WRITE:
                    continue
                begun.append(write.begin)
                if write.end is None:
                    continue
                covered = write.end + 1 if is_its_own_sync(write) else horizon.covered_from(write.end)
                durable += [] if covered is None else [covered]
        self._begun, self._durable = sorted(begun), sorted(durable)

    def at(self, position: int) -> int:
        """Those begun before the position that are not durable there."""
        return bisect_left(self._begun, position) - bisect_right(self._durable, position)
