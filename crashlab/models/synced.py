"""`synced`: a power cut that leaves only what completed syncs cover.

Bytes: a file keeps the changes that its own syncs cover; a write opened with O_SYNC or O_DSYNC
covers its own range. Names and truncations: a prefix of the namespace's history up to the last
sync that had metadata to commit. A file whose name survives without its bytes is empty (measured
on ext4). Nothing here depends on the seed: it is one extreme of what a cut may leave.
"""

from __future__ import annotations

from crashlab.judging.verdict import CrashKind
from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import (
    WRITE_IS_ITS_OWN_SYNC,
    Disk,
    File,
    Image,
    NameChange,
    Surviving,
    build_image,
)
from crashlab.states.horizon import Horizons


class SyncedModel:
    """Only what completed syncs cover survives."""

    name = "synced"
    crash: CrashKind = "power-cut"

    def image(self, disk: Disk, horizons: Horizons, position: int, seed: int) -> Image:
        del seed  # one extreme of what a cut may leave: nothing is drawn
        committed = horizons.names.at(position)

        def keeps_name(change: NameChange) -> bool:
            return _ended_before(change.operation, committed)

        def survivors(file: File) -> tuple[Surviving, ...]:
            covered = horizons.of(file).at(position)
            kept = []
            for change in file.changes:
                if change.begin >= position:
                    break
                journaled = change.kind is Kind.TRUNCATE and change.begin in file.resizing_truncations
                if (
                    _ended_before(change, covered)
                    or (change.flags & WRITE_IS_ITS_OWN_SYNC and _ended_before(change, position))
                    or (journaled and _ended_before(change, committed))
                ):
                    kept.append(Surviving(change))
            return tuple(kept)

        return build_image(disk, keeps_name, survivors)


def _ended_before(operation: Operation, position: int) -> bool:
    return operation.end is not None and operation.end < position
