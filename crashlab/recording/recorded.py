"""A recorded run on disk, and everything that can be read off it.

The folder holds `facts.json`, the compacted `write.log`, the `ledger`, the `base` that the run
started from and the candidate's `OPTIONS`. That is all a crash state needs: it is rebuilt from log,
position, model and seed, and judged under any contract, without running anything again but the
engine's recovery.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from crashlab.block.disk_log import disk_of
from crashlab.judging.audit import Audit, audit_run
from crashlab.judging.oracle import Cut, History
from crashlab.judging.timeline import Timeline
from crashlab.models import CrashModel
from crashlab.recording.fault import Struck
from crashlab.recording.places import DATABASE_FOLDER
from crashlab.recording.write_log import Operation, WriteLog
from crashlab.states.disk import BaseFile, Disk, Image
from crashlab.states.horizon import Horizons
from crashlab.states.lives import Life, lives
from crashlab.states.run_view import RunView
from engines.engine import FileRole, LogMap, LogReader
from knobs.errors import InvalidInput
from workloads.ledger import Ledger

FACTS_SCHEMA = 5
COMPLETING_ROLES: tuple[FileRole, ...] = ("control", "manifest")
"""Of PostgreSQL's checkpoints, and of RocksDB's versions."""
OWNERS_NAME = "owners.json"


@dataclass(frozen=True)
class Facts:
    """What the folder's other files do not say.

    ``base_inodes`` and ``folder_inodes`` are the live ones, by path below the recorded root, the root itself
    included. ``file_system`` is the virtual disk's, with its mount options, "" where there is none.
    ``canary_position`` is where the recorder's canary had ended. ``provoked_until`` is the position where the
    last provocation ended: from there on the load was alone. ``fault`` is the one that it was made to meet,
    "" for none, and ``fault_position`` where the call that failed began. ``faults`` say why the log must not
    be believed (empty: it may be); ``notes`` what is worth saying besides.
    """

    engine: str
    engine_version: str
    workload: str
    workload_parameters: dict[str, str]
    settings: dict[str, str]
    engine_parameters: dict[str, str]
    threads: int
    seed: int
    recorder: str
    initial_records: int
    register_per_write: bool
    base_inodes: dict[str, int]
    folder_inodes: dict[str, int]
    first_position: int
    kill_ns: int
    operations: int
    log_bytes: int
    file_system: str = ""
    canary_position: int = 0
    provoked_until: int = 0
    fault: str = ""
    fault_position: int = 0
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def save(self, folder: Path) -> None:
        text = json.dumps({"schema": FACTS_SCHEMA, **asdict(self)}, indent=1)
        (folder / "facts.json").write_text(text, encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> Facts:
        """Raises InvalidInput where the folder holds no recording of this version."""
        try:
            facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
            if facts.pop("schema") != FACTS_SCHEMA:
                raise InvalidInput(
                    "a recording of another version", where=str(folder), hint="record it again"
                )
            return Facts(**{**facts, "faults": tuple(facts["faults"]), "notes": tuple(facts["notes"])})
        except FileNotFoundError:
            raise InvalidInput(
                "no recording here", where=str(folder), hint="name a folder that duratune crash wrote"
            ) from None
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidInput(f"a damaged recording: {error!r}", where=str(folder)) from error


def save_owners(folder: Path, owners: Mapping[int, Sequence[tuple[int, int]]]) -> None:
    """Keep what each of the engine's own transactions wrote: clients and sequences by its number."""
    text = json.dumps({str(transaction): owner for transaction, owner in owners.items()})
    (folder / OWNERS_NAME).write_text(text, encoding="utf-8")


def load_owners(folder: Path) -> dict[int, list[tuple[int, int]]]:
    """What `save_owners` kept; nothing for an engine whose log says whose each write is."""
    path = folder / OWNERS_NAME
    if not path.exists():
        return {}
    return {
        int(key): [(owner[0], owner[1]) for owner in owners]
        for key, owners in json.loads(path.read_text("utf-8")).items()
    }


def _told_moments(struck: Struck) -> tuple[tuple[int, str], ...]:
    """Where a fault shows what it has done: just after it, after the next checkpoint, and after the last."""
    after = (struck.operation.end or struck.operation.begin) + 1
    moments = {after: "just after the fault"}
    for position in {*struck.checkpoints[:1], *struck.checkpoints[-1:]}:
        number = struck.checkpoints.index(position) + 1
        moments[position + 1] = f"after completed checkpoint {number} behind the fault"
    return tuple(moments.items())


class Logged:
    """What was done to one base, by a believed log or not: read from its folder as far as it is asked for."""

    def __init__(
        self, folder: Path, reader: LogReader, leaves_out: Callable[[Operation], bool] = lambda _: False
    ) -> None:
        """``leaves_out`` says which operations are taken as never done: a control plants a fault by it."""
        self.folder = folder
        self.facts = Facts.load(folder)
        self.reader = reader
        self._leaves_out = leaves_out

    @property
    def base(self) -> Path:
        """Where the files are kept that it began with."""
        return self.folder / "base"

    @property
    def believable(self) -> bool:
        """Whether verdicts may be drawn from the log."""
        return not self.facts.faults

    @property
    def disbelief(self) -> str:
        """Why no verdict may be drawn from the log; "" where it is believed."""
        return f"the write log is not believed: {'; '.join(self.facts.faults)}" if self.facts.faults else ""

    @cached_property
    def log(self) -> WriteLog:
        return WriteLog.read(self.folder / "write.log")

    @cached_property
    def disk(self) -> Disk:
        base = [
            BaseFile.kept(path, inode, self.base / path.removeprefix(DATABASE_FOLDER + "/"))
            for path, inode in self.facts.base_inodes.items()
        ]
        done = [each for each in self.log.operations if not self._leaves_out(each)]
        return Disk(base, self.facts.folder_inodes, done, self.reader.role)

    @cached_property
    def device(self) -> Disk | None:
        """The virtual disk below the files, of a run that had one."""
        return disk_of(self.folder) if self.facts.file_system else None

    def crashed(self, model: CrashModel) -> tuple[Disk, Horizons]:
        """What a crash of this model falls on: a power cut on the virtual disk where there is one, else on
        the files."""
        if self.device is not None and model.crash == "power-cut":
            return self.device, self._device_horizons
        return self.disk, self.horizons

    def image(self, model: CrashModel, position: int, seed: int) -> Image:
        """What a crash at the position leaves, under this model and seed."""
        return model.image(*self.crashed(model), position, seed)

    @cached_property
    def _device_horizons(self) -> Horizons:
        assert self.device is not None, "asked only where there is one"
        return Horizons(self.device)

    @cached_property
    def lives(self) -> dict[int, Life]:
        return lives(self.disk)

    @cached_property
    def horizons(self) -> Horizons:
        return Horizons(self.disk)

    @cached_property
    def _roles(self) -> dict[str, FileRole]:
        return {}

    def role_of(self, operation: Operation) -> FileRole:
        """The role of the file that an operation was about."""
        path = operation.new_path or operation.path
        if not path:
            file = self.disk.file_of(operation)
            path = self.disk.paths.get(file.number, "") if file else ""
        if path not in self._roles:
            self._roles[path] = self.reader.role(path)
        return self._roles[path]


class Recording(Logged):
    """One recorded run: its log, and what its clients did meanwhile."""

    def __init__(
        self, folder: Path, reader: LogReader, leaves_out: Callable[[Operation], bool] = lambda _: False
    ) -> None:
        """``leaves_out`` as for any log."""
        super().__init__(folder, reader.bound(folder / "base", load_owners(folder)), leaves_out)

    def without(self, leaves_out: Callable[[Operation], bool]) -> Recording:
        """The same run as if these operations had never been done."""
        return Recording(self.folder, self.reader, leaves_out)

    @cached_property
    def history(self) -> History:
        with Ledger.open(self.folder / "ledger") as ledger:
            facts = self.facts
            return History(ledger.entries(), facts.initial_records, facts.register_per_write)

    @cached_property
    def timeline(self) -> Timeline:
        return Timeline(self.disk.operations, self.history)

    @cached_property
    def log_map(self) -> LogMap:
        logs = {
            number: life.path
            for number, life in self.lives.items()
            if life.path.startswith(DATABASE_FOLDER + "/")
            and self.reader.role(life.path) in ("wal", "manifest")
        }
        return self.reader.map_logs(logs, lambda number: self.lives[number].final_content)

    @cached_property
    def audit(self) -> Audit:
        return audit_run(self.lives, self.horizons, self.log_map, self.history)

    @cached_property
    def view(self) -> RunView:
        return RunView(
            self.disk,
            self.horizons,
            self.timeline,
            self.audit,
            self.role_of,
            self.facts.first_position,
            self.reader,
            None if self.device is None else (self.device, self._device_horizons),
            _told_moments(self.struck) if self.struck else (),
        )

    @cached_property
    def struck(self) -> Struck | None:
        """Where the fault struck; None in a run without one."""
        at = self.facts.fault_position
        if not at:
            return None
        operation = next(each for each in self.log.operations if each.begin == at)
        file = self.disk.file_of(operation)
        names = [
            life.path for life in self.lives.values() if life.file is file and life.begin <= at < life.end
        ]
        path = names[0] if names else ""
        began_ns = self.timeline.ns_at(self.facts.first_position + 1)
        return Struck(
            self.facts.fault,
            operation,
            path,
            self.reader.role(path),
            (operation.begin_ns - began_ns) / 1e6,
            tuple(sorted(self._completed_after(at))),
        )

    def _completed_after(self, position: int) -> Iterator[int]:
        """Where the engine had made later checkpoints or versions complete, each by a sync of one file."""
        for life in self.lives.values():
            if self.reader.role(life.path) in COMPLETING_ROLES:
                yield from (
                    sync.end
                    for sync in life.file.syncs
                    if sync.end is not None and max(position, life.begin) < sync.begin < life.end
                )

    def cut(self, position: int) -> Cut:
        """The crash at a position of this run."""
        return Cut(position, self.timeline.ns_at(position), position)

    def describe(self) -> dict[str, Any]:
        """The recording in a few figures, for reports."""
        return {
            "operations": self.facts.operations,
            "log_records": self.log.record_count,
            "log_bytes": self.facts.log_bytes,
            "recorder": self.facts.recorder,
            "file_system": self.facts.file_system,
            "faults": list(self.facts.faults),
            "notes": list(self.facts.notes),
        }
