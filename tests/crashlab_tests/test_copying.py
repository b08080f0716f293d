"""Copies: of sparse files with no more room than what was written, of folders without their process' own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashlab.copying import clone_folder, copy_sparse
from engines.rocksdb.log_reader import RocksdbLogReader

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


@pytest.mark.parametrize("place", ["/dev/shm", None], ids=["across file systems", "within one"])
def test_a_clone_is_the_same_but_for_what_belongs_to_a_process(tmp_path: Path, place: str | None) -> None:
    files = {
        "000001.sst": b"table",
        "000002.log": b"l" * 70_000,
        "inner/MANIFEST-000003": b"",
        "empty/x": b"1",
    }
    origin = tmp_path / "origin"
    for name, content in {**files, "LOCK": b"", "LOG": b"opened"}.items():
        (origin / name).parent.mkdir(parents=True, exist_ok=True)
        (origin / name).write_bytes(content)
    with tempfile.TemporaryDirectory(dir=place, prefix="duratune-test-") as folder:
        clone = Path(folder) / "clone"
        clone_folder(origin, clone, RocksdbLogReader())
        found = {p.relative_to(clone).as_posix(): p.read_bytes() for p in clone.rglob("*") if p.is_file()}
        assert found == files
        same = {name for name in files if (clone / name).samefile(origin / name)}
        is_one = origin.stat().st_dev == clone.stat().st_dev
        assert same == ({"000001.sst"} if is_one else set())
        (clone / "000002.log").write_bytes(b"changed")
    assert (origin / "000002.log").read_bytes() == files["000002.log"]
