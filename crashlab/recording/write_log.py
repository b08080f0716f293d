"""The write log: the recorder's ordered record of writes, syncs and names (docs/formats.md, "The write log").

A log is written by the engine's own processes while they may be killed at any moment, so the reader
expects what a kill leaves: blocks claimed and never begun, chunks half filled, operations begun and
not ended. Anything else that does not fit is damage, and damage is told, never skipped: a record
that is quietly left out would make a lost write look durable.

Not covered: a record whose bytes were changed to another valid record. Records carry no checksum,
because they never pass through a disk; the replay check against the live files finds such a thing.
"""

from __future__ import annotations

import errno
import gc
import mmap
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, make_dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from knobs.errors import InvalidInput, MachineLacks, Undecided

MAGIC = b"DTWLOG01"
BLOCK_BYTES = 65536
CHUNK_HEADER_BYTES = 24
RECORD_HEADER_BYTES = 64

_TAIL = 64
_FULL = 128
_UNSUPPORTED = 192
_LOCKS = 512

UNSUPPORTED = (
    "shared-writable-mapping",
    "io-uring",
    "direct-write-system-call",
    "recorder-fault",
    "copy-into-recorded-file",
    "stdio-writer",
    "sync-taken-before",
)
"""What the header counts, in order: things the recorder saw and cannot record.

``stdio-writer`` is a note: a file opened for writing through stdio, whose content is not in the log
(RocksDB's info LOG is one); the replay check decides whether it matters. So is ``sync-taken-before``: a
program in which another library takes its syncs before the recorder, and may keep them. The others make the
log unbelievable by themselves.
"""
SYNC_TAKEN_BEFORE = "sync-taken-before"
NOTES = frozenset({"stdio-writer", SYNC_TAKEN_BEFORE})


class Kind(IntEnum):
    """What an operation was; the numbers are those of the format."""

    ATTACH = 1
    CREATE = 2
    WRITE = 3
    TRUNCATE = 4
    FALLOCATE = 5
    RENAME = 6
    LINK = 7
    UNLINK = 8
    MKDIR = 9
    RMDIR = 10
    FSYNC = 11
    FDATASYNC = 12
    MSYNC = 13
    SYNCFS = 14
    SYNC_FILE_RANGE = 15
    CLOSE = 16


_KINDS = {int(kind): kind for kind in Kind}
_ONE_PATH = frozenset({Kind.CREATE, Kind.UNLINK, Kind.MKDIR, Kind.RMDIR})
_TWO_PATHS = frozenset({Kind.RENAME, Kind.LINK})
_INODE_COMES_LAST = frozenset({Kind.CREATE, Kind.MKDIR})


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the engine: ``begin`` and ``end`` are positions, ``end`` None while unanswered.

    ``result`` is the call's, -errno where it failed, None while unanswered. ``inode`` is the file's;
    of a create or mkdir it is 0 until that has ended. ``a``, ``b`` and ``flags`` are as in
    docs/formats.md (for a write: its offset; 1 = it is its own sync). ``data`` is what was to be
    written, ``path`` and ``new_path`` are relative to the recorded root.
    """

    begin: int
    end: int | None
    begin_ns: int
    end_ns: int | None
    pid: int
    tid: int
    kind: Kind
    inode: int
    a: int
    b: int
    flags: int
    result: int | None
    data: memoryview | bytes = b""
    path: str = ""
    new_path: str = ""


# A frozen dataclass sets each field by a call, which took two thirds of the time of reading a log. So
# operations are made as this twin of the same slots, and become Operations when they are complete.
_Unfrozen: Any = make_dataclass(
    "_Unfrozen", [(field.name, field.type) for field in fields(Operation)], slots=True
)


@dataclass(frozen=True, eq=False)
class WriteLog:
    """One log as read: the facts of its header, and its operations in order of their begin."""

    path: Path
    nonce: int
    capacity_bytes: int
    used_bytes: int
    full: bool
    unsupported: dict[str, int]
    _records: _Records

    @staticmethod
    def create(path: Path, capacity_bytes: int, ready_bytes: int = 0) -> None:
        """Make an empty log, sparse, at a path that does not exist yet.

        The first ``ready_bytes`` get their memory at once: the kernel's work for fresh pages is the
        larger part of what recording costs, and so it is not done during the run. Raises
        InvalidInput for a capacity that is no multiple of 65536 or under 131072, or a path that
        cannot be made, and MachineLacks where there is no room for ``ready_bytes``.
        """
        if capacity_bytes % BLOCK_BYTES or capacity_bytes < 2 * BLOCK_BYTES:
            raise InvalidInput(
                f"a write log of {capacity_bytes} bytes cannot be made",
                where=str(path),
                hint=f"take a multiple of {BLOCK_BYTES}, at least {2 * BLOCK_BYTES}",
            )
        # Asked first: a file system may fill up before it says that it has not enough.
        if ready_bytes > 0 and path.parent.is_dir() and shutil.disk_usage(path.parent).free < ready_bytes:
            raise _no_room(path, ready_bytes)
        header = bytearray(_TAIL + 8)
        header[0:8] = MAGIC
        header[8:16] = capacity_bytes.to_bytes(8, "little")
        header[16:24] = (secrets.randbits(64) | 1).to_bytes(8, "little")
        header[24:28] = BLOCK_BYTES.to_bytes(4, "little")
        header[_TAIL : _TAIL + 8] = BLOCK_BYTES.to_bytes(8, "little")
        try:
            with path.open("xb") as file:
                file.write(header)
                file.truncate(capacity_bytes)
                if ready_bytes > 0:
                    os.posix_fallocate(file.fileno(), 0, min(ready_bytes, capacity_bytes))
        except OSError as error:
            if error.errno == errno.ENOSPC:
                path.unlink()
                raise _no_room(path, ready_bytes) from error
            raise InvalidInput(
                f"the write log cannot be made: {error.strerror}",
                where=str(path),
                hint="name a path that does not exist, in a folder that does",
            ) from error

    @staticmethod
    def read(path: Path) -> WriteLog:
        """Read a log of processes that have ended, or a compacted one.

        Raises InvalidInput where the file is no write log, and Undecided where it is one and is
        damaged; the message names the offset or position.
        """
        with _opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size < BLOCK_BYTES or file.read(8) != MAGIC:
                raise InvalidInput("is not a write log of this version", where=str(path))
            head = mmap.mmap(file.fileno(), BLOCK_BYTES, access=mmap.ACCESS_READ)
            capacity, nonce, block = _u64(head, 8), _u64(head, 16), int.from_bytes(head[24:28], "little")
            tail = _u64(head, _TAIL)
            if block != BLOCK_BYTES or not nonce:
                raise InvalidInput("is not a write log of this version", where=str(path))
            if tail < BLOCK_BYTES or tail % BLOCK_BYTES:
                raise _damaged(path, f"its tail {tail} is no block boundary")
            used = min(tail, capacity)
            if size < used or size > capacity:
                raise _damaged(path, f"it has {size} bytes where its header says {used} to {capacity}")
            # Only the used part is mapped: reading a hole of a tmpfs file would allocate it.
            mapped = mmap.mmap(file.fileno(), used, access=mmap.ACCESS_READ)
        counts = [
            int.from_bytes(head[_UNSUPPORTED + 4 * i : _UNSUPPORTED + 4 * i + 4], "little") for i in range(16)
        ]
        names = [*UNSUPPORTED, *(f"unknown-{i}" for i in range(len(UNSUPPORTED), 16))]
        return WriteLog(
            path=path,
            nonce=nonce,
            capacity_bytes=capacity,
            used_bytes=used,
            full=bool(int.from_bytes(head[_FULL : _FULL + 4], "little")),
            unsupported={name: count for name, count in zip(names, counts, strict=True) if count},
            _records=_Records(path, memoryview(mapped), nonce),
        )

    @staticmethod
    def compact(path: Path, to: Path) -> int:
        """Write the used part of a log to ``to``, readable by `read`; returns its bytes on the disk.

        Unused ends of chunks become holes. The file appears whole or not at all if this process is
        killed; it is not synced. Raises as `read` does.
        """
        log = WriteLog.read(path)
        temporary = to.with_name(to.name + ".part")
        with path.open("rb") as source, temporary.open("wb") as target:
            head = bytearray(source.read(_LOCKS))
            head[8:16] = log.used_bytes.to_bytes(8, "little")
            head[_TAIL : _TAIL + 8] = log.used_bytes.to_bytes(8, "little")
            target.write(head)
            for first, last in log._records.filled:
                target.seek(first)
                target.write(log._records.bytes[first:last])
            target.truncate(log.used_bytes)
        kept = temporary.stat().st_blocks * 512
        temporary.replace(to)
        return kept

    @cached_property
    def operations(self) -> list[Operation]:
        """Every operation, in order of its begin position.

        Raises Undecided for two records at one position, an end without its begin, or a payload
        that does not fit its kind.
        """
        with _collector_paused():
            return _operations(self._records)

    @property
    def attached_pids(self) -> list[int]:
        """The processes that the recorder was in, each once, in order."""
        return list(dict.fromkeys(o.a for o in self.operations if o.kind is Kind.ATTACH))

    @property
    def record_count(self) -> int:
        """Records in the log; an answered operation has two."""
        return len(self._records.at)


class _Records:
    """The records of a log as columns, in order of position; nothing is paired yet.

    Chunks are walked side by side: one step takes the next record of every chunk, so that the
    number of steps is that of the records in one chunk, not in the log.
    """

    def __init__(self, path: Path, data: memoryview, nonce: int) -> None:
        self.path = path
        self.bytes = data
        words = len(data) // 8
        self._u64 = np.frombuffer(data, "<u8", words)
        self._i64 = np.frombuffer(data, "<i8", words)
        self._u32 = np.frombuffer(data, "<u4", words * 2)
        self._u16 = np.frombuffer(data, "<u2", words * 4)
        starts, ends, owners = self._chunks(nonce)
        at, chunk, cursors = self._walk(starts, ends)
        self.filled = list(zip((starts - CHUNK_HEADER_BYTES).tolist(), cursors.tolist(), strict=True))
        order = np.argsort(self._u64[at // 8 + 1], kind="stable")
        self.at = at[order]
        owner = owners.reshape(-1, 2)[chunk[order]]
        self.pid, self.tid = owner[:, 0], owner[:, 1]
        word = self.at // 8
        self.kind = self._u16[word * 4 + 2]
        self.phase = self._u16[word * 4 + 3]
        self.position = self._u64[word + 1]
        self.ns = self._u64[word + 2]
        self.begin = self._u64[word + 3]
        self.inode = self._u64[word + 4]
        self.a = self._i64[word + 5]
        self.b = self._i64[word + 6]
        self.payload_bytes = self._u32[word * 2 + 14]
        self.flags = self._u32[word * 2 + 15]
        self._check(self._u32[word * 2].astype(np.int64))

    def _chunks(self, nonce: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        starts, ends, owners = [], [], []
        at = BLOCK_BYTES
        while at < len(self.bytes):
            found = int(self._u64[at // 8])
            blocks = int(self._u32[at // 4 + 2])
            if found == 0:
                at += BLOCK_BYTES
                continue
            if found != nonce:
                raise _damaged(self.path, f"the block at {at} belongs to another log")
            if not 1 <= blocks <= (len(self.bytes) - at) // BLOCK_BYTES:
                raise _damaged(self.path, f"the chunk at {at} claims {blocks} blocks")
            starts.append(at + CHUNK_HEADER_BYTES)
            owners.append((int(self._u32[at // 4 + 3]), int(self._u32[at // 4 + 4])))
            at += blocks * BLOCK_BYTES
            ends.append(at)
        return np.array(starts, np.int64), np.array(ends, np.int64), np.array(owners, np.int64)

    def _walk(
        self, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        found_at, found_in = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        cursors = starts.copy()
        active = np.arange(len(starts))
        while len(active):
            active = active[cursors[active] < ends[active]]
            cursor = cursors[active]
            length = self._u32[cursor // 4].astype(np.int64)
            active, cursor, length = active[length > 0], cursor[length > 0], length[length > 0]
            wrong = (length < RECORD_HEADER_BYTES) | (length % 8 > 0) | (cursor + length > ends[active])
            if wrong.any():
                first = int(np.flatnonzero(wrong)[0])
                raise _damaged(self.path, f"the record at {cursor[first]} claims {length[first]} bytes")
            found_at.append(cursor)
            found_in.append(active)
            cursors[active] += length
        return np.concatenate(found_at), np.concatenate(found_in), cursors

    def _check(self, length: NDArray[np.int64]) -> None:
        payload = self.payload_bytes.astype(np.int64)
        lone = self.kind == Kind.ATTACH
        faults = {
            "has an unknown kind": (self.kind < min(Kind)) | (self.kind > max(Kind)),
            "has an unknown phase": (self.phase > 1) | (lone & (self.phase > 0)),
            "does not fit its payload": (payload + RECORD_HEADER_BYTES + 7) // 8 * 8 != length,
            "has the position 0": self.position == 0,
            "answers itself or what comes later": (self.phase == 1) & (self.begin >= self.position),
        }
        for fault, where in faults.items():
            if where.any():
                raise _damaged(self.path, f"the record at {self.at[np.flatnonzero(where)[0]]} {fault}")
        twice = np.flatnonzero(self.position[1:] == self.position[:-1])
        if len(twice):
            raise _damaged(self.path, f"two records have the position {self.position[twice[0]]}")


def _operations(records: _Records) -> list[Operation]:
    is_begin = records.phase == 0
    begins, ends = np.flatnonzero(is_begin), np.flatnonzero(~is_begin)
    end_of = _ends_of(records, begins, ends)
    answered = end_of >= 0
    answer = end_of[answered]

    def optional(column: NDArray[Any]) -> list[int | None]:
        values: list[int | None] = [None] * len(begins)
        for index, value in zip(np.flatnonzero(answered).tolist(), column[answer].tolist(), strict=True):
            values[index] = value
        return values

    ends_at, ends_ns = optional(records.position), optional(records.ns)
    results, end_inodes = optional(records.a), optional(records.inode)
    columns = (
        records.position[begins].tolist(),
        ends_at,
        records.ns[begins].tolist(),
        ends_ns,
        records.pid[begins].tolist(),
        records.tid[begins].tolist(),
        records.kind[begins].tolist(),
        records.inode[begins].tolist(),
        records.a[begins].tolist(),
        records.b[begins].tolist(),
        records.flags[begins].tolist(),
        results,
    )
    payload_at = (records.at[begins] + RECORD_HEADER_BYTES).tolist()
    payload_end = (records.at[begins] + RECORD_HEADER_BYTES + records.payload_bytes[begins]).tolist()
    operations: list[Operation] = []
    for row, end_inode, first, last in zip(
        zip(*columns, strict=True), end_inodes, payload_at, payload_end, strict=True
    ):
        begin, end, begin_ns, end_ns, pid, tid, number, inode, a, b, flags, result = row
        kind = _KINDS[number]
        data: memoryview | bytes = b""
        path = new_path = ""
        if kind is Kind.WRITE:
            data = records.bytes[first:last]
            if result is not None and result > last - first:
                raise _damaged(records.path, f"the write at position {begin} wrote more than it was given")
        elif kind in _ONE_PATH or kind in _TWO_PATHS:
            path, new_path = _paths(records, kind, begin, bytes(records.bytes[first:last]))
            if kind in _INODE_COMES_LAST and end_inode is not None:
                inode = end_inode
        elif kind is Kind.ATTACH:
            end, end_ns, result = begin, begin_ns, 0
            path = os.fsdecode(bytes(records.bytes[first:last]))
        operation = _Unfrozen(
            begin, end, begin_ns, end_ns, pid, tid, kind, inode, a, b, flags, result, data, path, new_path
        )
        operation.__class__ = Operation
        operations.append(operation)
    return operations


def _ends_of(records: _Records, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each begin the index of its end record, or -1; both are in order of position."""
    end_of = np.full(len(begins), -1, np.int64)
    if not len(ends):
        return end_of
    wanted = records.begin[ends]
    found = np.searchsorted(records.position[begins], wanted)
    inside = np.minimum(found, len(begins) - 1)
    orphan = np.ones(len(ends), bool) if not len(begins) else (records.position[begins][inside] != wanted)
    if orphan.any():
        lost = ends[np.flatnonzero(orphan)[0]]
        raise _damaged(records.path, f"the end at position {records.position[lost]} has no begin")
    of = begins[found]
    other = (records.kind[of] != records.kind[ends]) | (records.tid[of] != records.tid[ends])
    if other.any():
        lost = ends[np.flatnonzero(other)[0]]
        raise _damaged(records.path, f"the end at position {records.position[lost]} is of another operation")
    if len(np.unique(found)) != len(found):
        raise _damaged(records.path, "an operation has two ends")
    end_of[found] = ends
    return end_of


def _paths(records: _Records, kind: Kind, begin: int, payload: bytes) -> tuple[str, str]:
    paths = [os.fsdecode(part) for part in payload.split(b"\0")]
    wanted = 2 if kind in _TWO_PATHS else 1
    # A path that leaves the root would be followed when the state is rebuilt.
    if len(paths) != wanted or not all(
        p and p[0] != "/" and ".." not in PurePosixPath(p).parts for p in paths
    ):
        raise _damaged(records.path, f"the {kind.name.lower()} at position {begin} has no usable path")
    return paths[0], paths[1] if wanted == 2 else ""


def _stays_inside(path: str) -> bool:
    return bool(path) and not path.startswith("/") and ".." not in PurePosixPath(path).parts


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Half the time goes to the cycle collector otherwise, and operations are in no cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidInput(f"the write log cannot be read: {error.strerror}", where=str(path)) from error


def _no_room(path: Path, ready_bytes: int) -> MachineLacks:
    return MachineLacks(
        f"there is no room for {ready_bytes} bytes of write log",
        where=str(path.parent),
        hint="free memory, or name a folder on a larger file system",
    )


def _u64(data: mmap.mmap, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "little")


def _damaged(path: Path, what: str) -> Undecided:
    return Undecided(
        f"the write log is damaged: {what}",
        where=str(path),
        hint="no verdict can be drawn from this run; run it again",
    )
