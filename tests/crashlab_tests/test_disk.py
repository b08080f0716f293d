"""The disk's history against a real folder: random operations, all of them surviving, give equal bytes."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashlab.models import MODELS
from crashlab.recording.check import check_writes
from crashlab.recording.write_log import Kind
from crashlab.states.disk import FALLOC_KEEP_SIZE, BaseFile, Disk, Image, Surviving, apply, build_image
from crashlab.states.horizon import Horizons
from crashlab.states.materialise import FILES_COPIED_AT_ONCE_MIN, Materialiser
from engines.rocksdb.log_reader import RocksdbLogReader
from tests.crashlab_tests.tapes import Tape

READER = RocksdbLogReader()


class RecordedFolder:
    """A real folder below ``db`` that is changed by system calls, each of them told to a tape."""

    def __init__(self, root: Path, draw: random.Random) -> None:
        self.root = root
        self.tape = Tape()
        self.draw = draw
        self.descriptors: list[int] = []
        self.numbers = itertools.count()
        (root / "db").mkdir()

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)

    def files(self) -> list[str]:
        return sorted(p.relative_to(self.root).as_posix() for p in self.root.rglob("*") if p.is_file())

    def folders(self) -> list[str]:
        return sorted(p.relative_to(self.root).as_posix() for p in self.root.rglob("*") if p.is_dir())

    def step(self, choice: str) -> None:
        getattr(self, choice)()

    def create(self) -> None:
        path = f"{self.draw.choice(self.folders())}/{next(self.numbers):06d}.log"
        descriptor = os.open(self.root / path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self.descriptors.append(descriptor)
        self.tape.create(path, os.fstat(descriptor).st_ino)

    def write(self) -> None:
        """To any file that is open, those without a name included."""
        if not self.descriptors:
            return
        descriptor = self.draw.choice(self.descriptors)
        offset = self.draw.randrange(0, 9000)
        data = self.draw.randbytes(self.draw.randrange(1, 5000))
        os.pwrite(descriptor, data, offset)
        self.tape.write(os.fstat(descriptor).st_ino, offset, data)

    def truncate(self) -> None:
        if self.descriptors:
            descriptor, size = self.draw.choice(self.descriptors), self.draw.randrange(0, 9000)
            os.ftruncate(descriptor, size)
            self.tape.truncate(os.fstat(descriptor).st_ino, size)

    def fallocate(self) -> None:
        if self.descriptors:
            descriptor, length = self.draw.choice(self.descriptors), self.draw.randrange(1, 9000)
            os.posix_fallocate(descriptor, 100, length)
            self.tape.add(Kind.FALLOCATE, os.fstat(descriptor).st_ino, a=100, b=length)

    def rename(self) -> None:
        if self.files():
            old = self.draw.choice(self.files())
            new = self.draw.choice([*self.files(), f"db/{next(self.numbers):06d}.log"])
            inode = (self.root / old).stat().st_ino
            replaced = (self.root / new).stat().st_ino if (self.root / new).exists() else 0
            (self.root / old).rename(self.root / new)
            self.tape.add(Kind.RENAME, inode, a=replaced, path=old, new_path=new)

    def link(self) -> None:
        if self.files():
            old, new = self.draw.choice(self.files()), f"db/{next(self.numbers):06d}.log"
            os.link(self.root / old, self.root / new)
            self.tape.add(Kind.LINK, (self.root / old).stat().st_ino, path=old, new_path=new)

    def unlink(self) -> None:
        if self.files():
            path = self.draw.choice(self.files())
            inode = (self.root / path).stat().st_ino
            (self.root / path).unlink()
            self.tape.unlink(path, inode)

    def close_one(self) -> None:
        """The last close of a file without a name gives its inode back."""
        if self.descriptors:
            os.close(self.descriptors.pop(self.draw.randrange(len(self.descriptors))))

    def make_folder(self) -> None:
        path = f"{self.draw.choice(self.folders())}/f{next(self.numbers)}"
        (self.root / path).mkdir()
        self.tape.add(Kind.MKDIR, (self.root / path).stat().st_ino, path=path)

    def remove_folder(self) -> None:
        empty = [f for f in self.folders() if f != "db" and not any((self.root / f).iterdir())]
        if empty:
            path = self.draw.choice(empty)
            (self.root / path).rmdir()
            self.tape.add(Kind.RMDIR, path=path)

    def rename_folder(self) -> None:
        others = [folder for folder in self.folders() if folder != "db"]
        if others:
            old, new = self.draw.choice(others), f"db/f{next(self.numbers)}"
            inode = (self.root / old).stat().st_ino
            (self.root / old).rename(self.root / new)
            self.tape.add(Kind.RENAME, inode, path=old, new_path=new)


STEPS = (
    *("create", "write", "write", "write", "truncate", "fallocate", "rename", "link", "unlink"),
    *("close_one", "make_folder", "remove_folder", "rename_folder"),
)


def everything(disk: Disk) -> Image:
    return build_image(disk, lambda _: True, lambda file: tuple(Surviving(change) for change in file.changes))


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("folders")


@given(st.lists(st.sampled_from(STEPS), max_size=60), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_with_everything_surviving_the_image_is_the_folder(room: Path, steps: list[str], seed: int) -> None:
    root = room / f"{len(list(room.iterdir()))}"
    root.mkdir()
    folder = RecordedFolder(root, random.Random(seed))
    for step in steps:
        folder.step(step)
    folder.close()
    disk = folder.tape.disk(folders=("db",))
    image = everything(disk)
    live = {path: (root / path).read_bytes() for path in folder.files()}
    assert {path: file.content() for path, file in image.files.items()} == live
    assert sorted(image.folders) == folder.folders()
    assert check_writes(disk, root, READER) == []
    # After the last position nothing is open, and `cache` keeps it all.
    last = MODELS["cache"].image(disk, Horizons(disk), disk.last_position + 1, seed)
    assert last.identity == image.identity
    for file in image.files.values():
        changes = [Surviving(change) for change in file.file.changes]
        assert apply(file.file.base_bytes(), changes) == file.content()


def test_a_built_state_is_the_image_and_its_tables_are_shared(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "000001.sst").write_bytes(b"a table")
    (base / "000002.log").write_bytes(b"a log")
    (base / "LOG").write_bytes(b"never read back")
    (tmp_path / "pool").mkdir()
    tape = Tape()
    tape.create("db/000003.sst", 3)
    tape.write(3, 0, b"new table")
    tape.write(2, 5, b" and more")
    tape.create("outside", 4)
    names = {"000001.sst": 1, "000002.log": 2, "LOG": 5}
    disk = tape.disk(
        *(BaseFile.kept(f"db/{name}", inode, base / name) for name, inode in names.items()), folders=("db",)
    )
    materialiser = Materialiser(tmp_path / "pool", base, READER)
    built = [materialiser.build(everything(disk), tmp_path / name) for name in ("one", "two")]
    for database in built:
        content = {path.name: path.read_bytes() for path in database.iterdir()}
        assert content == {
            "000001.sst": b"a table",
            "000002.log": b"a log and more",
            "000003.sst": b"new table",
        }
    assert (built[0] / "000001.sst").stat().st_ino == (base / "000001.sst").stat().st_ino
    assert (built[0] / "000003.sst").stat().st_ino == (built[1] / "000003.sst").stat().st_ino
    # What recovery writes to must never be shared.
    assert (built[0] / "000002.log").stat().st_ino != (built[1] / "000002.log").stat().st_ino
    assert (base / "000002.log").read_bytes() == b"a log"


@pytest.mark.parametrize("files", [5, FILES_COPIED_AT_ONCE_MIN], ids=["one by one", "copied at once"])
def test_a_base_of_few_files_or_many_is_changed_alike(tmp_path: Path, files: int) -> None:
    base = tmp_path / "base"
    for folder in ("base/kept", "base/gone", "pool"):
        (tmp_path / folder).mkdir(parents=True)
    names = [f"{number:06d}.log" for number in range(files)]
    names += ["000900.sst", "000901.sst", "gone/000001.log", "LOG"]
    for name in names:
        (base / name).write_bytes(f"content of {name}".encode())
    inode = {name: number for number, name in enumerate(names, 1)}
    tape = Tape()
    tape.write(inode["000000.log"], 11, b"X")
    tape.truncate(inode["000001.log"], 3)
    tape.rename("db/000002.log", "db/000777.log", inode["000002.log"])
    tape.write(inode["000002.log"], 0, b"recycled")
    tape.rename("db/000003.log", "db/000004.log", inode["000003.log"])
    tape.unlink("db/000900.sst", inode["000900.sst"])
    tape.unlink("db/gone/000001.log", inode["gone/000001.log"])
    tape.add(Kind.RMDIR, path="db/gone")
    tape.create("db/kept/000888.log", 1000)
    tape.write(1000, 0, b"new")
    wanted = {name: f"content of {name}".encode() for name in names}
    for name in ("000002.log", "000003.log", "000900.sst", "gone/000001.log", "LOG"):
        del wanted[name]
    wanted |= {
        "000000.log": b"content of X00000.log",
        "000001.log": b"con",
        "000777.log": b"recycledof 000002.log",
        "000004.log": b"content of 000003.log",
        "kept/000888.log": b"new",
    }
    bases = [BaseFile.kept(f"db/{name}", inode[name], base / name) for name in names]
    disk = tape.disk(*bases, folders=("db", "db/kept", "db/gone"))
    database = Materialiser(tmp_path / "pool", base, READER).build(everything(disk), tmp_path / "state")
    found = {p.relative_to(database).as_posix(): p.read_bytes() for p in database.rglob("*") if p.is_file()}
    assert found == wanted
    assert [path.name for path in database.iterdir() if path.is_dir()] == ["kept"]
    assert all((base / name).read_bytes() == f"content of {name}".encode() for name in names)


def test_two_lives_of_one_table_are_two_contents_in_the_pool(tmp_path: Path) -> None:
    for name in ("pool", "base"):
        (tmp_path / name).mkdir()
    tape = Tape()
    tape.create("db/000003.sst", 3)
    tape.write(3, 0, b"whole table")
    disk = tape.disk(folders=("db",))
    materialiser = Materialiser(tmp_path / "pool", tmp_path / "base", READER)
    half = build_image(
        disk, lambda _: True, lambda file: tuple(Surviving(change, ((0, 5),)) for change in file.changes)
    )
    for name, image, wanted in (("half", half, b"whole"), ("whole", everything(disk), b"whole table")):
        database = materialiser.build(image, tmp_path / name)
        assert (database / "000003.sst").read_bytes() == wanted


def test_fallocate_grows_a_file_unless_told_to_keep_its_size() -> None:
    tape = Tape()
    tape.create("db/a", 1)
    tape.add(Kind.FALLOCATE, 1, a=0, b=100, flags=FALLOC_KEEP_SIZE)
    assert everything(tape.disk()).files["db/a"].content() == b""
    tape.add(Kind.FALLOCATE, 1, a=0, b=100)
    assert everything(tape.disk()).files["db/a"].content() == bytes(100)


def test_a_short_write_wrote_what_it_says() -> None:
    tape = Tape()
    tape.create("db/a", 1)
    tape.add(Kind.WRITE, 1, data=b"all of it", result=3)
    assert everything(tape.disk()).files["db/a"].content() == b"all"


def test_a_call_that_failed_changed_nothing() -> None:
    tape = Tape()
    tape.create("db/a", 1)
    tape.add(Kind.WRITE, 1, data=b"x", result=-28)
    tape.add(Kind.UNLINK, 1, path="db/a", result=-13)
    tape.add(Kind.TRUNCATE, 1, a=9, result=-27)
    assert everything(tape.disk()).files["db/a"].content() == b""
