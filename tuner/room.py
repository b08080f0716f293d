"""Whether what a run is asked for fits this machine: the data on the disk, ledger and log in shared memory.

Not covered: what another process takes while the run goes on; a full disk is told when it comes.
"""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

from engines import host
from engines.scratch import SHARED_MEMORY_FOLDER
from knobs.errors import MachineLacks
from tuner.kinds.family import Described

SHARED_MEMORY_BYTES_MIN = 48 << 20
ADDRESS_SPACE_BYTES_MIN = 4 << 30
"""For a ledger of 16 clients and a few seconds, a full write log, and the libraries of either process."""


def check_shared_memory(folder: Path = SHARED_MEMORY_FOLDER) -> None:
    """Ledger and write log lie in /dev/shm; a run that finds no room there dies by SIGBUS, without a word.

    Raises MachineLacks where it is not there, cannot be written or has not SHARED_MEMORY_BYTES_MIN free.
    """
    # access(2) also says no to root where the file system is mounted read-only.
    if not os.access(folder, os.W_OK | os.X_OK):
        raise MachineLacks(
            "shared memory is not there, or cannot be written",
            where=str(folder),
            hint="mount a tmpfs there that this user can write (docker: --shm-size=1g)",
        )
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < SHARED_MEMORY_BYTES_MIN:
        raise MachineLacks(
            f"{free_bytes >> 20} MiB of shared memory free, {SHARED_MEMORY_BYTES_MIN >> 20} needed",
            where=str(folder),
            hint="make it larger (docker: --shm-size=1g)",
        )


def check_address_space() -> None:
    """Ledger and write log are mapped whole, beside what the engine and the judging take.

    Raises MachineLacks where RLIMIT_AS (setrlimit(2)) allows less than ADDRESS_SPACE_BYTES_MIN.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < ADDRESS_SPACE_BYTES_MIN:
        raise MachineLacks(
            f"a process may map {limit >> 20} MiB at most, and {ADDRESS_SPACE_BYTES_MIN >> 20} are needed",
            where="RLIMIT_AS",
            hint="ulimit -v unlimited",
        )


def check_disk(load: Described, folder: Path) -> None:
    """A load that cannot fit is refused before it begins, and not when hours later the disk is full.

    Raises MachineLacks with the space that is needed and the space that is free.
    """
    free_bytes = host.file_system(folder).free_bytes
    if load.data_bytes > free_bytes:
        raise MachineLacks(
            f"{load.data_bytes / (1 << 20):,.0f} MiB of space needed, {free_bytes >> 20:,} MiB free: "
            f"{load.arithmetic}",
            where=str(folder.parent),
            hint=load.hint,
        )
