"""What a completed sync makes durable at a position: the rule that all power-cut models build on."""

from __future__ import annotations

from collections.abc import Iterator

from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import File, Surviving, is_its_own_sync
from crashlab.states.horizon import Horizons


def changes_before(
    file: File, horizons: Horizons, position: int, committed: int
) -> Iterator[tuple[Operation, Surviving | None]]:
    """Each content change begun before the position, and what of it is durable there (None: nothing).

    A file's own syncs cover its changes, whole but for what a failed one has lost; a write opened with O_SYNC
    or O_DSYNC covers its own range; a truncation that resizes is journaled with the names, which are
    ``committed`` up to a position of their own.
    """
    covered = horizons.of(file).at(position)
    lost = horizons.lost_in(file)
    for change in file.changes:
        if change.begin >= position:
            return
        if change.begin in lost:
            yield change, _carried(file, horizons, change, position)
            continue
        journaled = change.kind is Kind.TRUNCATE and change.begin in file.resizing_truncations
        is_durable = (
            ended_before(change, covered)
            or (is_its_own_sync(change) and ended_before(change, position))
            or (journaled and ended_before(change, committed))
        )
        yield change, Surviving(change) if is_durable else None


def _carried(file: File, horizons: Horizons, lost: Operation, position: int) -> Surviving | None:
    """What of a lost write later ones to the same pages have taken to the disk."""
    ranges = [
        (piece.begin, piece.end)
        for piece in horizons.lost_in(file)[lost.begin]
        if (covered := horizons.piece_covered_from(file, piece)) is not None and covered <= position
    ]
    return Surviving(lost, tuple(ranges)) if ranges else None


def is_whole(durable: Surviving | None) -> bool:
    """Whether nothing of the change is left to a draw."""
    return durable is not None and durable.ranges is None


def ended_before(operation: Operation, position: int) -> bool:
    """Whether the operation had ended before the position."""
    return operation.end is not None and operation.end < position
