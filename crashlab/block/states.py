"""Crash states of a virtual disk: its content after the cut, mounted by the real kernel, whose journal
replays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from crashlab.block.disk_log import BASE_NAME, CONTENT
from crashlab.block.virtual_disk import mounted
from crashlab.copying import copy_sparse
from crashlab.recording.places import DATABASE_FOLDER
from crashlab.states.disk import Image
from knobs.errors import Undecided


class NotMounted(Exception):
    """The file system of a crash state does not come back; the text is the kernel's."""


class DiskStates:
    """Builds states of one recording's virtual disk; several threads may build at once."""

    def __init__(self, folder: Path, file_system: str) -> None:
        self._base = folder / BASE_NAME
        self._kind, _, self._options = file_system.partition(" ")

    @contextmanager
    def built(self, image: Image, target: Path) -> Iterator[Path]:
        """The disk with this content, mounted below ``target``, as long as this lasts; yields the database's
        folder.

        ``target`` does not exist. Raises NotMounted where the file system does not come back, and OSError
        where the content cannot be written.
        """
        at = target / "mount"
        at.mkdir(parents=True)
        content = target / CONTENT
        copy_sparse(self._base, content)
        image.files[CONTENT].write_to(content)
        with ExitStack() as stack:
            try:
                stack.enter_context(mounted(content, self._kind, self._options, at))
            except Undecided as error:
                raise NotMounted(error.what) from error
            yield at / DATABASE_FOLDER
        content.unlink()
        at.rmdir()
        target.rmdir()
