"""Crash models: which content of the disk a crash at one position may leave.

`cache`   everything written before the position: a process crash between any two calls.
`synced`  only what completed syncs cover: one extreme of a power cut, not the strictest.
`torn`    that, and some units of 4096 bytes of what they do not; `torn-512` likewise with 512.

A model is a pure choice of survivors; the same disk, position and seed give the same image. Which models
an engine's configurations are judged by, its controls say: a model without controls proves nothing.
"""

from __future__ import annotations

from typing import Protocol

from crashlab.judging.verdict import CrashKind
from crashlab.models.cache import CacheModel
from crashlab.models.synced import SyncedModel
from crashlab.models.torn import TornModel
from crashlab.states.disk import Disk, Image
from crashlab.states.horizon import Horizons


class CrashModel(Protocol):
    """One rule of what survives."""

    @property
    def name(self) -> str: ...

    @property
    def crash(self) -> CrashKind: ...

    @property
    def tears(self) -> bool:
        """Whether a part of a write may survive, so that the middle of a checkpoint tells most."""
        ...

    def telling_seed(self, position: int, seed: int) -> int:
        """A seed at or after this one whose draw tells most at the position; the same where nothing is drawn
        that could hide damage."""
        ...

    def image(self, disk: Disk, horizons: Horizons, position: int, seed: int) -> Image:
        """The image that a crash at the position leaves, under this seed."""
        ...


_ALL: tuple[CrashModel, ...] = (CacheModel(), SyncedModel(), TornModel(), TornModel("torn-512", 512))
MODELS: dict[str, CrashModel] = {model.name: model for model in _ALL}
