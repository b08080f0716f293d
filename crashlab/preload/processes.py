"""Which processes the preload library was in, and which of those that ran it was not.

Each process reports once when it starts: after an exec (the library was loaded with the program) or
after a fork. Reports are attach records of a write log, or lines of a list of processes where no log is
written (docs/formats.md). A process of the cluster that did not report was not recorded and not
stamped, so nothing may be concluded from that run.

Not covered: a process that reported after its fork and then executed a program which the library cannot
be loaded into (a static one, or one started without the environment), and a process that got the number
of one that had ended in the same run.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from crashlab.recording.write_log import Kind, WriteLog
from knobs.errors import InvalidInput, Undecided

MAGIC = b"DTPROC01"
HEADER_BYTES = 4096
LINE_BYTES = 32
CAPACITY = 1 << 18
"""Lines: what a run starts in processes; untouched pages of them take no memory."""

_COUNT_AT = 64


class Origin(IntEnum):
    """How a process came to have the library; UNSAID in logs that do not tell it."""

    UNSAID = 0
    PROGRAM = 1
    FORK = 2


@dataclass(frozen=True)
class Reported:
    """One report: the process, its parent then (0 where it is not told), how, and when (CLOCK_MONOTONIC)."""

    pid: int
    parent: int
    origin: Origin
    ns: int


class ProcessList:
    """The file that processes report in where no write log is written."""

    @staticmethod
    def create(path: Path, capacity: int = CAPACITY) -> None:
        """Make an empty list, sparse, readable and writable by its owner alone.

        Raises InvalidInput if the path exists or cannot be made, or the capacity is not positive.
        """
        if capacity < 1:
            raise InvalidInput("a list of processes needs room for one", where=str(path))
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InvalidInput(
                f"the list of processes cannot be made: {error.strerror}",
                where=str(path),
                hint="name a path that does not exist, in a folder that does",
            ) from error
        try:
            os.ftruncate(descriptor, HEADER_BYTES + capacity * LINE_BYTES)
            os.pwrite(descriptor, struct.pack("<8sQ", MAGIC, capacity), 0)
        finally:
            os.close(descriptor)

    @staticmethod
    def read(path: Path) -> tuple[Reported, ...]:
        """Every report so far, in order; lines that a kill cut off are left out.

        Raises InvalidInput where the file is no such list, and Undecided where more processes
        reported than it has room for, since the rest is not known.
        """
        try:
            with path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"the list of processes cannot be read: {error}", where=str(path)) from error
        with data:
            if len(data) < HEADER_BYTES or data[:8] != MAGIC:
                raise InvalidInput("is not a list of processes of this version", where=str(path))
            (capacity,) = struct.unpack_from("<Q", data, 8)
            (count,) = struct.unpack_from("<Q", data, _COUNT_AT)
            if len(data) != HEADER_BYTES + capacity * LINE_BYTES:
                raise InvalidInput("the list of processes is cut short", where=str(path))
            if count > capacity:
                raise Undecided(
                    f"{count} processes reported in a list with room for {capacity}",
                    where=str(path),
                    hint="repeat the run with fewer connections, or a larger list",
                )
            lines = (struct.unpack_from("<IIIIQQ", data, HEADER_BYTES + i * LINE_BYTES) for i in range(count))
            return tuple(
                Reported(pid, parent, Origin(origin), ns) for pid, parent, origin, _, ns, _ in lines if pid
            )


def reported_in(log: WriteLog) -> tuple[Reported, ...]:
    """The reports in a write log, in order: its attach records."""
    return tuple(
        Reported(o.a, o.inode, Origin(o.flags), o.begin_ns) for o in log.operations if o.kind is Kind.ATTACH
    )


def unreported(pids: Iterable[int], reports: Iterable[Reported]) -> list[int]:
    """Which of these processes did not report, in their order; empty where every one did."""
    known = {report.pid for report in reports}
    return [pid for pid in pids if pid not in known]
