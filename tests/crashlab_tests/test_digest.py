"""Equal digests mean equal content; what recovery does not read makes no difference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashlab.models import MODELS
from crashlab.states.digest import digest
from crashlab.states.disk import BaseFile, Disk, FileImage, Image, Surviving
from crashlab.states.horizon import Horizons
from engines.rocksdb.log_reader import RocksdbLogReader
from tests.crashlab_tests.tapes import Tape

READER = RocksdbLogReader()


def reads(path: str) -> bool:
    return not READER.unrecorded(path)


def of(image: Image) -> bytes:
    return digest(image, reads)


def run(base: Path) -> tuple[Tape, Disk]:
    """Two logs, a table, a rename and the info log."""
    content = base / "000009.sst"
    content.write_bytes(b"old table")
    tape = Tape()
    tape.create("db/000001.log", 1)
    tape.create("db/LOG", 8)
    for number in range(4):
        tape.write(1, 9_000 * number, bytes([number]) * 9_000)
        tape.write(8, 10 * number, b"0123456789")
        if number % 2:
            tape.fdatasync(1)
    tape.create("db/000002.log", 2)
    tape.write(2, 0, b"b" * 5_000)
    tape.truncate(2, 3_000)
    tape.rename("db/000002.log", "db/000003.log", 2)
    tape.fsync_folder()
    return tape, tape.disk(BaseFile.kept("db/000009.sst", 100, content))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_equal_digests_are_equal_files(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    tape, disk = run(tmp_path_factory.mktemp("base"))
    horizons = Horizons(disk)
    found: dict[bytes, tuple[frozenset[str], dict[str, bytes]]] = {}
    for _ in range(12):
        model = MODELS[data.draw(st.sampled_from(sorted(MODELS)))]
        position = data.draw(st.integers(1, tape.position + 1))
        image = model.image(disk, horizons, position, data.draw(st.integers(0, 20)))
        content = {path: file.content() for path, file in image.files.items() if reads(path)}
        assert found.setdefault(of(image), (image.folders, content)) == (image.folders, content)


def test_what_recovery_does_not_read_makes_no_difference(tmp_path: Path) -> None:
    """A write to the info log changes nothing for recovery, and one to the log does."""
    tape, disk = run(tmp_path)
    horizons = Horizons(disk)
    digests = [of(MODELS["cache"].image(disk, horizons, at, 1)) for at in range(1, tape.position + 2)]
    info = [each for each in tape.operations if each.inode == 8 and each.data]
    log = [each for each in tape.operations if each.inode == 1 and each.data]
    assert all(digests[each.begin - 1] == digests[(each.end or 0)] for each in info)
    assert all(digests[each.begin - 1] != digests[(each.end or 0)] for each in log)


def one(file: FileImage, path: str = "db/000001.log") -> Image:
    return Image(frozenset({"db"}), {path: file})


def test_the_same_content_in_other_words_is_the_same(tmp_path: Path) -> None:
    tape, disk = run(tmp_path)
    write = next(each for each in tape.operations if each.inode == 1 and each.data)
    (file,) = [file for file in disk.files if write in file.changes]
    whole = FileImage(file, (Surviving(write),))
    in_units = FileImage(file, (Surviving(write, ((0, 4096), (4096, 8192), (8192, 9000))),))
    sized = replace(whole, size=9_000)
    assert len({of(one(image)) for image in (whole, in_units, sized)}) == 1
    torn = FileImage(file, (Surviving(write, ((0, 4096), (8192, 9000))),))
    shorter, longer, nothing = replace(whole, size=8_999), replace(whole, size=9_001), FileImage(file, ())
    others = [one(image) for image in (whole, torn, shorter, longer, nothing)]
    others += [
        one(whole, "db/000002.log"),
        Image(frozenset(), one(whole).files),
        Image(frozenset({"db"}), {}),
    ]
    assert len({of(image) for image in others}) == len(others)
