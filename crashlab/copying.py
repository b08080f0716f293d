"""Copies of a database folder that cost little: files that the engine never changes are hard-linked."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from engines.engine import LogReader


def clone_folder(source: Path, target: Path, reader: LogReader) -> None:
    """Make ``target`` a copy of ``source``: tables are hard-linked, everything else is copied.

    Tables are immutable: RocksDB writes them once and only ever unlinks them. Lock files and the
    info log's history are left out. Raises OSError where the copy cannot be made.
    """
    target.mkdir()
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        role = reader.role(relative.as_posix())
        if path.is_dir():
            (target / relative).mkdir()
        elif role == "table":
            link_or_copy(path, target / relative)
        elif role not in ("lock", "info-log"):
            shutil.copyfile(path, target / relative)


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
