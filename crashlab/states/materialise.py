"""Images of the disk made into real folders, without writing twice what did not change.

Tables are immutable, so each content of one is written once into a pool and hard-linked into every
state that holds it. Everything else is written anew, because recovery changes it; where that is most of a
base of many files, the base is copied at once and only what differs from it is written.
"""

from __future__ import annotations

import hashlib
import subprocess
import threading
from pathlib import Path

from crashlab.copying import link_or_copy
from crashlab.recording.recorded import DATABASE_FOLDER
from crashlab.states.disk import FileImage, Image
from engines.engine import LogReader
from knobs.errors import Undecided

FILES_COPIED_AT_ONCE_MIN = 100
COPY_DEADLINE_S = 600.0


class Materialiser:
    """Builds states below one folder from the base in another; several threads may build at once."""

    def __init__(self, pool: Path, base: Path, reader: LogReader) -> None:
        self._pool = pool
        self._base = base
        self._reader = reader
        self._lock = threading.Lock()
        files = [path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file()]
        self._mutable = {f"{DATABASE_FOLDER}/{path}" for path in files if reader.role(path) != "table"}
        self._tables = {f"{DATABASE_FOLDER}/{path}" for path in files} - self._mutable
        folders = [path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_dir()]
        self._folders = {f"{DATABASE_FOLDER}/{path}" for path in folders}

    def build(self, image: Image, target: Path) -> Path:
        """Write the image's database below ``target``, which is created; return the database's folder.

        Raises OSError where it cannot be written, Undecided where the base cannot be copied.
        """
        database = target / DATABASE_FOLDER
        database.mkdir(parents=True)
        inside = DATABASE_FOLDER + "/"
        files = {
            path: file
            for path, file in image.files.items()
            if path.startswith(inside) and not self._reader.unrecorded(path)
        }
        copied = set()
        if len(self._mutable) >= FILES_COPIED_AT_ONCE_MIN:
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
        command = ["cp", "-a", "--", f"{self._base}/.", str(target / DATABASE_FOLDER)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COPY_DEADLINE_S, check=False)
        if done.returncode != 0:
            raise Undecided(f"the base cannot be copied: {done.stderr.strip()[-200:]}", where=str(target))
        for path in self._tables:
            (target / path).unlink()
        kept = set()
        for path in self._mutable:
            file = files.get(path)
            is_own = file is not None and file.file.base is not None and file.file.base.path == path
            if file is not None and is_own and file.untouched and file.size_max is None:
                kept.add(path)
            elif not is_own:
                (target / path).unlink()
        return kept

    def _pooled(self, file: FileImage) -> Path:
        if file.untouched and file.file.base is not None:
            return file.file.base.content
        name = hashlib.sha256(repr(file.identity).encode()).hexdigest()
        kept = self._pool / name
        with self._lock:
            if not kept.exists():
                kept.write_bytes(file.content())
        return kept
