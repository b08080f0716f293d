"""What a completed sync makes durable at a position: the rule that all power-cut models build on."""

from __future__ import annotations

from collections.abc import Iterator

from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import File, is_its_own_sync
from crashlab.states.horizon import Horizons


def changes_before(
    file: File, horizons: Horizons, position: int, committed: int
) -> Iterator[tuple[Operation, bool]]:
    """Each content change begun before the position, and whether it is durable there.

    A file's own syncs cover its changes; a write opened with O_SYNC or O_DSYNC covers its own range; a
    truncation that resizes is journaled with the names, which are ``committed`` up to a position of
    their own.
    """
    covered = horizons.of(file).at(position)
    for change in file.changes:
        if change.begin >= position:
            return
        journaled = change.kind is Kind.TRUNCATE and change.begin in file.resizing_truncations
        yield (
            change,
            ended_before(change, covered)
            or (is_its_own_sync(change) and ended_before(change, position))
            or (journaled and ended_before(change, committed)),
        )


def ended_before(operation: Operation, position: int) -> bool:
    """Whether the operation had ended before the position."""
    return operation.end is not None and operation.end < position
