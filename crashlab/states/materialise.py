"""Images of the disk made into real folders, without writing twice what did not change.

Tables are immutable, so each content of one is written once into a pool and hard-linked into every
state that holds it. Everything else is written anew, because recovery changes it; where that is most of a
base of many files, the base is copied at once and only what differs from it is written.

Such a copy is used again for the next state: what has changed in it is made the base's own once more, in
the memory that its files have already, for on a tmpfs it takes longer to get a page than to fill it. A file
is unchanged if it still is the one that was made here, with the size and the time of modification of the
base's own, which the copy was given: every write, by whatever call, sets another time, and PostgreSQL sets
none back (it calls no utime(2) on what is in its data directory but the socket's lock, which is not there).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from crashlab.copying import copy_file, link_or_copy
from crashlab.recording.places import DATABASE_FOLDER
from crashlab.states.disk import FileImage, Image
from engines.engine import LogReader

FILES_COPIED_AT_ONCE_MIN = 100


class Materialiser:
    """Builds states below one folder from the base in another; several threads may build at once."""

    def __init__(self, pool: Path, base: Path, reader: LogReader) -> None:
        self._pool = pool
        self._base = base
        self._reader = reader
        self._lock = threading.Lock()
        self._recorded: dict[str, bool] = {}
        files = [path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file()]
        self._stats = {path: (base / path).stat() for path in files}
        self._inodes: dict[str, dict[str, int]] = {}
        self._mutable = {f"{DATABASE_FOLDER}/{path}" for path in files if reader.role(path) != "table"}
        self._tables = {f"{DATABASE_FOLDER}/{path}" for path in files} - self._mutable
        folders = [path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_dir()]
        self._base_folders = sorted(folders)
        self._folders = {f"{DATABASE_FOLDER}/{path}" for path in folders}

    def build(self, image: Image, target: Path) -> Path:
        """Write the image's database below ``target``; return the database's folder.

        ``target`` does not exist, or holds an earlier state that was built here and is made over: nothing
        may run in it. Raises OSError where it cannot be written.
        """
        database = target / DATABASE_FOLDER
        is_copied = len(self._mutable) >= FILES_COPIED_AT_ONCE_MIN
        if target.exists() and not is_copied:
            shutil.rmtree(target)
        database.mkdir(parents=True, exist_ok=True)
        inside = DATABASE_FOLDER + "/"
        files = {path: file for path, file in image.files.items() if self.reads(path)}
        copied = set()
        if is_copied:
            copied = self._copy_base(files, target)
            for folder in sorted(self._folders - image.folders, reverse=True):
                (target / folder).rmdir()
        for folder in sorted(image.folders):
            if folder.startswith(inside):
                (target / folder).mkdir(exist_ok=True)
        for path, file in files.items():
            if path in copied:
                continue
            if self._reader.role(path) == "table":
                link_or_copy(self._pooled(file), target / path)
            else:
                file.write_to(target / path)
        return database

    def _copy_base(self, files: dict[str, FileImage], target: Path) -> set[str]:
        """Copy the base, and take out what the image has not, or not from there; which paths are done."""
        database = f"{target}/{DATABASE_FOLDER}"
        self._make_over(database)
        self._inodes[database] = {path: os.lstat(f"{database}/{path}").st_ino for path in self._stats}
        for path in self._tables:
            (target / path).unlink()
        kept = set()
        for path in self._mutable:
            file = files.get(path)
            is_own = file is not None and file.file.base is not None and file.file.base.path == path
            if file is not None and is_own and file.untouched:
                kept.add(path)
            elif not is_own:
                (target / path).unlink()
        return kept

    def _make_over(self, database: str) -> None:
        """Make a folder, empty or as an earlier state has left it, a copy of the base.

        Paths are text here: most of a thousand files are only looked at, for each state.
        """
        made = self._inodes.get(database, {})
        found = self._own_files(database, made)
        for folder in self._base_folders:
            Path(database, folder).mkdir(exist_ok=True)
        for path, base in self._stats.items():
            if found.get(path) != (base.st_size, base.st_mtime_ns):
                _copy_over(f"{self._base}/{path}", f"{database}/{path}", base)

    def _own_files(self, database: str, made: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Size and time of modification of each file that was made here and lies where it was made; whatever
        else there is, the base's folders excepted, is removed."""
        own: dict[str, tuple[int, int]] = {}
        known = set(self._base_folders)
        inner = [""]
        foreign = []
        while inner:
            before = inner.pop()
            with os.scandir(f"{database}/{before}") as entries:
                for entry in entries:
                    path = before + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        inner.append(f"{path}/")
                        if path not in known:
                            foreign.append(entry.path)
                        continue
                    stat = entry.stat(follow_symlinks=False)
                    if path in self._stats and made.get(path) == stat.st_ino:
                        own[path] = (stat.st_size, stat.st_mtime_ns)
                    else:
                        Path(entry.path).unlink()
        for folder in reversed(foreign):  # found before what lies in them
            Path(folder).rmdir()
        return own

    def reads(self, path: str) -> bool:
        """Whether a file or folder of an image is a part of the database that is built of it."""
        # Asked of every file of every state, and the same in each.
        if path not in self._recorded:
            inside = path.startswith(DATABASE_FOLDER + "/")
            self._recorded[path] = inside and not self._reader.unrecorded(path)
        return self._recorded[path]

    def _pooled(self, file: FileImage) -> Path:
        if file.untouched and file.file.base is not None:
            return file.file.base.content
        name = hashlib.sha256(repr(file.identity).encode()).hexdigest()
        kept = self._pool / name
        with self._lock:
            if not kept.exists():
                kept.write_bytes(file.content())
        return kept


def _copy_over(source: str, target: str, stat: os.stat_result) -> None:
    """Make a file the source's copy, its mode and time of modification too, in the pages that it has."""
    copy_file(source, target)
    Path(target).chmod(stat.st_mode & 0o7777)
    os.utime(target, ns=(stat.st_atime_ns, stat.st_mtime_ns))
