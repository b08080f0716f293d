"""RocksDB's events, read from the steps of a write log.

What a flush or a compaction did becomes valid with an edit in the MANIFEST, and that edit says which it was:
a flush adds tables, a compaction takes tables away too (db/version_edit.h). So an event is told by the edit
and not by what is removed afterwards, which may come late or never. A MANIFEST that has grown too large is
rolled: a new one is written, synced and named by a rename onto CURRENT (db/version_set.cc,
ProcessManifestWrites; file/filename.cc, SetCurrentFile). With recycle_log_file_num an old log is renamed to
the new one's name and written over (env, ReuseWritableFile).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from engines.engine import FileRole
from engines.event import GIVES_A_NAME, EngineEvent, Step, StepIndex, folder_of, log_switches
from engines.rocksdb.manifest import Edit, every_edit

WAL_SWITCH, RECYCLE, FLUSH = "WAL switch", "recycle", "memtable flush"
COMPACTION, MANIFEST_ROLL = "compaction install", "manifest roll"
NAMES = (WAL_SWITCH, RECYCLE, FLUSH, COMPACTION, MANIFEST_ROLL)


def events(
    steps: Sequence[Step], role: Callable[[str], FileRole], rank: Callable[[str], int]
) -> list[EngineEvent]:
    """Every event, in order of its first step."""
    roles = {path: role(path) for step in steps for path in (step.path, step.new_path)}
    index = StepIndex(steps)
    found = [
        *log_switches(index, WAL_SWITCH, lambda path: roles[path] == "wal", rank),
        *_recycled(steps, index, roles),
        *_Installs(steps, index, roles).found(),
        *_manifest_rolls(steps, index, roles),
    ]
    return sorted(found, key=lambda event: event.steps)


def _recycled(steps: Sequence[Step], index: StepIndex, roles: dict[str, FileRole]) -> list[EngineEvent]:
    """A log that gets the name of a new one, until the new one's first sync."""
    found = []
    for number, step in enumerate(steps):
        if step.kind in GIVES_A_NAME and roles[step.path] == roles[step.new_path] == "wal":
            first = index.first("write", step.new_path, number)
            synced = None if first is None else index.first("sync", step.new_path, first)
            found.append(EngineEvent.of(RECYCLE, (number, first, synced)))
    return found


class _Installs:
    """Flushes and compactions: from the first new table to the sync of the edit that installs it."""

    def __init__(self, steps: Sequence[Step], index: StepIndex, roles: dict[str, FileRole]) -> None:
        self._steps = steps
        self._index = index
        self._tables = {_number(path): path for path, role in roles.items() if role == "table"}
        self._manifests = [path for path in index.paths("write") if roles[path] == "manifest"]
        self._told: set[int] = set()

    def found(self) -> list[EngineEvent]:
        found = []
        for path in self._manifests:
            writes = self._index.all("write", path)
            content, ends = bytearray(), list[int]()
            for number in writes:
                step = self._steps[number]
                content.extend(bytes(max(0, step.offset - len(content))))
                content[step.offset : step.offset + len(step.data)] = step.data
                ends.append(len(content))
            for edit in every_edit(bytes(content)):
                event = self._event(edit, path, writes[bisect_left(ends, edit.end_offset)])
                found += [event] if event is not None else []
        return found

    def _event(self, edit: Edit, manifest: str, written: int) -> EngineEvent | None:
        """What one edit did; None where it did neither. A new MANIFEST tells all tables that there are once
        more, of which none is new."""
        made: list[int | None] = []
        for number in edit.added:
            path = self._tables.get(number, "")
            created = self._index.first("create", path)
            if number not in self._told and created is not None and created < written:
                made += [created, self._index.last("sync", path, written)]
        self._told.update(edit.added)
        if not made and not edit.deleted:
            return None
        name = COMPACTION if edit.deleted else FLUSH
        return EngineEvent.of(name, [*made, written, self._index.first("sync", manifest, written)])


def _manifest_rolls(steps: Sequence[Step], index: StepIndex, roles: dict[str, FileRole]) -> list[EngineEvent]:
    """A new MANIFEST, until CURRENT that names it is durable."""
    found = []
    for number, step in enumerate(steps):
        if step.kind != "create" or roles[step.path] != "manifest":
            continue
        named = index.first("rename", f"{folder_of(step.path)}/CURRENT".removeprefix("/"), number)
        durable = None if named is None else index.first("sync-folder", folder_of(step.path), named)
        parts = (index.first("write", step.path, number), index.first("sync", step.path, number))
        found.append(EngineEvent.of(MANIFEST_ROLL, (number, *parts, named, durable)))
    return found


def _number(path: str) -> int:
    return int(path.rpartition("/")[2].partition(".")[0])
