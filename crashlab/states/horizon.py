"""What completed syncs cover at a position, and which of them also commit the namespace.

A sync covers the operations that had ended before it began. So at position p the covered ones are
those that ended before the *horizon*: the latest begin among the syncs that had ended by p.

Namespace changes and truncations are journaled in order (ext4 and XFS): a completed sync that had
metadata to commit makes every earlier one durable, whichever file it was called on. An fdatasync
inside the synced size of a file commits nothing (measured on ext4: a rename followed by 200 of
them was gone after the cut).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import SYNC_OF_A_FOLDER, Disk, File


class Horizon:
    """The latest begin among the syncs that had ended before a position."""

    def __init__(self, syncs: Iterable[Operation]) -> None:
        pairs = sorted((sync.end, sync.begin) for sync in syncs if sync.end is not None)
        self._ends = [end for end, _ in pairs]
        self._latest_begin = [0]
        for _, begin in pairs:
            self._latest_begin.append(max(begin, self._latest_begin[-1]))

    def at(self, position: int) -> int:
        """Operations that ended before the returned position are covered at ``position``; 0: none."""
        return self._latest_begin[bisect_left(self._ends, position)]

    def covered_from(self, written: int) -> int | None:
        """The earliest position from which an operation that ended at ``written`` is covered.

        That is one past the end of the first sync to complete among those begun after it; None
        where no sync covers it.
        """
        first = bisect_left(self._latest_begin, written + 1)
        return self._ends[first - 1] + 1 if first < len(self._latest_begin) else None


class Horizons:
    """The horizons of one disk: one for each file's bytes, for all names, and for each folder's entries."""

    def __init__(self, disk: Disk) -> None:
        everything = [sync for sync in disk.syncs if sync.kind is Kind.SYNCFS]
        self._files = {file.number: Horizon([*file.syncs, *everything]) for file in disk.files}
        self._folders = {path: Horizon([*syncs, *everything]) for path, syncs in disk.folder_syncs.items()}
        self._everything = Horizon(everything)
        self.names = Horizon([sync for sync in disk.syncs if self._commits_metadata(disk, sync)])

    def of(self, file: File) -> Horizon:
        """The horizon of one file's bytes."""
        return self._files[file.number]

    def of_folder(self, path: str) -> Horizon:
        """The horizon of a folder's own entries, by its path ("": the recorded root)."""
        return self._folders.get(path, self._everything)

    def _commits_metadata(self, disk: Disk, sync: Operation) -> bool:
        if sync.kind is Kind.SYNCFS or sync.flags & SYNC_OF_A_FOLDER:
            return True
        file = disk.file_of(sync)
        if file is None:
            return False
        last = self._files[file.number].at(sync.begin)
        if _ended_between(file.grew, last, sync.begin):
            return True
        return sync.kind is Kind.FSYNC and _ended_between(file.changes, last, sync.begin)


def _ended_between(operations: Sequence[Operation], low: int, high: int) -> bool:
    """Whether an operation that began after the one position had ended before the other.

    The operations are in order of their begin. One still under way at ``high`` may have come too late.
    """
    for index in range(bisect_right(operations, low, key=lambda each: each.begin), len(operations)):
        operation = operations[index]
        if operation.begin >= high:
            return False
        if operation.end is not None and operation.end < high:
            return True
    return False
