"""RocksDB's verdict table, one seed a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crashlab_tests.rocksdb_table import TABLE
from tests.crashlab_tests.verdict_rows import CheckedBatch, open_batch
from tests.crashlab_tests.verdict_table import Row, wrong

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory, seed: int) -> Iterator[CheckedBatch]:
    with open_batch(TABLE, tmp_path_factory.mktemp("rocksdb"), seed) as batch:
        yield batch


def test_every_control_is_right(batch: CheckedBatch) -> None:
    batch.assert_controls_are_right()


@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.name)
def test_row(batch: CheckedBatch, row: Row, seed: int, tmp_path: Path) -> None:
    batch.assert_row_is_right(row, seed, tmp_path)


@pytest.mark.parametrize(
    ("words", "is_right"), [("error reading trailing data", True), ("no such table", False)]
)
def test_a_kill_may_break_a_row_by_a_torn_write_alone(
    batch: CheckedBatch, words: str, is_right: bool, seed: int, tmp_path: Path
) -> None:
    (row,) = (row for row in TABLE.rows if row.torn_log)
    evidence = batch.run(row, seed, tmp_path)
    assert evidence.killed is not None and evidence.killed.recovered is not None
    refused = replace(
        evidence.killed.recovered, recovered=False, stage="recover", error=f"Corruption: {words}"
    )
    planted = replace(evidence, killed=replace(evidence.killed, recovered=refused))
    assert (wrong(TABLE, row, planted) == []) is is_right
