from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.postgresql import binaries, server_user
from knobs.errors import MachineLacks
from knobs.native import find

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def native_parts() -> None:
    """Skips, with the package names, where the driver or the reader of RocksDB's options is not built."""
    for name in ("duratune-ycsb", "duratune-rocksdb-options", "libduratune_record.so"):
        try:
            find(name)
        except MachineLacks as error:
            pytest.skip(f"{error}; {error.hint}")


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A folder in memory: a study's database on a disk spends most of a test's time on its syncs."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY, prefix="tuner-test-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def postgresql() -> str:
    """The major version of the PostgreSQL that is used; skips, with the reason, where there is none."""
    try:
        server_user.choose()
        return str(binaries.find().version.major)
    except MachineLacks as error:
        pytest.skip(f"{error}; {error.hint}")
