"""Which changes of names a power cut keeps: the two rules that a file system may promise.

`ordered`: a journal. What is kept is a prefix of the history of all names, and of truncations that resize a
file; it reaches at least to the last sync that had metadata to commit, whichever file that was called on
(ext4 and XFS). `posix`: no more than the standard promises, an entry needs a sync of its own directory
(fsync(2)): in each folder a prefix of the folder's own history, and a truncation needs the file's own sync.
A rename between two folders is kept with the folder that it leads to.

Beyond what must be there, a prefix may reach further, up to the position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from crashlab.models.covering import ended_before
from crashlab.states.disk import NameChange
from crashlab.states.horizon import Horizons

Metadata = Literal["ordered", "posix"]


@dataclass(frozen=True)
class Names:
    """What of the namespace's history survives. ``truncated_to`` is the position up to which truncations are
    kept that their file's own syncs do not cover."""

    keeps: Callable[[NameChange], bool]
    truncated_to: int


def surviving_names(
    metadata: Metadata, horizons: Horizons, position: int, reached: Callable[[int], int] = lambda least: least
) -> Names:
    """What survives of the names at a position; ``reached`` says how far a prefix has come that must reach at
    least to a position."""
    if metadata == "posix":
        return _posix(horizons, position, reached)
    journal = reached(horizons.names.at(position))
    return Names(lambda change: ended_before(change.operation, journal), journal)


def _posix(horizons: Horizons, position: int, reached: Callable[[int], int]) -> Names:
    journals: dict[str, int] = {}

    def keeps(change: NameChange) -> bool:
        folder = folder_of(change.operation.new_path or change.operation.path)
        if folder not in journals:
            journals[folder] = reached(horizons.of_folder(folder).at(position))
        return ended_before(change.operation, journals[folder])

    return Names(keeps, truncated_to=0)


def folder_of(path: str) -> str:
    """The folder that an entry lies in; "" is the recorded root."""
    parent = PurePosixPath(path).parent.as_posix()
    return "" if parent == "." else parent
