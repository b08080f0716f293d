"""The virtual disk's own canary: bytes that reach the disk and are not flushed must be gone after a cut.

A file is written and synced, written over, and handed to the disk by sync_file_range(2), which flushes
nothing. A recorder that took such a write for durable would call every loss of it impossible.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

from crashlab.block.disk_log import disk_of
from crashlab.block.states import DiskStates, NotMounted
from crashlab.models import MODELS
from crashlab.states.horizon import Horizons
from workloads.ledger import Ledger

NAME = "disk-canary"
KEPT, LOST = b"kept" * 1024, b"lost" * 1024
"""A block's worth of each, so that no other write has to come with it."""
_RANGE_WRITTEN = 7
"""SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE and _WAIT_AFTER: it returns when the disk has the bytes."""


@dataclass(frozen=True)
class DiskCanary:
    """One that has been done: where it had ended."""

    position: int

    @staticmethod
    def run(root: Path, ledger: Path) -> DiskCanary:
        """Do it in a file that is gone afterwards. Raises OSError where the disk does not do what it is
        told."""
        path = root / NAME
        with path.open("xb", buffering=0) as file, Ledger.open(ledger) as counter:
            file.write(KEPT)
            os.fsync(file.fileno())
            os.pwrite(file.fileno(), LOST, 0)
            libc = ctypes.CDLL(None, use_errno=True)
            size = ctypes.c_int64(len(LOST))
            if libc.sync_file_range(file.fileno(), ctypes.c_int64(0), size, _RANGE_WRITTEN) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(path))
            position = counter.position
        path.unlink()
        return DiskCanary(position)

    def faults(self, folder: Path, file_system: str, parent: Path) -> list[str]:
        """What of it is wrong in the disk's log of a recording; ``parent`` takes a state of the disk."""
        disk = disk_of(folder)
        image = MODELS["synced"].image(disk, Horizons(disk), self.position, 0)
        try:
            with DiskStates(folder, file_system).built(image, parent / "canary") as database:
                found = database.parent / NAME
                content = found.read_bytes() if found.exists() else b""
        except NotMounted as error:
            return [f"disk: after a cut behind the canary {error}"]
        if content == KEPT:
            return []
        return [f"disk: after a cut the canary has {len(content)} bytes that are not those of its sync"]
