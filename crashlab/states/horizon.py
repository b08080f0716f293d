"""What completed syncs cover at a position, and which of them also commit the namespace.

A sync covers the operations that had ended before it began. So at position p the covered ones are
those that ended before the *horizon*: the latest begin among the syncs that had ended by p.

Namespace changes and truncations are journaled in order (ext4 and XFS): a completed sync that had
metadata to commit makes every earlier one durable, whichever file it was called on. An fdatasync
inside the synced size of a file commits nothing (measured on ext4: a rename followed by 200 of
them was gone after the cut).

What a failed sync has lost no later one covers (lost.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import SYNC_OF_A_FOLDER, Disk, File, is_its_own_sync
from crashlab.states.lost import Piece, lost_writes


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
        self._lost = {
            file.number: lost_writes(file, [*file.syncs, *everything])
            for file in disk.files
            if file.failed_syncs
        }
        self.names = Horizon([sync for sync in disk.syncs if self._commits_metadata(disk, sync)])

    def of(self, file: File) -> Horizon:
        """The horizon of one file's bytes."""
        return self._files[file.number]

    def lost_in(self, file: File) -> Mapping[int, Sequence[Piece]]:
        """The writes to a file that failed syncs have lost, by their begin."""
        return self._lost.get(file.number, {})

    def covered_from(self, file: File, change: Operation) -> int | None:
        """The earliest position from which the whole of a change is covered; None for never."""
        if change.end is None:
            return None
        if is_its_own_sync(change):
            return change.end + 1
        lost = self.lost_in(file).get(change.begin)
        if lost is None:
            return self.of(file).covered_from(change.end)
        found = [self.piece_covered_from(file, piece) for piece in lost]
        known = [position for position in found if position is not None]
        return max(known, default=None) if len(known) == len(found) else None

    def piece_covered_from(self, file: File, piece: Piece) -> int | None:
        """From when on a piece of a lost write is covered, by what takes it along; None for never."""
        carrier = piece.carrier
        while carrier is not None and carrier.begin in self.lost_in(file):
            pieces = self.lost_in(file)[carrier.begin]
            carrier = next(each.carrier for each in pieces if each.page == piece.page)
        return None if carrier is None else self.covered_from(file, carrier)

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
