"""One user at a time for a folder, such as a study's.

The lock is the kernel's (flock(2)), so it ends with the process that holds it, however that ends; the
lock file only says who holds it. It is never deleted: a second process could then lock a file that a
third no longer sees.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from knobs.errors import InvalidInput

LOCK_NAME = ".lock"


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold ``folder`` for this process alone.

    Raises InvalidInput if another process (or another part of this one) holds it, or if the folder
    cannot be written.
    """
    try:
        fd = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise InvalidInput(
            f"cannot be locked: {error.strerror}", where=str(folder), hint="name a folder that can be written"
        ) from error
    try:
        _acquire(fd, folder)
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(_self_description()).encode(), 0)
        yield
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _acquire(fd: int, folder: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidInput(
            f"in use by {_holder(fd)}", where=str(folder), hint="wait for it, or name another folder"
        ) from None


def _self_description() -> dict[str, object]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "command": " ".join(sys.argv), "since": now}


def _holder(fd: int) -> str:
    try:
        holder = json.loads(os.pread(fd, 65536, 0))
        return f"process {holder['pid']} ({holder['command']}) since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"  # It has the lock and has not yet written who it is.
