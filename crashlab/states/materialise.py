"""Images of the disk made into real folders, without writing twice what did not change.

Tables are immutable, so each content of one is written once into a pool and hard-linked into every
state that holds it. Everything else is written anew, because recovery changes it.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from pathlib import Path

from crashlab.copying import link_or_copy
from crashlab.recording.recorded import DATABASE_FOLDER
from crashlab.states.disk import FileImage, Image
from engines.engine import LogReader


class Materialiser:
    """Builds states below one folder; several threads may build at once."""

    def __init__(self, pool: Path, reader: LogReader) -> None:
        self._pool = pool
        self._reader = reader
        self._lock = threading.Lock()

    def build(self, image: Image, target: Path) -> Path:
        """Write the image's database below ``target``, which is created; return the database's folder."""
        database = target / DATABASE_FOLDER
        database.mkdir(parents=True)
        inside = DATABASE_FOLDER + "/"
        for folder in sorted(image.folders):
            if folder.startswith(inside):
                (target / folder).mkdir(exist_ok=True)
        for path, file in image.files.items():
            if not path.startswith(inside) or self._reader.unrecorded(path):
                continue
            if self._reader.role(path) == "table":
                link_or_copy(self._pooled(file), target / path)
            elif file.untouched and file.file.base is not None:
                shutil.copyfile(file.file.base.content, target / path)
            else:
                (target / path).write_bytes(file.content())
        return database

    def _pooled(self, file: FileImage) -> Path:
        if file.untouched and file.file.base is not None:
            return file.file.base.content
        name = hashlib.sha256(repr(file.identity).encode()).hexdigest()
        kept = self._pool / name
        with self._lock:
            if not kept.exists():
                kept.write_bytes(file.content())
        return kept
