"""Mounts, and the loop devices below them: made, and taken away with whatever is left in a scratch folder.

A loop device is made with autoclear (loop(4)), so it goes with its last mount. Mounts are made in a mount
table of duratune's own (mount_namespaces(7)): nobody else sees them, and they go with the last of its
processes, however that ended. Where that table is shared all the same, what lies below a scratch folder is
unmounted before the folder is removed. Needs CAP_SYS_ADMIN.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engines.host import file_system, mounts_below
from knobs.errors import MachineLacks, Undecided

LOOP_CONTROL = Path("/dev/loop-control")
BUSY_DEADLINE_S = 10.0
ATTEMPTS_MAX = 20
COMMAND_DEADLINE_S = 120.0
_CLONE_NEWNS = 0x00020000
_MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x4000, 0x40000, 2
_LOOP_CONFIGURE, _LOOP_CTL_GET_FREE = 0x4C0A, 0x4C82
_LO_FLAGS_AUTOCLEAR = 4
_LOOP_CONFIG_BYTES, _LOOP_FLAGS_AT, _LOOP_NAME_AT = 304, 60, 64
"""struct loop_config of <linux/loop.h>: the file, the block size, a loop_info64, and room to spare."""

SERVED_TYPE = "fuse.duratune"
"""The type of a mount that serves a virtual disk."""


@functools.cache
def enter_own_table() -> None:
    """Give this process, and every one that it starts from now on, a mount table of its own; once.

    Called by the main thread, before there are others. Raises MachineLacks where this process may not.
    """
    assert threading.current_thread() is threading.main_thread(), "other threads would keep the old table"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        raise _lacks("make a mount table of its own", ctypes.get_errno())
    if libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) != 0:
        raise _lacks("keep its mounts to itself", ctypes.get_errno())


@contextmanager
def loop_device(file: Path, read_only: bool = False) -> Iterator[Path]:
    """A loop device over a file; it is gone when this ends and nothing is mounted from it any more.

    Raises MachineLacks where none can be had.
    """
    flags = os.O_RDONLY if read_only else os.O_RDWR
    backing = os.open(file, flags | os.O_CLOEXEC)
    try:
        device, descriptor = _attached(backing, file, flags)
    finally:
        os.close(backing)
    try:
        yield device
    finally:
        os.close(descriptor)


def _attached(backing: int, file: Path, flags: int) -> tuple[Path, int]:
    config = bytearray(_LOOP_CONFIG_BYTES)
    struct.pack_into("=I", config, 0, backing)
    struct.pack_into("=I", config, _LOOP_FLAGS_AT, _LO_FLAGS_AUTOCLEAR | (flags == os.O_RDONLY))
    name = os.fsencode(file)[:63]
    config[_LOOP_NAME_AT : _LOOP_NAME_AT + len(name)] = name
    try:
        control = os.open(LOOP_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise _lacks("open the loop devices' control", error.errno or 0) from error
    try:
        for _ in range(ATTEMPTS_MAX):
            device = Path(f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}")
            try:
                descriptor = os.open(device, flags | os.O_CLOEXEC)
            except OSError as error:
                raise _lacks(f"open {device}", error.errno or 0) from error
            try:
                fcntl.ioctl(descriptor, _LOOP_CONFIGURE, bytes(config))
                return device, descriptor
            except OSError as error:
                os.close(descriptor)
                if error.errno != errno.EBUSY:
                    raise _lacks(f"attach a file to {device}", error.errno or 0) from error
                # Another process has taken it in between.
    finally:
        os.close(control)
    raise _lacks("get a free loop device", errno.EBUSY)


def mount(device: Path, at: Path, kind: str, options: str = "") -> None:
    """Mount a file system of this kind. Raises Undecided with the kernel's words where it cannot be, and
    where something else is found there afterwards."""
    command = ["mount", "-t", kind, *(["-o", options] if options else []), str(device), str(at)]
    said = run(command)
    if said is not None:
        words = said.removeprefix("mount: ").removeprefix(f"{at}: ").partition(" dmesg(1)")[0]
        raise Undecided(f"{kind} cannot be mounted: {words.replace(f' on {device}', '')}", where=str(at))
    found = file_system(at)
    # A mount that failed silently would let everything land on the disk below, where every cut passes.
    if (found.type, found.mount_point) != (kind, at.resolve()):
        raise Undecided(f"no {kind} is mounted here", where=str(at))


def unmount(at: Path) -> None:
    """Unmount what is mounted here; a moment is waited for what has just ended there.

    Raises Undecided where it stays busy.
    """
    ends_s = time.monotonic() + BUSY_DEADLINE_S
    while True:
        said = run(["umount", "--no-canonicalize", str(at)])
        if said is None:
            return
        if time.monotonic() > ends_s:
            raise Undecided(f"cannot be unmounted: {said}", where=str(at))
        time.sleep(0.02)


def unmount_below(folder: Path) -> None:
    """Unmount what duratune may have mounted at or below a scratch folder, the innermost first, busy or not.

    Raises OSError where that is not allowed, and for what is of another kind.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for each in sorted(mounts_below(folder), key=lambda each: len(each.mount_point.parts), reverse=True):
        if each.type != SERVED_TYPE and not each.source.startswith("/dev/loop"):
            raise OSError(errno.EBUSY, f"something is mounted on {each.mount_point}")
        if libc.umount2(os.fsencode(each.mount_point), _MNT_DETACH) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"{each.mount_point} stays mounted: {os.strerror(error)}")


def run(command: Sequence[str]) -> str | None:
    """Run one of the system's programs; None where it did what it was told, else what it said.

    Raises MachineLacks where it is not there.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_DEADLINE_S,
            check=False,
        )
    except FileNotFoundError:
        raise MachineLacks(
            f"{command[0]} is not installed", where=command[0], hint="see duratune doctor"
        ) from None
    if done.returncode == 0:
        return None
    return " ".join(done.stderr.split()) or f"{command[0]} ended with {done.returncode}"


def _lacks(what: str, number: int) -> MachineLacks:
    return MachineLacks(
        f"this process may not {what}: {os.strerror(number)}",
        where="block recorder",
        hint="it needs root, or a container with CAP_SYS_ADMIN, /dev/fuse and the loop devices; "
        "--recorder preload needs none of them",
    )
