"""A state made over from the one before has nothing of it left."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from crashlab.states.disk import BaseFile, Disk, Image, build_image
from crashlab.states.materialise import FILES_COPIED_AT_ONCE_MIN, Materialiser
from engines.postgresql.log_reader import PostgresqlLogReader

FILES = FILES_COPIED_AT_ONCE_MIN + 5
Folder = Callable[[Path], object]


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def write_in_place(path: Path) -> None:
    """What a server does; the size stays."""
    with path.open("r+b") as file:
        file.write(b"X")


def put_another(path: Path) -> None:
    """A new file of the same size in its place."""
    size = path.stat().st_size
    path.unlink()
    path.with_name("new").write_bytes(b"Y" * size)
    path.with_name("new").rename(path)


def add_folder(path: Path) -> None:
    (path.parent / "inner").mkdir()
    (path.parent / "inner" / "1").touch()


def swap(path: Path) -> None:
    """Two of the base's own files of one size and age change their names."""
    other = path.with_name("17")
    path.rename(path.with_name("aside"))
    other.rename(path)
    path.with_name("aside").rename(other)


CHANGES: dict[str, Folder] = {
    "nothing": lambda path: path,
    "written in place": write_in_place,
    "grown": grow,
    "cut": lambda path: os.truncate(path, 3),
    "removed": lambda path: path.unlink(),
    "replaced": put_another,
    "swapped": swap,
    "linked twice": lambda path: os.link(path, path.with_name("18x")),
    "a new file": lambda path: path.with_name("999").write_bytes(b"new"),
    "a new folder": add_folder,
    "a folder removed": lambda path: (path.parents[1] / "empty").rmdir(),
    "a link to elsewhere": lambda path: path.with_name("link").symlink_to("/"),
}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    base = tmp_path / "base"
    (base / "data/base/5").mkdir(parents=True)
    (base / "data/base/empty").mkdir()
    for number in range(FILES):
        path = base / f"data/base/5/{number}"
        path.write_bytes(f"content {number:03}".encode())
        os.utime(path, ns=(10**18, 10**18))
    return base


def image_of(base: Path) -> Image:
    files = [path for path in base.rglob("*") if path.is_file()]
    known = [
        BaseFile.kept(f"db/{path.relative_to(base)}", path.stat().st_ino, path) for path in sorted(files)
    ]
    folders = ["db", *(f"db/{path.relative_to(base)}" for path in base.rglob("*") if path.is_dir())]
    return build_image(Disk(known, dict.fromkeys(folders, 0), []), lambda _: True, lambda _: ())


def content(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_an_engine_has_changed_is_the_bases_own_again(
    base: Path, tmp_path: Path, change: Folder
) -> None:
    image, materialiser = image_of(base), Materialiser(tmp_path, base, PostgresqlLogReader())
    database = materialiser.build(image, tmp_path / "state")
    change(database / "data/base/5/16")
    assert materialiser.build(image, tmp_path / "state") == database
    assert content(database) == content(base)
    assert len({path.stat().st_ino for path in database.rglob("*")}) == len(content(base))


def test_an_unchanged_file_is_left_alone(base: Path, tmp_path: Path) -> None:
    image, materialiser = image_of(base), Materialiser(tmp_path, base, PostgresqlLogReader())
    path = materialiser.build(image, tmp_path / "state") / "data/base/5/16"
    before = path.stat()
    materialiser.build(image, tmp_path / "state")
    assert (path.stat().st_ino, path.stat().st_ctime_ns) == (before.st_ino, before.st_ctime_ns)
