"""Copies of sparse files: the same bytes, and no more room than what was written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashlab.copying import copy_sparse

MIB = 1 << 20


@pytest.fixture(params=["on a disk", "in shared memory"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Holes are told by both."""
    if request.param == "on a disk":
        yield tmp_path / "source"
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="duratune-test-") as folder:
        yield Path(folder) / "source"


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [(0, b"a")],
        [(5, b"abc"), (3 * MIB + 1, b"x" * 9_000)],
        [(64 * MIB - 1, b"z")],
        [(0, b"q" * MIB), (2 * MIB, b"\0" * 4096), (8 * MIB, b"end")],
    ],
)
def test_a_sparse_copy_is_the_same_and_as_small(
    source: Path, tmp_path: Path, pieces: list[tuple[int, bytes]]
) -> None:
    with source.open("wb") as file:
        file.truncate(64 * MIB)
        for offset, data in pieces:
            file.seek(offset)
            file.write(data)
    target = tmp_path / "target"
    copy_sparse(source, target)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks <= source.stat().st_blocks + 8 * len(pieces)


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "source").touch()
    copy_sparse(tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b""
