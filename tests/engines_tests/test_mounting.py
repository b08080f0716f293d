"""Loop devices and mounts: made, seen by nobody else, and gone with whatever held them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines import mounting
from engines.host import mounts, mounts_below
from engines.scratch import Scratch, sweep
from knobs.errors import MachineLacks, Undecided

ROOM_BYTES = 16 << 20

if os.geteuid() != 0 or not mounting.LOOP_CONTROL.exists():
    pytest.skip("mounting needs root and loop devices", allow_module_level=True)


@pytest.fixture(scope="module", autouse=True)
def own_table() -> None:
    try:
        mounting.enter_own_table()
    except MachineLacks as error:
        pytest.skip(f"no mounts here: {error}")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image"
    with path.open("wb") as file:
        file.truncate(ROOM_BYTES)
    assert mounting.run(["mkfs.ext4", "-q", "-F", str(path)]) is None
    return path


def attached(image: Path) -> list[str]:
    """The loop devices over this file (losetup(8))."""
    said = subprocess.run(["losetup", "-j", str(image), "-n", "-O", "NAME"], capture_output=True, text=True)
    return said.stdout.split()


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "mount"
    point.mkdir()
    yield point
    assert mounts_below(tmp_path) == []


def test_a_mount_holds_what_is_written_and_its_device_goes_with_it(image: Path, at: Path) -> None:
    with mounting.loop_device(image) as device:
        mounting.mount(device, at, "ext4", "noatime")
        (at / "file").write_text("there")
        assert attached(image) == [str(device)]
        [found] = mounts_below(at)
        assert found.type == "ext4" and "noatime" in found.options
    mounting.unmount(at)
    assert attached(image) == [] and not list(at.iterdir())
    with mounting.loop_device(image, read_only=True) as device:
        mounting.mount(device, at, "ext4", "ro")
        assert (at / "file").read_text() == "there"
        mounting.unmount(at)


def test_what_cannot_be_mounted_is_told_with_the_kernels_words(tmp_path: Path, at: Path) -> None:
    (tmp_path / "zeros").write_bytes(bytes(ROOM_BYTES))
    with (
        mounting.loop_device(tmp_path / "zeros") as device,
        pytest.raises(Undecided, match="ext4 cannot be mounted: ") as refused,
    ):
        mounting.mount(device, at, "ext4")
    assert str(device) not in refused.value.what and refused.value.where == str(at)
    assert attached(tmp_path / "zeros") == []


def test_unmounting_waits_for_what_has_just_ended(image: Path, at: Path) -> None:
    with mounting.loop_device(image) as device:
        mounting.mount(device, at, "ext4")
    with subprocess.Popen(["sleep", "0.3"], cwd=at):
        mounting.unmount(at)
    assert mounts_below(at) == []


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(MachineLacks, match=r"mkfs\.none is not installed"):
        mounting.run(["mkfs.none"])


def test_nobody_else_sees_a_mount(image: Path, at: Path) -> None:
    with mounting.loop_device(image) as device:
        mounting.mount(device, at, "ext4")
    ours = Path("/proc/self/ns/mnt").readlink()
    others = [
        table
        for table in Path("/proc").glob("[0-9]*/mountinfo")
        if _table_of(table.parent) not in (None, ours) and any(m.mount_point == at for m in mounts(table))
    ]
    mounting.unmount(at)
    assert others == []


def _table_of(process: Path) -> Path | None:
    try:
        return (process / "ns" / "mnt").readlink()
    except OSError:
        return None


HOLDER = """
import sys, time
from pathlib import Path
from engines import mounting
from engines.scratch import Scratch
mounting.enter_own_table()
scratch = Scratch()
folder = scratch.folder(Path(sys.argv[1]), "mounted")
(folder / "at").mkdir()
with mounting.loop_device(Path(sys.argv[2])) as device:
    mounting.mount(device, folder / "at", "ext4")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_a_process_that_is_killed_leaves_neither_mount_nor_device(image: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path), str(image)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert attached(image) and mounts_below(tmp_path) == []
        process.send_signal(signal.SIGKILL)
        process.wait()
    ends_s = time.monotonic() + 10.0
    while attached(image) and time.monotonic() < ends_s:
        time.sleep(0.05)
    assert attached(image) == []
    assert sweep().removed == [folder] and not folder.exists()


def test_what_is_mounted_in_a_scratch_folder_goes_with_it(image: Path, tmp_path: Path) -> None:
    with Scratch() as scratch:
        folder = scratch.folder(tmp_path, "mounted")
        (folder / "at").mkdir()
        with mounting.loop_device(image) as device:
            mounting.mount(device, folder / "at", "ext4")
        (folder / "at" / "file").write_text("there")
    assert not folder.exists() and mounts_below(tmp_path) == []
    assert attached(image) == []
