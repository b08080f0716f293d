"""Copies of a database folder that cost little: files that the engine never changes are hard-linked."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from engines.engine import LogReader

LEFT_OUT = ("lock", "info-log")
"""Roles of files that no copy holds: they tell of the process that had the folder."""
CHUNK_BYTES = 1 << 30
COMPARED_BYTES = 1 << 20
_NOT_WITHIN = (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
"""Where copy_file_range(2) does not work between two files, and sendfile(2) does."""


def clone_folder(source: Path, target: Path, reader: LogReader) -> None:
    """Make ``target`` a copy of ``source``: tables are hard-linked, everything else is copied.

    Tables are immutable: RocksDB writes them once and only ever unlinks them. Lock files and the
    info log's history are left out. Raises OSError where the copy cannot be made.
    """
    target.mkdir()
    inner = [""]
    while inner:
        before = inner.pop()
        with os.scandir(source / before) as entries:
            for entry in entries:
                path = before + entry.name
                if entry.is_dir():
                    (target / path).mkdir()
                    inner.append(f"{path}/")
                elif (role := reader.role(path)) == "table":
                    link_or_copy(source / path, target / path)
                elif role not in LEFT_OUT:
                    copy_file(entry.path, f"{target}/{path}")


def copy_file(source: str, target: str) -> None:
    """Make ``target``, which may be there already, hold the source's bytes; a file system that can share
    blocks does (copy_file_range(2)). Paths are text, for this is done to a thousand files at a time."""
    reading = os.open(source, os.O_RDONLY)
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            _copy_bytes(reading, writing)
            os.ftruncate(writing, os.lseek(writing, 0, os.SEEK_CUR))
        except OSError as error:
            error.filename = target  # the calls on descriptors know none
            raise
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _copy_bytes(reading: int, writing: int) -> None:
    try:
        while os.copy_file_range(reading, writing, CHUNK_BYTES):
            pass
    except OSError as error:
        if error.errno not in _NOT_WITHIN:
            raise
        # What is copied so far stays: both go on from where they are.
        while os.sendfile(writing, reading, None, CHUNK_BYTES):
            pass


def link_or_copy(source: Path, target: Path) -> None:
    """A hard link, or a copy where the two lie on different file systems."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def copy_sparse(source: Path, target: Path) -> None:
    """A copy of what is written in the source; its holes are holes again (lseek(2), SEEK_DATA)."""
    with source.open("rb") as reading, target.open("wb") as writing:
        size = os.fstat(reading.fileno()).st_size
        writing.truncate(size)
        for begin, end in _extents(reading.fileno(), size):
            os.lseek(writing.fileno(), begin, os.SEEK_SET)
            while begin < end:
                begin += os.sendfile(writing.fileno(), reading.fileno(), begin, end - begin)


def _extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Begin and end of what is written in a file, hole by hole."""
    end = 0
    while end < size:
        try:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        end = os.lseek(descriptor, begin, os.SEEK_HOLE)
        yield begin, end


def same_content(one: Path, other: Path) -> bool:
    """Whether two files hold the same bytes; what is a hole in both is not read."""
    with one.open("rb") as first, other.open("rb") as second:
        size = os.fstat(first.fileno()).st_size
        if os.fstat(second.fileno()).st_size != size:
            return False
        written = [*_extents(first.fileno(), size), *_extents(second.fileno(), size)]
        return all(
            os.pread(first.fileno(), COMPARED_BYTES, at) == os.pread(second.fileno(), COMPARED_BYTES, at)
            for begin, end in written
            for at in range(begin, end, COMPARED_BYTES)
        )
