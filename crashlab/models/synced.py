"""`synced`: a power cut that leaves only what completed syncs cover.

Bytes: a file keeps the changes that its own syncs cover; a write opened with O_SYNC or O_DSYNC
covers its own range. Names and truncations: a prefix of the namespace's history up to the last
sync that had metadata to commit. A file whose name survives without its bytes is empty (measured
on ext4). Nothing here depends on the seed: it is one extreme of what a cut may leave.
"""

from __future__ import annotations

from crashlab.judging.verdict import CrashKind
from crashlab.models.covering import changes_before, ended_before
from crashlab.states.disk import Disk, File, Image, NameChange, Surviving, build_image
from crashlab.states.horizon import Horizons


class SyncedModel:
    """Only what completed syncs cover survives."""

    name = "synced"
    crash: CrashKind = "power-cut"
    tears = False

    def telling_seed(self, position: int, seed: int) -> int:
        """The seed itself."""
        del position
        return seed

    def image(self, disk: Disk, horizons: Horizons, position: int, seed: int) -> Image:
        del seed  # one extreme of what a cut may leave: nothing is drawn
        committed = horizons.names.at(position)

        def keeps_name(change: NameChange) -> bool:
            return ended_before(change.operation, committed)

        def survivors(file: File) -> tuple[Surviving, ...]:
            changes = changes_before(file, horizons, position, committed)
            return tuple(Surviving(change) for change, is_durable in changes if is_durable)

        return build_image(disk, keeps_name, survivors)
