"""What tests of virtual disks share."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from crashlab.block import recorder as block
from knobs.errors import MachineLacks

KINDS = ("ext4", "xfs", "btrfs")


def need_disks(kind: str = "ext4") -> None:
    """Skip where this machine cannot have a virtual disk with this file system."""
    try:
        block.enter(kind)
    except MachineLacks as error:
        pytest.skip(f"no virtual disk here: {error}")


def loop_devices() -> set[tuple[str, str]]:
    """Every loop device in use, and its file."""
    found = set()
    for name in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it has just gone
            found.add((name.parts[3], name.read_text().strip()))
    return found


def loops_over(folder: Path) -> list[str]:
    """The loop devices whose file lies, or lay, below a folder."""
    return [name for name, file in loop_devices() if file.startswith(os.fspath(folder))]
