"""Crash models: which content of the disk a crash at one position may leave.

`cache`   everything written before the position: a process crash between any two calls.
`synced`  only what completed syncs cover: one extreme of a power cut, not the strictest.

A model is a pure choice of survivors; the same disk, position and seed give the same image.
"""

from __future__ import annotations

from typing import Protocol

from crashlab.judging.verdict import CrashKind
from crashlab.models.cache import CacheModel
from crashlab.models.synced import SyncedModel
from crashlab.states.disk import Disk, Image
from crashlab.states.horizon import Horizons


class CrashModel(Protocol):
    """One rule of what survives."""

    name: str
    crash: CrashKind

    def image(self, disk: Disk, horizons: Horizons, position: int, seed: int) -> Image:
        """The image that a crash at the position leaves, under this seed."""
        ...


MODELS: dict[str, CrashModel] = {"cache": CacheModel(), "synced": SyncedModel()}
