"""PostgreSQL's files in a recorded folder: their roles, and where each transaction's commit lies.

A transaction is durable once every byte of the log up to the end of its commit record is (PostgreSQL
manual, 30.3 Write-Ahead Logging). Which transaction is whose, the log does not say: that is read from
the tables (`xmin` beside the token) and handed in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engines.engine import FileRole, LogMap, LogOrder, LogPlace
from engines.event import EngineEvent, Step
from engines.postgresql import events
from engines.postgresql.control_file import ControlFile
from engines.postgresql.wal import SEGMENT_NAME, Stream, segment_number

_FORK = "(_[0-9A-Za-z_]+)?"
_TELLING_FORK = "(_(vm|init))?"
"""Without free space maps: they are not in the WAL, and a bad one is zeroed when it is read (fsm README)."""
_ROLES: tuple[tuple[re.Pattern[str], FileRole], ...] = (
    (re.compile(r"pg_wal/[0-9A-F]{24}"), "wal"),
    (re.compile(r"global/pg_control"), "control"),
    (re.compile(r"(.*/)?pg_internal\.init(\.[0-9]+)?"), "cache"),
    (
        re.compile(rf"(base/[0-9]+|global|pg_tblspc/.*)/(t[0-9]+_)?[0-9]+{_FORK}(\.[0-9]+)?"),
        "relation",
    ),
    (re.compile(r"(base/[0-9]+|global)/pg_filenode\.map(\.tmp)?"), "relation"),
    (re.compile(r"(pg_xact|pg_multixact|pg_subtrans|pg_commit_ts)/.*"), "transactions"),
    (re.compile(r"postmaster\.(pid|opts)"), "lock"),
    (re.compile(r"(pg_stat|pg_stat_tmp|pg_notify|log)/.*|current_logfiles|server\.log"), "info-log"),
    (re.compile(r".*\.(conf|auto\.conf\.tmp)"), "options"),
    (re.compile(r"(.*/)?PG_VERSION"), "identity"),
)
_UNRECORDED = ("cache", "lock", "info-log")

CONFIGURATION = "postgresql.conf"
DATA_FOLDER = "data"
"""The data directory, in the cluster's folder (cluster.py)."""


@dataclass(frozen=True)
class PostgresqlLogReader:
    """``start`` is the LSN of a record from which the log is read, that of the base's last checkpoint;
    ``owners`` tell what each transaction wrote: xid to clients and sequences."""

    start: int = 0
    owners: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)

    def bound(self, base: Path, owners: Mapping[int, Sequence[tuple[int, int]]]) -> PostgresqlLogReader:
        """The reader of a run that began at a cluster's folder ``base``, which was shut down cleanly."""
        return PostgresqlLogReader(ControlFile.read(base / DATA_FOLDER).checkpoint, owners)

    def role(self, path: str) -> FileRole:
        """By the path below the recorded root, below the cluster's folder, or below the data directory."""
        inside = path.removeprefix("db/").removeprefix(f"{DATA_FOLDER}/")
        return next((role for pattern, role in _ROLES if pattern.fullmatch(inside)), "other")

    def files_of(self, role: FileRole) -> str:
        """Nothing for what is written through stdio, as caches and statistics are; of relations no free space
        maps, whose loss shows nowhere."""
        if role in _UNRECORDED:
            return ""
        patterns = [pattern.pattern.replace(_FORK, _TELLING_FORK) for pattern, of in _ROLES if of == role]
        return f"^(db/)?({DATA_FOLDER}/)?({'|'.join(patterns)})$" if patterns else ""

    def unrecorded(self, path: str) -> bool:
        """What the server writes through stdio, which the recorder cannot see: caches that it removes when
        it recovers, statistics that it then throws away, and its own messages. And the configuration, which
        duratune writes before each start."""
        return self.role(path) in _UNRECORDED or _name(path) == CONFIGURATION

    def log_rank(self, path: str) -> int:
        """Segments are replayed in the order of their names, within one timeline."""
        found = SEGMENT_NAME.fullmatch(_name(path))
        return int(found[2] + found[3], 16) if found else 0

    def counted_sync(self, rank: int, newest_rank: int) -> bool:
        """pg_stat_wal.wal_sync counts every sync of a segment in use (xlog.c, issue_xlog_fsync)."""
        del rank, newest_rank
        return True

    @property
    def event_names(self) -> tuple[str, ...]:
        return events.NAMES

    def events(self, steps: Sequence[Step]) -> list[EngineEvent]:
        return events.events(steps, self.role, self.log_rank)

    def map_logs(self, files: Mapping[int, str], content: Callable[[int], bytes]) -> LogMap:
        """Where the commit of every transaction with an owner ends."""
        numbers = {number: _name(path) for number, path in files.items() if self.role(path) == "wal"}
        contents = {name: content(number) for number, name in numbers.items()}
        stream = Stream.of(contents)
        if stream is None:
            return LogMap([], [], [], "no segment of the log can be read")
        files_by_segment = {
            segment_number(name, stream.segment_bytes): number for number, name in numbers.items()
        }
        places = []
        for record in stream.records(self.start):
            owners = self.owners.get(record.xid)
            if record.is_commit and owners is not None:
                last = record.end - 1
                file = files_by_segment[last // stream.segment_bytes]
                places += [LogPlace(*owner, file, last % stream.segment_bytes + 1) for owner in owners]
        first = self.start // stream.segment_bytes
        logs = [
            LogOrder(number, self.log_rank(name), self._base_bytes(stream, name, first))
            for number, name in numbers.items()
        ]
        return LogMap(places, logs, [])

    def _base_bytes(self, stream: Stream, name: str, first: int) -> int:
        """How much of a segment the base holds: what comes before the start. Segments have full size."""
        number = segment_number(name, stream.segment_bytes)
        if number == first:
            return self.start % stream.segment_bytes
        return stream.segment_bytes if number < first else 0


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
