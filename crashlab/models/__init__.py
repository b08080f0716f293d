"""Crash models: which content of the disk a crash at one position may leave.

`cache`      everything written before the position: a process crash between any two calls.
`synced`     only what completed syncs cover: one extreme of a power cut, not the strictest.
`torn`       that, and some units of 4096 bytes of what they do not; `torn-512` likewise with 512.
`reordered`  that, and some whole writes of what they do not, in any order.

Each power cut also with `-posix`: of names no more is promised than the standard does, where a journaled
file system keeps them in order.

A model is a pure choice of survivors; the same disk, position and seed give the same image. Which models
an engine's configurations are judged by, its controls say: a model without controls proves nothing.
"""

from __future__ import annotations

from typing import Protocol

from crashlab.judging.verdict import CrashKind
from crashlab.models.cache import CacheModel
from crashlab.models.names import Metadata
from crashlab.models.partial import PartialModel
from crashlab.models.survivors import Reach
from crashlab.models.synced import SyncedModel
from crashlab.states.disk import Disk, Image
from crashlab.states.horizon import Horizons


class CrashModel(Protocol):
    """One rule of what survives."""

    @property
    def name(self) -> str: ...

    @property
    def metadata(self) -> Metadata:
        """Which of the names survive."""
        ...

    @property
    def crash(self) -> CrashKind: ...

    @property
    def tears(self) -> bool:
        """Whether a part of a write may survive, so that the middle of a checkpoint tells most."""
        ...

    @property
    def draws(self) -> bool:
        """Whether it adds survivors by a draw, which asks more of an engine than some promise."""
        ...

    def telling_seeds(self, position: int, seed: int, names: Reach = "least") -> tuple[int, ...]:
        """Seeds at or after this one whose draws tell most at the position, best first, and whose names come
        that far; the same where nothing is drawn that could hide damage."""
        ...

    def image(self, disk: Disk, horizons: Horizons, position: int, seed: int) -> Image:
        """The image that a crash at the position leaves, under this seed."""
        ...


_ALL: tuple[CrashModel, ...] = (
    CacheModel(),
    SyncedModel(),
    PartialModel("torn", 4096),
    PartialModel("torn-512", 512),
    PartialModel("reordered"),
    SyncedModel("synced-posix", "posix"),
    PartialModel("torn-posix", 4096, "posix"),
    PartialModel("reordered-posix", 0, "posix"),
)
MODELS: dict[str, CrashModel] = {model.name: model for model in _ALL}
