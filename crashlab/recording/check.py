"""The two checks that a write log must pass before anything is concluded from it.

Writes: the whole log replayed on the base equals the live files byte for byte; a difference that an
operation open at the kill explains is none. Syncs: the logged syncs agree with the engine's own
count. A log that fails either gives UNKNOWN, never HELD and never BROKEN.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import (
    Disk,
    File,
    FileImage,
    NameChange,
    Surviving,
    build_image,
    is_its_own_sync,
    size_after,
    written_bytes,
)
from crashlab.states.lives import Life
from engines.engine import LogReader

_FAULTS_MAX = 10
SYNCS_IN_FLIGHT_MAX = 2
"""A sync ends before the engine counts it: one write group and one explicit sync may be under way."""


@dataclass(frozen=True)
class SyncCount:
    """The engine's own count of log syncs, read between two positions."""

    position_before: int
    syncs: int
    position_after: int


def check_writes(disk: Disk, root: Path, reader: LogReader) -> list[str]:
    """Every unexplained difference between the replayed log and the live files below the root.

    A change of names is recorded under the log's lock, so at most one was open at the kill: it has
    happened or it has not, and the reading with fewer differences is the one that counts.
    """
    live = {
        path.relative_to(root).as_posix(): path
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
    readings = [build_image(disk, _has_ended, _ended_changes)]
    if not all(_has_ended(change) for change in disk.name_changes):
        readings.append(build_image(disk, lambda _: True, _ended_changes))
    faults = [list(_differences(image.files, live, reader)) for image in readings]
    return min(faults, key=len)[:_FAULTS_MAX]


def _has_ended(change: NameChange) -> bool:
    return change.operation.end is not None


def _ended_changes(file: File) -> tuple[Surviving, ...]:
    return tuple(Surviving(change) for change in file.changes if change.end is not None)


def _differences(
    logged: Mapping[str, FileImage], live: Mapping[str, Path], reader: LogReader
) -> Iterator[str]:
    for path in sorted(set(live) | set(logged)):
        if reader.unrecorded(path):
            continue
        if path not in logged or path not in live:
            yield f"{path}: {'not in the log' if path in live else 'only in the log'}"
            continue
        fault = _content_fault(logged[path], live[path].read_bytes())
        if fault:
            yield f"{path}: {fault}"


def _content_fault(image: FileImage, live: bytes) -> str:
    expected = image.content()
    if expected == live:
        return ""
    if _explained(expected, live, [change for change in image.file.changes if change.end is None]):
        return ""
    at = next(
        (i for i, (a, b) in enumerate(zip(expected, live, strict=False)) if a != b),
        min(len(expected), len(live)),
    )
    return f"{len(live)} bytes live, {len(expected)} in the log, first difference at {at}"


def _explained(expected: bytes, live: bytes, open_changes: Sequence[Operation]) -> bool:
    """Whether the open changes explain the size, and put every byte there that differs."""
    sizes = [len(expected), *(size_after(len(expected), change) for change in open_changes)]
    if not min(sizes) <= len(live) <= max(sizes):
        return False
    known = bytearray(expected[: len(live)].ljust(len(live), b"\0"))
    for write in open_changes:
        if write.kind is not Kind.WRITE:
            continue
        for offset in range(write.a, min(write.a + written_bytes(write), len(live))):
            if live[offset] == write.data[offset - write.a]:
                known[offset] = live[offset]
    return bytes(known) == live


def check_syncs(
    lives: Mapping[int, Life], reader: LogReader, count: SyncCount, *, may_be_kept: bool = False
) -> list[str]:
    """Whether the logged syncs of the engine's logs agree with the engine's own count.

    A write that is a sync of its own counts as one, and a log is a log only under its name: what syncs it
    before it gets that, or after it has lost it, is not counted.

    A log is made some time before the engine writes to it and takes it into its rounds of syncs. What
    syncs the older one in that time may be a round, which is counted, or a flush, which is not. And the
    round that was just about to sync the older one may come after the first write to the newer (seen in 1
    of 280 runs, with unordered_write).

    Where another library takes the syncs first, and so may have kept them (``may_be_kept``), the engine may
    have counted more than came to the kernel: then it is that library, and not the recorder, that the log
    lacks them for.
    """
    logs = {number: life for number, life in lives.items() if reader.role(life.path) == "wal"}
    born = {number: life.begin for number, life in logs.items()}
    used = {number: _first_write(life) for number, life in logs.items()}
    certain = _counted_syncs(logs, reader, born)
    possible = _counted_syncs(logs, reader, used)
    begun = sum(1 for sync in possible if sync.begin < count.position_after)
    begun += _late_rounds(logs, reader, used, count.position_after)
    ended = sum(1 for sync in certain if sync.end is not None and sync.end < count.position_before)
    if ended - SYNCS_IN_FLIGHT_MAX <= count.syncs and (count.syncs <= begun or may_be_kept):
        return []
    return [f"the engine counted {count.syncs} log syncs where the write log holds {ended} to {begun}"]


def _counted_syncs(
    logs: Mapping[int, Life], reader: LogReader, since: Mapping[int, int | None]
) -> list[Operation]:
    """The syncs that the engine counts, if a log is the newest from the given position on."""
    starts = {number: start for number in logs if (start := since[number]) is not None}
    order = sorted((start, reader.log_rank(logs[number].path)) for number, start in starts.items())
    begins, ranks = [begin for begin, _ in order], [rank for _, rank in order]
    counted = []
    for life in logs.values():
        for sync in _syncs_of(life):
            known = bisect_left(begins, sync.begin)
            if reader.counted_sync(reader.log_rank(life.path), max(ranks[:known], default=0)):
                counted.append(sync)
    return counted


def _syncs_of(life: Life) -> Iterator[Operation]:
    """What made a log durable while it had that name."""
    yield from (sync for sync in life.file.syncs if life.begin <= sync.begin < life.end)
    yield from (change for change in life.changes if is_its_own_sync(change))


def _late_rounds(
    logs: Mapping[int, Life], reader: LogReader, used: Mapping[int, int | None], until: int
) -> int:
    """How many logs were synced once more after the first write to the next one."""
    ranked = sorted(
        (reader.log_rank(life.path), number) for number, life in logs.items() if used[number] is not None
    )
    return sum(
        any((used[newer] or 0) < sync.begin < until for sync in _syncs_of(logs[older]))
        for (_, older), (_, newer) in pairwise(ranked)
    )


def _first_write(life: Life) -> int | None:
    """Where the run first wrote to a log under its name; None where it never did."""
    return next((change.begin for change in life.changes if change.kind is Kind.WRITE), None)
