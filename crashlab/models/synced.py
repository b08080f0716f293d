"""`synced`: a power cut that leaves only what completed syncs cover.

Bytes: a file keeps the changes that its own syncs cover; a write opened with O_SYNC or O_DSYNC
covers its own range. Names and truncations: no more of them than the metadata rule demands (names.py). A file
whose name survives without its bytes is empty (measured on ext4). Nothing here depends on the seed: it is one
extreme of what a cut may leave.
"""

from __future__ import annotations

from dataclasses import dataclass

from crashlab.judging.verdict import CrashKind
from crashlab.models.covering import changes_before
from crashlab.models.names import Metadata, surviving_names
from crashlab.models.survivors import Reach
from crashlab.states.disk import Disk, File, Image, Surviving, build_image
from crashlab.states.horizon import Horizons


@dataclass(frozen=True)
class SyncedModel:
    """Only what completed syncs cover survives."""

    name: str = "synced"
    metadata: Metadata = "ordered"
    crash: CrashKind = "power-cut"
    tears: bool = False
    draws: bool = False

    def telling_seeds(self, position: int, seed: int, names: Reach = "least") -> tuple[int, ...]:
        """The seed itself."""
        del position, names
        return (seed,)

    def image(self, disk: Disk, horizons: Horizons, position: int, seed: int) -> Image:
        """The image that a crash at the position leaves."""
        del seed  # one extreme of what a cut may leave: nothing is drawn
        names = surviving_names(self.metadata, horizons, position)

        def survivors(file: File) -> tuple[Surviving, ...]:
            changes = changes_before(file, horizons, position, names.truncated_to)
            return tuple(durable for _, durable in changes if durable is not None)

        return build_image(disk, names.keeps, survivors)
