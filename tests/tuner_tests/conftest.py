from __future__ import annotations

import pytest

from knobs.errors import MachineLacks
from knobs.native import find


@pytest.fixture(scope="session")
def native_parts() -> None:
    """Skips, with the package names, where the driver or the reader of RocksDB's options is not built."""
    for name in ("duratune-ycsb", "duratune-rocksdb-options", "libduratune_record.so"):
        try:
            find(name)
        except MachineLacks as error:
            pytest.skip(f"{error}; {error.hint}")
