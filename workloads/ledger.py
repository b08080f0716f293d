"""The ledger: every write of every client, in shared memory that outlives its writers.

The layout is that of docs/formats.md, and of ``ledger.h`` for the programs that write it. Python creates
the file before a run and reads it afterwards, or while the run goes on.

Promised: what a client had published before a SIGKILL is read; an entry is counted as acknowledged only if
its end was stored before its status. Not covered: a crash of the machine, since the file is never synced.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from knobs.errors import InvalidInput, MachineLacks

MAGIC = b"DTLEDG01"
HEADER_BYTES = 4096
ENTRY_BYTES = 64
CLIENT_BYTES = 64

STOP_NONE, STOP_WRITE_LOG_FULL, STOP_LEDGER_FULL, STOP_ASKED = range(4)
KIND_INSERT, KIND_UPDATE, KIND_READ_MODIFY_WRITE = 1, 2, 3
BEGUN, ACKNOWLEDGED, FAILED = range(3)

_CAPACITY_AT, _POSITION_AT, _STOP_AT, _SYNC_AT = 24, 64, 128, 256
_COUNT_AT, _OPERATIONS_AT = 0, 8
"""Within what each client has behind the header."""
_SYNC_TRIES = 1_000
_NO_ROOM = (errno.ENOMEM, errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_NO_ROOM_HINT = "lift the limit on memory (ulimit -v unlimited); fewer clients or a shorter run need less"

ENTRY = np.dtype(
    [
        ("begin", "<u8"),
        ("begin_ns", "<u8"),
        ("end", "<u8"),
        ("end_ns", "<u8"),
        ("register", "<u8"),
        ("checksum", "<u8"),
        ("kind", "<u4"),
        ("status", "<u4"),
        ("extra", "<u8"),
    ]
)


_COLUMNS = ("begin", "begin_ns", "end", "end_ns", "register", "checksum", "kind", "status", "extra")


class SyncSample(NamedTuple):
    """The engine's own count of finished WAL syncs, read between two readings of the position."""

    position_before: int
    counter: int
    position_after: int


@dataclass(frozen=True, eq=False)
class Entries:
    """All writes of all clients as columns of one length, by client and then by sequence.

    ``client`` and ``sequence`` count from 1 as in the stored values; ``begin`` and ``end`` are positions:
    ``begin`` is the next one that was to be handed out, so all that the write does comes there or later;
    ``end`` was handed out to it alone, and is 0 where it was not acknowledged. ``begin_ns`` and ``end_ns``
    are CLOCK_MONOTONIC.
    """

    client: NDArray[np.uint32]
    sequence: NDArray[np.uint64]
    begin: NDArray[np.uint64]
    begin_ns: NDArray[np.uint64]
    end: NDArray[np.uint64]
    end_ns: NDArray[np.uint64]
    register: NDArray[np.uint64]
    checksum: NDArray[np.uint64]
    kind: NDArray[np.uint32]
    status: NDArray[np.uint32]
    extra: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.client)

    @property
    def acknowledged(self) -> NDArray[np.bool_]:
        """Which entries were acknowledged."""
        return np.equal(self.status, ACKNOWLEDGED)


class Ledger:
    """One mapped ledger file. Close it, or use it in a ``with`` statement."""

    def __init__(self, path: Path, memory: mmap.mmap) -> None:
        self.path = path
        self._memory = memory
        self.clients, self.capacity = _clients_and_capacity(memory)

    @staticmethod
    def create(path: Path, clients: int, capacity: int) -> Ledger:
        """Make a new ledger for ``clients`` clients of ``capacity`` entries each; the file is sparse.

        Raises InvalidInput if the path exists or a number is not positive, MachineLacks where there is no
        room for it.
        """
        if clients < 1 or capacity < 1:
            raise InvalidInput("a ledger needs at least one client and one entry", where=str(path))
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise InvalidInput(
                "a ledger is there already", where=str(path), hint="name another file"
            ) from None
        try:
            os.ftruncate(descriptor, file_bytes(clients, capacity))
            header = struct.pack("<8sIIIIQ", MAGIC, HEADER_BYTES, ENTRY_BYTES, clients, 0, capacity)
            os.pwrite(descriptor, header, 0)
            os.pwrite(descriptor, struct.pack("<Q", 1), _POSITION_AT)
        except OSError as error:
            raise _no_room(path, error) from error
        finally:
            os.close(descriptor)
        return Ledger.open(path)

    @staticmethod
    def open(path: Path) -> Ledger:
        """Map an existing ledger. Raises InvalidInput if the file is none, is cut short or damaged,
        MachineLacks where there is no memory to map it."""
        try:
            with path.open("r+b") as file:
                if os.fstat(file.fileno()).st_size < HEADER_BYTES:
                    raise _damaged(path, "it is shorter than a header")
                memory = mmap.mmap(file.fileno(), 0)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise _no_room(path, error) from error
            raise InvalidInput(f"cannot open the ledger: {error.strerror}", where=str(path)) from error
        fault = _header_fault(memory)
        if fault:
            memory.close()
            raise _damaged(path, fault)
        return Ledger(path, memory)

    def close(self) -> None:
        """Unmap the file; it stays where it is."""
        self._memory.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def position(self) -> int:
        """The next value that the counter of all events will hand out; 1 before the first event."""
        return self._u64(_POSITION_AT)

    @property
    def operations(self) -> int:
        """Operations finished so far, reads included."""
        return sum(self._of_clients(_OPERATIONS_AT))

    @property
    def stop(self) -> int:
        """Why the clients are to stop: one of the STOP_ numbers."""
        return int.from_bytes(self._memory[_STOP_AT : _STOP_AT + 4], "little")

    def ask_stop(self) -> None:
        """Ask the clients to stop; a reason that is already there stays."""
        if self.stop == STOP_NONE:
            self._memory[_STOP_AT : _STOP_AT + 4] = STOP_ASKED.to_bytes(4, "little")

    def sync_sample(self) -> SyncSample | None:
        """The newest whole sample of the engine's sync counter.

        None if there has been none, or if the writer was killed in the middle of writing one.
        """
        for _ in range(_SYNC_TRIES):
            generation = self._u64(_SYNC_AT)
            sample = SyncSample(*struct.unpack_from("<3Q", self._memory, _SYNC_AT + 8))
            if generation % 2 == 0 and generation == self._u64(_SYNC_AT):
                return sample if generation else None
            time.sleep(10e-6)
        return None

    def put_sync_sample(self, sample: SyncSample) -> None:
        """Store a sample of the engine's sync counter; only one process may do so in one run."""
        generation = self._u64(_SYNC_AT)
        # Odd while it is being written, as `sync_sample` expects.
        struct.pack_into("<Q", self._memory, _SYNC_AT, generation + 1)
        struct.pack_into("<3Q", self._memory, _SYNC_AT + 8, *sample)
        struct.pack_into("<Q", self._memory, _SYNC_AT, generation + 2)

    def entries(self) -> Entries:
        """A copy of every published entry. Raises InvalidInput where an entry contradicts itself."""
        counts = self._of_clients(_COUNT_AT)
        if max(counts) > self.capacity:
            raise _damaged(self.path, f"a client has {max(counts)} entries in room for {self.capacity}")
        # Where a client still writes: the status is copied before the rest, so what it vouches for is there.
        statuses = [self._view(client, count)["status"].copy() for client, count in enumerate(counts)]
        rows = np.concatenate([self._view(client, count).copy() for client, count in enumerate(counts)])
        clients = np.repeat(np.arange(1, self.clients + 1, dtype=np.uint32), counts)
        sequences = np.concatenate([np.arange(1, count + 1, dtype=np.uint64) for count in counts])
        columns = {name: rows[name] for name in _COLUMNS}
        columns["status"] = np.concatenate(statuses)
        # An end without an acknowledged status is an acknowledgement that the kill cut off: it does not
        # count.
        unanswered = columns["status"] != ACKNOWLEDGED
        columns["end"] = np.where(unanswered, 0, columns["end"])
        columns["end_ns"] = np.where(unanswered, 0, columns["end_ns"])
        entries = Entries(client=clients, sequence=sequences, **columns)
        self._check(entries)
        return entries

    def _view(self, client: int, count: int) -> NDArray[np.void]:
        offset = entries_offset(self.clients) + client * self.capacity * ENTRY_BYTES
        return np.frombuffer(self._memory, dtype=ENTRY, count=count, offset=offset)

    def _check(self, entries: Entries) -> None:
        acknowledged, position = entries.acknowledged, self.position
        faults = {
            "is acknowledged without an end position": acknowledged & (entries.end == 0),
            "ends before it begins": acknowledged & (entries.end < entries.begin),
            "begins at no position": entries.begin == 0,
            "has a position that was never reached": (entries.begin > position) | (entries.end >= position),
            "has an unknown status": entries.status > FAILED,
            "has an unknown kind": (entries.kind < KIND_INSERT) | (entries.kind > KIND_READ_MODIFY_WRITE),
        }
        for fault, wrong in faults.items():
            if wrong.any():
                first = int(np.argmax(wrong))
                raise _damaged(
                    self.path,
                    f"entry {entries.sequence[first]} of client {entries.client[first]} {fault}",
                )

    def _of_clients(self, offset: int) -> list[int]:
        return [self._u64(HEADER_BYTES + CLIENT_BYTES * client + offset) for client in range(self.clients)]

    def _u64(self, offset: int) -> int:
        # One aligned load: numpy reads the 8 bytes at once, a bytes slice need not.
        return int(np.frombuffer(self._memory, dtype="<u8", count=1, offset=offset)[0])


def entries_offset(clients: int) -> int:
    """Where the entries of the first client begin."""
    return (HEADER_BYTES + CLIENT_BYTES * clients + 4095) // 4096 * 4096


def file_bytes(clients: int, capacity: int) -> int:
    """The size of a ledger; untouched pages take no memory."""
    return entries_offset(clients) + ENTRY_BYTES * clients * capacity


def _clients_and_capacity(memory: mmap.mmap) -> tuple[int, int]:
    clients = int(struct.unpack_from("<I", memory, 16)[0])
    capacity = int(struct.unpack_from("<Q", memory, _CAPACITY_AT)[0])
    return clients, capacity


def _header_fault(memory: mmap.mmap) -> str:
    magic, header, entry = struct.unpack_from("<8sII", memory, 0)
    clients, capacity = _clients_and_capacity(memory)
    if magic != MAGIC:
        return "it does not begin with the ledger's magic bytes"
    if (header, entry) != (HEADER_BYTES, ENTRY_BYTES):
        return f"header and entry sizes {header} and {entry} are of another version"
    if clients == 0 or capacity == 0:
        return "it has no clients or no entries"
    if len(memory) != file_bytes(clients, capacity):
        return f"it has {len(memory)} bytes instead of {file_bytes(clients, capacity)}"
    return ""


def _no_room(path: Path, error: OSError) -> MachineLacks:
    size = f" of {path.stat().st_size >> 20} MiB" if path.exists() else ""
    return MachineLacks(f"no room for a ledger{size}: {error.strerror}", where=str(path), hint=_NO_ROOM_HINT)


def _damaged(path: Path, why: str) -> InvalidInput:
    return InvalidInput(f"no usable ledger: {why}", where=str(path), hint="repeat the run with a new ledger")
