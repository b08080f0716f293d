"""What a failed sync has lost: writes that no later sync brings to the disk.

Linux marks a page clean although its write-back failed, tells it once, and keeps the content readable: the
next sync finds nothing to do and succeeds (ext4 and XFS; Rebello et al., "Can Applications Recover from fsync
Failures?", USENIX ATC 2020). So what had been written to a file before a sync of it failed, and was covered
by no sync that had begun earlier, stays in the page cache alone. Only a later write to the same page makes
that dirty again, and takes along what else the page holds.

Not covered: a file system that stops after the error, as with a failing journal, and a sync under way that is
told of the error too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import File, is_its_own_sync, written_bytes

PAGE_BYTES = 4096
"""What the page cache of the common machines writes back at the least (getconf PAGESIZE)."""


@dataclass(frozen=True)
class Piece:
    """The part of a lost write that lies in one page, and the write that made this page dirty again (None: no
    write did)."""

    begin: int
    end: int
    carrier: Operation | None

    @property
    def page(self) -> int:
        return self.begin // PAGE_BYTES


def lost_writes(file: File, syncs: Iterable[Operation]) -> dict[int, tuple[Piece, ...]]:
    """The writes to a file that failed syncs have lost, by their begin: page by page.

    ``syncs`` are those that cover it and have succeeded.
    """
    lost: dict[int, tuple[Piece, ...]] = {}
    begins = sorted(sync.begin for sync in syncs if sync.end is not None)
    for failed in sorted(file.failed_syncs, key=lambda each: each.begin):
        carriers = _first_writes(file, failed.begin)
        for change in _uncovered(file, begins, failed.begin):
            if change.begin not in lost:
                lost[change.begin] = tuple(_pieces(change, carriers))
    return lost


def _uncovered(file: File, syncs: Sequence[int], failed: int) -> Iterator[Operation]:
    """The writes that had ended before a position where a sync failed, and that none begun earlier covers."""
    covered = syncs[: bisect_right(syncs, failed)][-1:]
    for change in file.changes:
        if change.kind is not Kind.WRITE or change.end is None or is_its_own_sync(change):
            continue
        if change.end < failed and (not covered or change.end > covered[0]):
            yield change


def _first_writes(file: File, since: int) -> Mapping[int, Operation]:
    """For each page the first write to it that ended after the position."""
    found: dict[int, Operation] = {}
    for change in file.changes:
        if change.kind is Kind.WRITE and change.end is not None and change.end > since:
            for page in range(change.a // PAGE_BYTES, -(-_end(change) // PAGE_BYTES)):
                found.setdefault(page, change)
    return found


def _pieces(change: Operation, carriers: Mapping[int, Operation]) -> Iterator[Piece]:
    begin = change.a
    while begin < _end(change):
        page = begin // PAGE_BYTES
        end = min(_end(change), (page + 1) * PAGE_BYTES)
        yield Piece(begin, end, carriers.get(page))
        begin = end


def _end(write: Operation) -> int:
    return write.a + written_bytes(write)
