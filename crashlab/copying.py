"""Copies of a database folder that cost little: files that the engine never changes are hard-linked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from engines.engine import LogReader

_PAGE_BYTES = 4096


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
    """A copy in which pages of zeros are holes, for files that are mostly empty."""
    with source.open("rb") as reading, target.open("wb") as writing:
        while page := reading.read(_PAGE_BYTES):
            if page.strip(b"\0"):
                writing.write(page)
            else:
                writing.seek(len(page), os.SEEK_CUR)
        writing.truncate(source.stat().st_size)
