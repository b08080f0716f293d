"""RocksDB's verdict table, one seed a row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crashlab_tests.rocksdb_table import TABLE
from tests.crashlab_tests.verdict_rows import (
    Batch,
    assert_controls_are_right,
    assert_row_is_right,
    open_batch,
)
from tests.crashlab_tests.verdict_table import Row

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory, seed: int) -> Iterator[Batch]:
    with open_batch(TABLE, tmp_path_factory.mktemp("rocksdb"), seed) as batch:
        yield batch


def test_every_control_is_right(batch: Batch) -> None:
    assert_controls_are_right(batch)


@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.name)
def test_row(batch: Batch, row: Row, seed: int, tmp_path: Path) -> None:
    assert_row_is_right(batch, row, seed, tmp_path)
