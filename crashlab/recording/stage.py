"""Where a recorded run takes place: the root below which its database lies, and what is left there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from crashlab.recording.places import DATABASE_FOLDER, Places


@dataclass(frozen=True)
class Staging:
    """What a stage is made of: the loaded database, which it takes; the places of the recording, where the
    ledger is, whose counter gives positions; the recording's own folder; and the room for a write log."""

    base: Path
    places: Places
    folder: Path
    log_bytes: int


class Stage(Protocol):
    """The place of one recorded run, from before its canary until its log is checked."""

    @property
    def root(self) -> Path:
        """The folder whose changes are recorded; the database is in it."""

    @property
    def file_system(self) -> str:
        """The kind of a file system of the run's own, with its mount options; "" where it has none."""

    def unblock(self) -> None:
        """Let go of processes that wait for room in a log that is full, so that they can be killed."""

    def settle(self) -> list[str]:
        """The engine is dead: what is below the root from now on is what the run left, and nothing that is
        done there is recorded. Returns why the stage's own log must not be believed, one line each."""


class FolderStage:
    """A folder on the file system where the data lie."""

    file_system = ""

    def __init__(self, root: Path) -> None:
        self.root = root

    def unblock(self) -> None:
        """The engine's own processes wait, and a SIGKILL ends them."""

    def settle(self) -> list[str]:
        """Everything is as the run left it."""
        return []


@contextmanager
def folder_stage(staging: Staging) -> Iterator[FolderStage]:
    """A stage in the folder for live data itself."""
    root = staging.places.make_root()
    shutil.move(staging.base, root / DATABASE_FOLDER)
    yield FolderStage(root)
