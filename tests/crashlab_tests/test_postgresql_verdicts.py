"""PostgreSQL's verdict table, one seed a row, on the distribution's version and some of it on the newest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crashlab_tests.postgresql_table import NEWEST_ROWS, TABLE, table_of
from tests.crashlab_tests.verdict_rows import CheckedBatch, open_batch
from tests.crashlab_tests.verdict_table import Row
from tests.engines_tests import newest_postgresql

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory, seed: int) -> Iterator[CheckedBatch]:
    with open_batch(TABLE, tmp_path_factory.mktemp("postgresql"), seed) as batch:
        yield batch


def test_every_control_is_right(batch: CheckedBatch) -> None:
    batch.assert_controls_are_right()


@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.name)
def test_row(batch: CheckedBatch, row: Row, seed: int, tmp_path: Path) -> None:
    batch.assert_row_is_right(row, seed, tmp_path)


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory, seed: int) -> Iterator[CheckedBatch]:
    with newest_postgresql.unpacked() as found:
        table = table_of(lambda: found, NEWEST_ROWS)
        with open_batch(table, tmp_path_factory.mktemp("newest"), seed) as batch:
            yield batch


def test_every_control_is_right_on_the_newest(newest: CheckedBatch) -> None:
    newest.assert_controls_are_right()


@pytest.mark.parametrize("row", NEWEST_ROWS, ids=lambda row: row.name)
def test_row_on_the_newest(newest: CheckedBatch, row: Row, seed: int, tmp_path: Path) -> None:
    newest.assert_row_is_right(row, seed, tmp_path)
