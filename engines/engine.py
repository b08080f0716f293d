"""What the lab must know of an engine, and the registry of engines.

An engine names what its files are for and where an acknowledged write lies in them; folders,
configuration and processes are files of their own beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

FileRole = Literal["wal", "table", "manifest", "current", "options", "identity", "lock", "info-log", "other"]


@dataclass(frozen=True)
class LogPlace:
    """Where one client write lies: the log file (by its number in the lab's disk) and the offset
    behind the record that holds it."""

    client: int
    sequence: int
    file: int
    end_offset: int
    family: int = 0


@dataclass(frozen=True)
class LogOrder:
    """One log file in the engine's own order of replay: ``rank`` rises from older to newer."""

    file: int
    rank: int


@dataclass(frozen=True)
class Released:
    """A statement that logs ranked below ``rank`` are not needed, by ``family`` or (None) by anyone.

    It holds once the bytes of ``file`` up to ``end_offset`` are durable.
    """

    file: int
    end_offset: int
    family: int | None
    rank: int


@dataclass(frozen=True)
class LogMap:
    """Everything that the audit must know of an engine's logs.

    ``opaque`` says why some writes could not be located, in words; "" where all could be tried.
    """

    places: Sequence[LogPlace]
    logs: Sequence[LogOrder]
    released: Sequence[Released]
    opaque: str = ""


@dataclass(frozen=True)
class ControlSettings:
    """Settings over the engine's defaults whose verdict is known beforehand: ``lossy`` must come out
    BROKEN under `strict`, ``honest`` HELD."""

    lossy: Mapping[str, str]
    honest: Mapping[str, str]


class LogReader(Protocol):
    """Reads an engine's own file formats out of recorded bytes."""

    def role(self, path: str) -> FileRole:
        """What a file is for, by its path below the recorded root."""
        ...

    def unrecorded(self, path: str) -> bool:
        """Whether recovery never reads this file, so that its bytes need not be in the write log."""
        ...

    def log_rank(self, path: str) -> int:
        """A log file's place in the engine's order of replay; rises from older to newer."""
        ...

    def counted_sync(self, rank: int, newest_rank: int) -> bool:
        """Whether the engine's own counter counts a sync of this log while the newest is the other."""
        ...

    def map_logs(self, files: Mapping[int, str], content: Callable[[int], bytes]) -> LogMap:
        """Locate every client write: ``files`` gives each file's path, ``content`` its final bytes."""
        ...
