"""PostgreSQL's events, read from the steps of a write log.

A checkpoint ends with pg_control: the checkpointer syncs every file that was written since the one before,
then writes and syncs pg_control (xlog.c, CreateCheckPoint and CheckPointGuts). A segment of the WAL is made
ready long before it is written to: an old one is renamed (a link and an unlink before version 15), or a new
one is filled with zeros under a name of its own and then renamed; that rename is made durable by syncs of
the file and of pg_wal (xlog.c, InstallXLogFileSegment; fd.c, durable_rename).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engines.engine import FileRole
from engines.event import GIVES_A_NAME, EngineEvent, Step, StepIndex, folder_of, log_switches

CHECKPOINT, WAL_SWITCH, RECYCLE, NEW_SEGMENT = "checkpoint", "WAL switch", "recycle", "new segment"
NAMES = (CHECKPOINT, WAL_SWITCH, RECYCLE, NEW_SEGMENT)
_SYNCED_BY_CHECKPOINTS = ("relation", "transactions")


def events(
    steps: Sequence[Step], role: Callable[[str], FileRole], rank: Callable[[str], int]
) -> list[EngineEvent]:
    """Every event, in order of its first step."""
    roles = {path: role(path) for step in steps for path in (step.path, step.new_path)}
    index = StepIndex(steps)
    found = [
        *_checkpoints(steps, index, roles),
        *log_switches(index, WAL_SWITCH, lambda path: roles[path] == "wal", rank),
        *_segments_made_ready(steps, index, roles),
    ]
    return sorted(found, key=lambda event: event.steps)


def _checkpoints(steps: Sequence[Step], index: StepIndex, roles: dict[str, FileRole]) -> list[EngineEvent]:
    """The syncs that the process did which then wrote pg_control, that write, and the sync of it."""
    synced: dict[int, list[int]] = {}
    found = []
    for number, step in enumerate(steps):
        if step.kind == "sync" and roles[step.path] in _SYNCED_BY_CHECKPOINTS:
            synced.setdefault(step.thread, []).append(number)
        elif step.kind == "write" and roles[step.path] == "control":
            before = synced.pop(step.thread, [])
            found.append(
                EngineEvent.of(CHECKPOINT, [*before, number, index.first("sync", step.path, number)])
            )
    return found


def _segments_made_ready(
    steps: Sequence[Step], index: StepIndex, roles: dict[str, FileRole]
) -> list[EngineEvent]:
    found = []
    for number, step in enumerate(steps):
        if step.kind in GIVES_A_NAME and roles[step.new_path] == "wal":
            name = RECYCLE if roles[step.path] == "wal" else NEW_SEGMENT
            made_durable = (
                index.first("sync", step.new_path, number),
                index.first("sync-folder", folder_of(step.new_path), number),
            )
            found.append(EngineEvent.of(name, (number, *made_durable)))
    return found
