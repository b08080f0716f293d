"""RocksDB's files in a recorded folder: their roles, and where each client write lies."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from engines.engine import FileRole, LogMap, LogOrder, LogPlace, Released
from engines.event import EngineEvent, Step
from engines.rocksdb import events
from engines.rocksdb.log_format import CompressedLog
from engines.rocksdb.manifest import edits
from engines.rocksdb.wal import located_writes

_ROLES: tuple[tuple[re.Pattern[str], FileRole], ...] = (
    (re.compile(r"[0-9]+\.log"), "wal"),
    (re.compile(r"[0-9]+\.(sst|blob)"), "table"),
    (re.compile(r"MANIFEST-[0-9]+"), "manifest"),
    (re.compile(r"CURRENT|[0-9]+\.dbtmp"), "current"),
    (re.compile(r"OPTIONS-[0-9]+(\.dbtmp)?"), "options"),
    (re.compile(r"IDENTITY"), "identity"),
    (re.compile(r"LOCK"), "lock"),
    (re.compile(r"LOG(\.old\.[0-9]+)?"), "info-log"),
)
_FILES: Mapping[FileRole, str] = {
    role: f"^(.*/)?({pattern.pattern})$" for pattern, role in _ROLES if role not in ("lock", "info-log")
}


class RocksdbLogReader:
    """The roles and logs of one RocksDB folder."""

    def bound(self, base: Path, owners: Mapping[int, Sequence[tuple[int, int]]]) -> RocksdbLogReader:
        """Itself: every record says whose it is."""
        del base, owners
        return self

    def role(self, path: str) -> FileRole:
        name = path.rsplit("/", 1)[-1]
        return next((role for pattern, role in _ROLES if pattern.fullmatch(name)), "other")

    def files_of(self, role: FileRole) -> str:
        """Nothing for what is locked only, and for the info log."""
        return _FILES.get(role, "")

    def unrecorded(self, path: str) -> bool:
        """The info log is written through stdio, which the recorder cannot see, and never read back."""
        return self.role(path) == "info-log"

    def log_rank(self, path: str) -> int:
        return _number(path)

    def counted_sync(self, rank: int, newest_rank: int) -> bool:
        """WAL_FILE_SYNCED ticks once for a round that ends with the newest WAL (db_impl_write.cc)."""
        return rank == newest_rank

    @property
    def event_names(self) -> tuple[str, ...]:
        return events.NAMES

    def events(self, steps: Sequence[Step]) -> list[EngineEvent]:
        return events.events(steps, self.role, self.log_rank)

    def map_logs(self, files: Mapping[int, str], content: Callable[[int], bytes]) -> LogMap:
        places: list[LogPlace] = []
        logs: list[LogOrder] = []
        released: list[Released] = []
        opaque = ""
        for file, path in files.items():
            role = self.role(path)
            if role == "wal":
                logs.append(LogOrder(file, _number(path)))
                try:
                    places.extend(
                        LogPlace(write.client, write.sequence, file, write.end_offset, write.family)
                        for write in located_writes(content(file))
                    )
                except CompressedLog:
                    opaque = "wal_compression hides the contents of the WAL"
            elif role == "manifest":
                released.extend(_released(file, content(file)))
        return LogMap(places, logs, released, opaque)


def _released(file: int, manifest: bytes) -> list[Released]:
    statements = []
    for edit in edits(manifest):
        if edit.log_number is not None:
            statements.append(Released(file, edit.end_offset, edit.family, edit.log_number))
        if edit.minimum_log is not None:
            statements.append(Released(file, edit.end_offset, None, edit.minimum_log))
    return statements


def _number(path: str) -> int:
    return int(path.rsplit("/", 1)[-1].split(".")[0])
