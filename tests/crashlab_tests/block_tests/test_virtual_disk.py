"""A virtual disk: what it is told is in its log, what is flushed survives, and nothing of it is left
behind."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from crashlab.block.disk_log import BASE_NAME, CONTENT, LOG_NAME, disk_of, log_faults
from crashlab.block.file_system import FILE_SYSTEMS
from crashlab.block.states import DiskStates, NotMounted
from crashlab.block.virtual_disk import VirtualDisk, make_base
from crashlab.models import MODELS
from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.places import DATABASE_FOLDER
from crashlab.recording.write_log import Kind, WriteLog
from crashlab.states.disk import Disk
from crashlab.states.horizon import Horizons
from engines.host import mounts_below
from engines.scratch import SHARED_MEMORY_FOLDER, Scratch
from tests.crashlab_tests.block_tests.disks import KINDS, loops_over, need_disks
from workloads.ledger import Ledger

pytestmark = pytest.mark.slow

LOG_BYTES = 64 << 20


@dataclass
class Rig:
    """A disk that is served and mounted, its log, and where its recording goes."""

    disk: VirtualDisk
    kind: str
    folder: Path
    shared: Path
    ledger: Ledger

    @property
    def database(self) -> Path:
        return self.disk.mount_point / DATABASE_FOLDER

    def position(self) -> int:
        return self.ledger.position

    def stop(self) -> Disk:
        """Stop it and read what was recorded."""
        self.disk.stop()
        WriteLog.compact(self.shared / LOG_NAME, self.folder / LOG_NAME)
        return disk_of(self.folder)

    def after(self, disk: Disk, model: str, position: int, seed: int, target: Path) -> dict[str, bytes]:
        """The files of the database after this crash, as the real file system brings them back."""
        image = MODELS[model].image(disk, Horizons(disk), position, seed)
        with DiskStates(self.folder, self.kind).built(image, target) as database:
            return {path.name: path.read_bytes() for path in database.iterdir()}


@pytest.fixture(params=KINDS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    kind: str = request.param
    need_disks(kind)
    folder = tmp_path / "recording"
    folder.mkdir()
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "loaded").write_bytes(b"loaded" * 1000)
    with Scratch() as scratch:
        shared, live = scratch.folder(SHARED_MEMORY_FOLDER, "rig"), scratch.folder(tmp_path, "rig")
        (live / "filling").mkdir()
        make_base(FILE_SYSTEMS[kind], tmp_path / "db", folder / BASE_NAME, live / "filling")
        WriteLog.create(shared / LOG_NAME, LOG_BYTES)
        with Ledger.create(shared / "ledger", 1, 10) as ledger:
            disk = VirtualDisk(live, shared, kind, "")
            backing = disk.content.parent
            environment = PreloadRecorder().environment(backing, shared / LOG_NAME, shared / "ledger")
            try:
                disk.start(folder / BASE_NAME, environment, shared / "server.log", None)
                yield Rig(disk, kind, folder, shared, ledger)
            finally:
                disk.stop()
        assert mounts_below(live) == [] and loops_over(live) == []


def write(path: Path, data: bytes, *, synced: bool) -> None:
    with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
        file.write(data)
        if synced:
            os.fsync(file.fileno())


def test_what_was_flushed_survives_and_what_was_not_is_lost(rig: Rig, tmp_path: Path) -> None:
    write(rig.database / "loaded", b"SYNCED", synced=True)
    write(rig.database / "synced", b"new" * 5000, synced=True)
    flushed = rig.position()
    write(rig.database / "loaded", b"UNSYNC", synced=False)
    write(rig.database / "unsynced", b"new" * 5000, synced=False)
    written = rig.position()
    disk = rig.stop()
    for position in (flushed, written):
        for model, seeds in (("synced", (1,)), ("torn", (1, 2, 3)), ("reordered", (1, 2, 3))):
            for seed in seeds:
                found = rig.after(disk, model, position, seed, tmp_path / f"{model}{position}{seed}")
                assert found["loaded"] == b"SYNCED" + (b"loaded" * 1000)[6:]
                assert found["synced"] == b"new" * 5000
                assert found.get("unsynced", b"") in (b"", b"new" * 5000)
    everything = rig.after(disk, "synced", disk.last_position + 1, 1, tmp_path / "everything")
    assert everything["unsynced"] == b"new" * 5000 and everything["loaded"].startswith(b"UNSYNC")


def test_every_sync_of_a_file_is_a_flush_of_the_disk(rig: Rig) -> None:
    marks = []
    for number in range(20):
        before = rig.position()
        write(rig.database / "file", bytes([number]) * 100, synced=True)
        marks.append((before, rig.position()))
    [file] = rig.stop().files
    for before, after in marks:
        assert any(before <= sync.begin and (sync.end or after) < after for sync in file.syncs)


def test_the_log_replayed_is_what_the_disk_holds(rig: Rig, rng: random.Random) -> None:
    for number in range(30):
        data = rng.randbytes(rng.randrange(1, 300_000))
        write(rig.database / f"file{rng.randrange(5)}", data, synced=rng.random() < 0.3)
        if number % 7 == 6:
            next(rig.database.glob("file*")).unlink()
    rig.stop()
    assert log_faults(rig.folder, rig.disk.content, rig.shared) == []
    with rig.disk.content.open("r+b") as file:
        file.seek(1 << 20)
        byte = file.read(1)
        file.seek(1 << 20)
        file.write(bytes([byte[0] ^ 1]))
    [fault] = log_faults(rig.folder, rig.disk.content, rig.shared)
    assert "is not what the disk holds" in fault


def test_discards_are_not_offered_and_zeros_are_written(rig: Rig) -> None:
    path = rig.database / "zeroed"
    write(path, b"x" * 100_000, synced=True)
    descriptor = os.open(path, os.O_RDWR)
    os.posix_fallocate(descriptor, 0, 200_000)
    os.fsync(descriptor)
    os.close(descriptor)
    path.unlink()
    os.sync()
    [file] = rig.stop().files
    assert {change.kind for change in file.changes} == {Kind.WRITE}


def test_a_disk_that_is_cut_off_lets_go(rig: Rig) -> None:
    write(rig.database / "file", b"data", synced=True)
    rig.disk.cut()
    with pytest.raises(OSError):
        write(rig.database / "file", b"more", synced=True)
    rig.disk.stop()
    assert mounts_below(rig.disk.mount_point.parent) == []


def test_a_content_that_no_file_system_makes_sense_of_does_not_mount(rig: Rig, tmp_path: Path) -> None:
    disk = rig.stop()
    with (rig.folder / BASE_NAME).open("r+b") as file:
        file.write(bytes(1 << 20))
    image = MODELS["synced"].image(disk, Horizons(disk), 1, 1)
    target = tmp_path / "broken"
    with pytest.raises(NotMounted, match=rig.kind), DiskStates(rig.folder, rig.kind).built(image, target):
        pass
    assert (target / CONTENT).exists() and mounts_below(tmp_path) == []
