"""Whether what a run is asked for fits this machine: the data on the disk, ledger and log in shared memory.

Not covered: what another process takes while the run goes on; a full disk is told when it comes.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Mapping
from pathlib import Path

from engines import host
from engines.scratch import SHARED_MEMORY_FOLDER
from knobs.errors import InvalidInput, MachineLacks
from tuner.options import SCALE_MAX
from workloads.ycsb.workload import YcsbWorkload

SHARED_MEMORY_BYTES_MIN = 48 << 20
ADDRESS_SPACE_BYTES_MIN = 4 << 30
"""For a ledger of 16 clients and a few seconds, a full write log, and the libraries of either process."""
KEY_BYTES, VALUE_HEADER_BYTES, FIELD_LENGTHS_BYTES = 23, 32, 8
"""`user` and 19 digits; the header of docs/formats.md; YCSB's two lengths of a field's name and bytes."""
DATA_COPIES = 2
"""A compaction keeps its input until its output is whole; clones share the tables, which are most of it."""
RECORDS_MAX, RECORD_BYTES_MAX = 1_000 * SCALE_MAX, 1 << 30
"""What a workload may ask for: loading the first takes days; RocksDB takes no value of 4 GiB or more."""


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


def check_disk(workload: YcsbWorkload, folder: Path) -> None:
    """A load that cannot fit is refused before it begins, and not when hours later the disk is full.

    Raises MachineLacks with the space that is needed and the space that is free.
    """
    needed, free_bytes = DATA_COPIES * data_bytes(workload), host.file_system(folder).free_bytes
    if needed > free_bytes:
        raise MachineLacks(
            f"{needed / (1 << 20):,.0f} MiB of space needed, {free_bytes >> 20:,} MiB free: "
            f"{workload.initial_records} records of {record_bytes(workload.properties)} bytes, "
            f"{DATA_COPIES} times for what compactions and updates add",
            where=str(folder.parent),
            hint="fewer records (--scale), smaller ones (-p fieldlength), or a larger disk (--data)",
        )


def record_bytes(properties: Mapping[str, str]) -> int:
    """The bytes of one record, key included, whose fields are as long as they may be (docs/formats.md)."""
    name_bytes = len(properties["fieldnameprefix"]) + 1
    field_bytes = name_bytes + int(properties["fieldlength"]) + FIELD_LENGTHS_BYTES
    return KEY_BYTES + VALUE_HEADER_BYTES + int(properties["fieldcount"]) * field_bytes


def data_bytes(workload: YcsbWorkload) -> int:
    """The bytes of all records that are loaded, not compressed: random fields hardly can be."""
    return workload.initial_records * record_bytes(workload.properties)


def refuse_too_much(workload: YcsbWorkload, where: str) -> None:
    """Raises InvalidInput for a data set beyond RECORDS_MAX or RECORD_BYTES_MAX; ``where`` asks for it."""
    asked = int(workload.properties["recordcount"])
    if asked > RECORDS_MAX:
        raise InvalidInput(
            f"recordcount={asked} is above the limit of {RECORDS_MAX}", where=where, hint="load fewer records"
        )
    one = record_bytes(workload.properties)
    if one > RECORD_BYTES_MAX:
        raise InvalidInput(
            f"fieldcount and fieldlength make records of {one} bytes; the limit is {RECORD_BYTES_MAX}",
            where=where,
            hint="make them smaller",
        )
