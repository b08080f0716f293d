"""The engine's events in a recorded run, and the positions in and around each of them.

Which operations make an event, the engine says (engines/event.py); here they get their positions. *Before*:
the event has begun and none of its syncs has, so that everything it wrote may be lost; aimed at just before
the first of them. *Inside*: from then until its last operation has ended; aimed at while one of its
operations is under way, or between two. *After*: it is complete, and nothing else has ended since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import NAME_CHANGES, SYNC_OF_A_FOLDER, SYNCS, Disk, failed, is_its_own_sync
from engines.engine import LogReader
from engines.event import Step, StepKind

Phase = Literal["before", "inside", "after"]
PHASES: tuple[Phase, ...] = ("before", "inside", "after")
_KINDS: dict[Kind, StepKind] = {
    Kind.CREATE: "create",
    Kind.WRITE: "write",
    Kind.TRUNCATE: "truncate",
    Kind.FALLOCATE: "fallocate",
    Kind.RENAME: "rename",
    Kind.LINK: "link",
    Kind.UNLINK: "unlink",
    Kind.FSYNC: "sync",
    Kind.FDATASYNC: "sync",
}


@dataclass(frozen=True)
class Event:
    """One event and its operations, in order of their begin."""

    name: str
    operations: tuple[Operation, ...]

    @property
    def begin(self) -> int:
        return self.operations[0].begin

    @property
    def has_sync(self) -> bool:
        """Whether anything of it was made durable at once."""
        return any(_is_sync(each) for each in self.operations)

    @cached_property
    def first_sync(self) -> int:
        """Where its first sync begins; its own begin where it has none."""
        return next((each.begin for each in self.operations if _is_sync(each)), self.begin)

    @cached_property
    def end(self) -> int | None:
        """Where its last operation ended; None where one had not."""
        ends = [each.end for each in self.operations]
        return None if None in ends else max(end for end in ends if end is not None)

    def positions(self, phase: Phase) -> list[int]:
        """The positions that are aimed at in a phase; none where the run did not get there."""
        if phase == "before":
            return [self.first_sync]
        if phase == "after":
            return [] if self.end is None else [self.end + 1]
        edges = {each.begin + 1 for each in self.operations}
        edges |= {each.end + 1 for each in self.operations if each.end is not None}
        until = self.end
        return sorted(edge for edge in edges if edge > self.first_sync and (until is None or edge <= until))


def _is_sync(operation: Operation) -> bool:
    return operation.kind in SYNCS or is_its_own_sync(operation)


def events_of(disk: Disk, reader: LogReader, first_position: int) -> list[Event]:
    """The engine's events that began at the position or later, in order."""
    operations, steps = [], []
    for operation, step in _steps(disk):
        operations.append(operation)
        steps.append(step)
    return [
        Event(found.name, tuple(operations[number] for number in found.steps))
        for found in reader.events(steps)
        if operations[found.steps[0]].begin >= first_position
    ]


def _steps(disk: Disk) -> Iterator[tuple[Operation, Step]]:
    """What changed or synced something, with the name that each file had then."""
    names = {file.number: path for path, file in disk.names_at_start.items()}
    renamed = {change.operation.begin: change.file for change in disk.name_changes}
    folders = {sync.begin: path for path, syncs in disk.folder_syncs.items() for sync in syncs}
    for operation in disk.operations:
        kind = _KINDS.get(operation.kind)
        if kind is None or failed(operation):
            continue
        if operation.kind in NAME_CHANGES:
            file = renamed[operation.begin]
            if file is not None and kind != "unlink":
                names[file.number] = operation.new_path or operation.path
            yield operation, Step(kind, operation.path, operation.tid, operation.new_path)
        elif operation.kind in SYNCS and operation.flags & SYNC_OF_A_FOLDER:
            if operation.begin in folders:
                yield operation, Step("sync-folder", folders[operation.begin], operation.tid)
        else:
            file = disk.file_of(operation)
            path = "" if file is None else names.get(file.number, "")
            yield operation, Step(kind, path, operation.tid, "", operation.a, operation.data)
