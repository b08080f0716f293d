"""What the lab must know of an engine.

An engine names what its files are for and where an acknowledged write lies in them; folders,
configuration and processes are files of their own beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, Self

from engines.event import EngineEvent, Step
from engines.process import Watcher
from engines.scratch import Scratch
from knobs.catalogue import Settings
from knobs.contract import Contract

FileRole = Literal[
    "wal",
    "table",
    "manifest",
    "current",
    "options",
    "identity",
    "lock",
    "info-log",
    "other",
    "relation",
    "control",
    "transactions",
    "cache",
]


@dataclass(frozen=True)
class LogPlace:
    """Where one client write lies: the log (by the number that the lab gave it) and the offset behind the
    record that holds it."""

    client: int
    sequence: int
    file: int
    end_offset: int
    family: int = 0


@dataclass(frozen=True)
class LogOrder:
    """One log in the engine's own order of replay: ``rank`` rises from older to newer.

    ``base_bytes`` is how much of it the base holds where that is less than the whole file, which an
    engine may have made at its full size beforehand.
    """

    file: int
    rank: int
    base_bytes: int | None = None


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
    BROKEN under `strict`, ``honest`` HELD.

    Where the lossy run is lossy only because every sync of a folder is left out of its write log,
    ``forgets_folders`` is set.
    """

    lossy: Mapping[str, str]
    honest: Mapping[str, str]
    forgets_folders: bool = False


@dataclass(frozen=True)
class Replay:
    """What a recovery replayed: bytes of log, those of them that are images of whole pages, and the seconds
    it took; ``written_s`` is how long the load had taken to write it."""

    log_bytes: int
    image_bytes: int
    redo_s: float
    written_s: float


@dataclass(frozen=True)
class LongestReplay:
    """The most log that settings let a recovery replay, and how long that would take."""

    log_bytes: int
    redo_s: float


class LogReader(Protocol):
    """Reads an engine's own file formats out of recorded bytes."""

    def bound(self, base: Path, owners: Mapping[int, Sequence[tuple[int, int]]]) -> LogReader:
        """The same for one recorded run: it began at ``base``, and its log names transactions by a number
        of the engine's own; ``owners`` tell client and sequence of each write of one."""
        ...

    def role(self, path: str) -> FileRole:
        """What a file is for, by its path below the recorded root."""
        ...

    def files_of(self, role: FileRole) -> str:
        """An extended regular expression (regex(7)) of the whole paths below the recorded root that have a
        role; "" where the recorder sees no files of it. Files whose loss shows nowhere may be left out."""
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

    @property
    def event_names(self) -> tuple[str, ...]:
        """What the engine's people call its events, those too that a run may not have."""
        ...

    def events(self, steps: Sequence[Step]) -> Sequence[EngineEvent]:
        """Its events, in order: ``steps`` are all of one log's."""
        ...

    def map_logs(self, files: Mapping[int, str], content: Callable[[int], bytes]) -> LogMap:
        """Locate every client write: ``files`` gives each log's path, ``content`` its final bytes.

        A file that was renamed is a log for each of its names, with what it held at the end of each.
        """
        ...


class Launch(Protocol):
    """How one instance is to be started; what else it holds is between an engine and its workloads."""

    @property
    def database(self) -> Path:
        """The folder of the instance's data."""

    def at(self, database: Path) -> Self:
        """The same settings on another folder."""


class Engine(Protocol):
    """One engine under what the user's files state of it; a candidate's settings come on top."""

    @property
    def name(self) -> str:
        """The word by which the user chooses it."""

    @property
    def default_contract(self) -> Contract: ...

    @property
    def log_reader(self) -> LogReader: ...

    @property
    def stamps_in_server(self) -> bool:
        """Whether acknowledgements are stamped by the recorder in the engine's processes, and not by the
        clients themselves; then every run needs the recorder."""

    @property
    def recovers_in_memory(self) -> bool:
        """Whether crash states are better rebuilt and recovered on a tmpfs where there is room."""

    @property
    def runs_as(self) -> tuple[int, int] | None:
        """The uid and gid of the engine's processes where those are not duratune's own."""

    @property
    def controls(self) -> Mapping[str, ControlSettings]:
        """By crash model."""

    @property
    def control_workload(self) -> str:
        """The workload that controls run, by name."""

    @property
    def parameters(self) -> Mapping[str, str]:
        """What the engine of a recorded run is made from again, beside the files of its folder."""

    @property
    def limit_states(self) -> int:
        """How many states of a model are tried on the safest settings, to find a limit of the engine."""

    @property
    def stays_down(self) -> Mapping[str, str]:
        """Settings over a candidate's by which an engine that stops over a fault does not start again by
        itself."""

    def version(self) -> str:
        """Raises MachineLacks where the engine is not there."""

    def reference_settings(self, contract: Contract) -> dict[str, str]:
        """The fewest settings with which its defaults hold the contract: its safest ones."""

    def plain(self) -> Engine:
        """The same with nothing but its defaults."""

    def bound(self, scratch: Scratch, watcher: Watcher | None, folder: Path) -> Engine:
        """The same in a lab: what is made in ``folder`` is noted in ``scratch``, and ``watcher`` ends the
        engine's processes."""

    def reaches(self, folder: Path) -> bool:
        """Whether the engine's processes may pass this folder, or the first one above it that exists."""

    def launch(self, settings: Mapping[str, str], folder: Path) -> Launch:
        """Write the configuration into an existing folder; the data will be in ``folder/db``.

        Raises InvalidInput where a setting has no place in it.
        """

    def taken(self, settings: Mapping[str, str]) -> Settings:
        """What an instance takes of these settings: what is the private one's own has its value there."""

    def in_force(self, effective: str) -> Settings:
        """The settings in force, of the text that a run left of them."""

    def longest_replay(self, effective: str, seen: Replay) -> LongestReplay | None:
        """The longest replay under these settings, of a load that was seen for a while; None where nothing
        bounds it."""
