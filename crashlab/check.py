"""The two checks that a write log must pass before anything is concluded from it.

Writes: the whole log replayed on the base equals the live files byte for byte; a difference that an
operation open at the kill explains is none. Syncs: the logged syncs agree with the engine's own
count. A log that fails either gives UNKNOWN, never HELD and never BROKEN.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crashlab.disk import (
    NAME_CHANGES,
    Disk,
    File,
    FileImage,
    Surviving,
    build_image,
    written_bytes,
)
from crashlab.write_log import Kind, Operation
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
    """Every unexplained difference between the replayed log and the live files below the root."""
    image = build_image(disk, lambda change: change.operation.end is not None, _ended_changes)
    live = {
        path.relative_to(root).as_posix(): path
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
    unsettled = _unsettled_paths(disk)
    faults = []
    for path in sorted(set(live) | set(image.files)):
        if reader.unrecorded(path):
            continue
        if path in live and path in image.files:
            fault = _content_fault(image.files[path], live[path].read_bytes())
            if fault:
                faults.append(f"{path}: {fault}")
        elif path not in unsettled:
            faults.append(f"{path}: {'not in the log' if path in live else 'only in the log'}")
    return faults[:_FAULTS_MAX]


def _ended_changes(file: File) -> tuple[Surviving, ...]:
    return tuple(Surviving(change) for change in file.changes if change.end is not None)


def _unsettled_paths(disk: Disk) -> set[str]:
    """Paths that a namespace change open at the kill may have made, moved or removed."""
    paths: set[str] = set()
    for operation in disk.operations:
        if operation.end is None and operation.kind in NAME_CHANGES:
            paths |= {operation.path, operation.new_path}
    return paths


def _content_fault(image: FileImage, live: bytes) -> str:
    expected = image.content()
    if expected == live:
        return ""
    open_changes = [change for change in image.file.changes if change.end is None]
    if any(change.kind is not Kind.WRITE for change in open_changes):
        return ""  # a truncation or allocation under way: any size between is possible
    if open_changes and _explained(expected, live, open_changes):
        return ""
    at = next(
        (i for i, (a, b) in enumerate(zip(expected, live, strict=False)) if a != b),
        min(len(expected), len(live)),
    )
    return f"{len(live)} bytes live, {len(expected)} in the log, first difference at {at}"


def _explained(expected: bytes, live: bytes, open_writes: Sequence[Operation]) -> bool:
    """Whether every differing byte is one that an open write was putting there."""
    reach = max(write.a + written_bytes(write) for write in open_writes)
    if len(live) > max(len(expected), reach) or len(live) < len(expected):
        return False
    padded = bytearray(expected + bytes(len(live) - len(expected)))
    for write in open_writes:
        for offset in range(write.a, min(write.a + written_bytes(write), len(live))):
            if live[offset] == write.data[offset - write.a]:
                padded[offset] = live[offset]
    return bytes(padded) == live


def check_syncs(disk: Disk, paths: dict[int, str], reader: LogReader, count: SyncCount) -> list[str]:
    """Whether the logged syncs of the engine's logs agree with the engine's own count."""
    counted = _counted_syncs(disk, paths, reader)
    begun = sum(1 for sync in counted if sync.begin < count.position_after)
    ended = sum(1 for sync in counted if sync.end is not None and sync.end < count.position_before)
    if ended - SYNCS_IN_FLIGHT_MAX <= count.syncs <= begun:
        return []
    return [f"the engine counted {count.syncs} log syncs where the write log holds {ended} to {begun}"]


def _counted_syncs(disk: Disk, paths: dict[int, str], reader: LogReader) -> list[Operation]:
    """The syncs that the engine counts: those of the newest log that existed when they began."""
    logs = {number: path for number, path in paths.items() if reader.role(path) == "wal"}
    births = sorted((_born(disk, number), reader.log_rank(path)) for number, path in logs.items())
    born, ranks = [birth for birth, _ in births], [rank for _, rank in births]
    counted = []
    for number, path in logs.items():
        for sync in disk.files[number].syncs:
            known = bisect_right(born, sync.begin)
            if reader.counted_sync(reader.log_rank(path), max(ranks[:known], default=0)):
                counted.append(sync)
    return counted


def _born(disk: Disk, number: int) -> int:
    file = disk.files[number]
    if file.base is not None:
        return 0
    return next(
        (c.operation.begin for c in disk.name_changes if c.file is file and c.operation.kind is Kind.CREATE),
        0,
    )
