"""The virtual disk's server: one file over FUSE, whose writes and flushes are those of the backing file.

A loop device over the served file is the disk. The kernel gives a flush of the disk to the file as an fsync,
and a write that forces unit access as a write and a flush, for a loop device knows no other (blk-flush.c).
This process does with the backing file what the kernel asks of it, call by call, under the preload recorder:
so its write log is the disk's. The backing file lies in memory, where a sync costs nothing.

Discards and zero-outs come to a file as fallocate(2), which pyfuse3 does not serve: the loop device then has
no discards, and zeros come as writes.

    python -m crashlab.block.server BACKING MOUNT_POINT

prints "ready" when it serves MOUNT_POINT/disk. It ends when that is unmounted, or with its standard input.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

import pyfuse3
import trio

DISK_NAME = "disk"
"""The served file."""
_DISK = pyfuse3.InodeT(pyfuse3.ROOT_INODE + 1)
_HANDLE = pyfuse3.FileHandleT(1)
KEPT_S = 3600.0
"""How long the kernel may keep names and attributes, which never change."""


class DiskServer(pyfuse3.Operations):
    """One folder with one file of a fixed size."""

    def __init__(self, backing: Path) -> None:
        super().__init__()
        self._file = os.open(backing, os.O_RDWR | os.O_CLOEXEC)
        self._size = os.fstat(self._file).st_size

    async def getattr(self, inode: int, ctx: object = None) -> pyfuse3.EntryAttributes:
        del ctx
        return self._attributes(inode)

    async def setattr(self, inode: int, *_: object) -> pyfuse3.EntryAttributes:
        return self._attributes(inode)

    async def lookup(self, parent_inode: int, name: bytes, ctx: object = None) -> pyfuse3.EntryAttributes:
        del ctx
        if parent_inode != pyfuse3.ROOT_INODE or name != DISK_NAME.encode():
            raise pyfuse3.FUSEError(errno.ENOENT)
        return self._attributes(_DISK)

    async def open(self, inode: int, flags: int, ctx: object = None) -> pyfuse3.FileInfo:
        del flags, ctx
        if inode != _DISK:
            raise pyfuse3.FUSEError(errno.EISDIR)
        # Past the kernel's cache for the served file: what the disk is given is here when it is told so.
        return pyfuse3.FileInfo(fh=_HANDLE, direct_io=True)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        del fh
        return os.pread(self._file, size, off)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        del fh
        return os.pwrite(self._file, buf, off)

    async def fsync(self, fh: int, datasync: bool) -> None:
        del fh, datasync
        os.fsync(self._file)

    async def flush(self, fh: int) -> None:
        """A close of the served file, which is no flush of the disk."""

    async def release(self, fh: int) -> None:
        """Nothing is kept for an open file."""

    def _attributes(self, inode: int) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = inode
        is_disk = inode == _DISK
        entry.st_mode = stat.S_IFREG | 0o600 if is_disk else stat.S_IFDIR | 0o700
        entry.st_size = self._size if is_disk else 0
        entry.st_nlink = 1 if is_disk else 2
        entry.entry_timeout = entry.attr_timeout = KEPT_S
        return entry


async def _end_with_input() -> None:
    """Whoever started this process holds the other end of its standard input."""
    await trio.lowlevel.wait_readable(sys.stdin)
    pyfuse3.terminate()


async def _serve() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_end_with_input)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await pyfuse3.main()
        nursery.cancel_scope.cancel()


def main() -> None:
    """Serve the disk until it is unmounted, or until standard input ends."""
    backing, mount_point = map(Path, sys.argv[1:])
    options = {*pyfuse3.default_options, "fsname=duratune", "subtype=duratune"}
    pyfuse3.init(DiskServer(backing), str(mount_point), options)
    try:
        trio.run(_serve)
    finally:
        pyfuse3.close(unmount=True)


if __name__ == "__main__":
    main()
