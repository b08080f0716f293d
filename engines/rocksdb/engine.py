"""RocksDB as the lab sees it: configuration in, launch spec out; its controls and its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from engines.engine import ControlSettings, LongestReplay, Replay
from engines.process import Watcher
from engines.rocksdb.launch import RocksdbLaunch
from engines.rocksdb.log_reader import RocksdbLogReader
from engines.rocksdb.readback import effective_settings
from engines.scratch import Scratch
from knobs.catalogue import Settings
from knobs.contract import Contract
from knobs.rocksdb import library, options_file
from knobs.rocksdb.options_file import OptionsFile

SYNC = "WriteOptions.sync"
DISABLE_WAL = "WriteOptions.disableWAL"
OPTIONS_NAME = "OPTIONS"
_OF_CUTS = ControlSettings(lossy={SYNC: "false"}, honest={SYNC: "true"})
_OF_FOLDERS = ControlSettings(lossy={SYNC: "true"}, honest={SYNC: "true"}, forgets_folders=True)
CONTROLS: Mapping[str, ControlSettings] = {
    "cache": ControlSettings(lossy={DISABLE_WAL: "true"}, honest={SYNC: "true"}),
    **dict.fromkeys(("synced", "torn", "torn-512", "reordered"), _OF_CUTS),
    **dict.fromkeys(("synced-posix", "torn-posix", "reordered-posix"), _OF_FOLDERS),
}
_WRITE_OPTIONS = "WriteOptions."


@dataclass(frozen=True)
class RocksdbEngine:
    """RocksDB, embedded in the driver process that opens it.

    ``base`` is the user's OPTIONS file, or RocksDB's defaults; a candidate's settings lie over it, in the
    column family that the load uses.
    """

    base: OptionsFile = field(default_factory=options_file.from_default)
    column_family: str = "default"
    controls: Mapping[str, ControlSettings] = field(default_factory=lambda: CONTROLS)

    name: ClassVar[str] = "rocksdb"
    default_contract: ClassVar[Contract] = Contract("process")
    log_reader: ClassVar[RocksdbLogReader] = RocksdbLogReader()
    control_workload: ClassVar[str] = "ycsb:a"
    stamps_in_server: ClassVar[bool] = False
    recovers_in_memory: ClassVar[bool] = False
    limit_states: ClassVar[int] = 100
    runs_as: ClassVar[tuple[int, int] | None] = None
    stays_down: ClassVar[Mapping[str, str]] = {}

    def version(self) -> str:
        """The version of the installed library. Raises MachineLacks where the native parts are missing."""
        return str(library.options()["version"])

    def reference_settings(self, contract: Contract) -> dict[str, str]:
        """The fewest settings with which the engine's defaults hold the contract.

        `process` holds by default; `strict` and `bounded` need every write synced.
        """
        return {} if contract.kind == "process" else {SYNC: "true"}

    @property
    def parameters(self) -> dict[str, str]:
        """What `of_recording` must be told beside the files of a recording."""
        return {"column_family": self.column_family}

    @staticmethod
    def of_recording(folder: Path, parameters: Mapping[str, str]) -> RocksdbEngine:
        """The engine of a recorded run, from the OPTIONS file in its folder."""
        path = folder / OPTIONS_NAME
        return RocksdbEngine(options_file.parse(path.read_bytes(), str(path)), parameters["column_family"])

    def plain(self) -> RocksdbEngine:
        """The same with nothing but its defaults."""
        return replace(self, base=options_file.from_default(), column_family="default")

    def bound(self, scratch: Scratch, watcher: Watcher | None, folder: Path) -> RocksdbEngine:
        """Itself: a database is a folder, and its process is the workload's driver."""
        del scratch, watcher, folder
        return self

    def reaches(self, folder: Path) -> bool:
        """True: the driver runs as duratune itself."""
        del folder
        return True

    def stated(self, settings: Mapping[str, str]) -> Settings:
        """Everything that is stated: the base with the settings over it."""
        return {**self.base.settings(self.column_family), **settings}

    def taken(self, settings: Mapping[str, str]) -> Settings:
        """All of them: what names something outside of the data folder is not among them any more."""
        return dict(settings)

    def in_force(self, effective: str) -> Settings:
        """The settings in force, of the text that a run left of them."""
        return effective_settings(effective, self.column_family)

    def longest_replay(self, effective: str, seen: Replay) -> LongestReplay:
        """The most WAL that these settings keep, at the rate at which it was replayed.

        A memtable is flushed when it is full, so the WAL behind it holds about as much (options.h:
        write_buffer_size, max_total_wal_size; advanced_options.h: max_write_buffer_number).
        """
        settings = self.in_force(effective)
        buffers = int(settings["CFOptions.write_buffer_size"]) * int(
            settings["CFOptions.max_write_buffer_number"]
        )
        limit = int(settings["DBOptions.max_total_wal_size"])
        longest = max(seen.log_bytes, min(buffers, limit) if limit else buffers)
        return LongestReplay(longest, seen.redo_s * longest / seen.log_bytes)

    def launch(self, settings: Mapping[str, str], folder: Path) -> RocksdbLaunch:
        """Write the OPTIONS file into ``folder`` and say how to open the database in ``folder/db``.

        ``settings`` are under full names, with values as the catalogue normalises them. Raises
        InvalidInput where one has no place in the file.
        """
        options = folder / OPTIONS_NAME
        options.write_text(self.base.apply(settings, self.column_family).render(), encoding="utf-8")
        return RocksdbLaunch(
            database=folder / "db",
            options=options,
            column_family=self.column_family,
            write_options={
                name.removeprefix(_WRITE_OPTIONS): value == "true"
                for name, value in settings.items()
                if name.startswith(_WRITE_OPTIONS)
            },
            flush_wal_every_ms=int(settings.get("Application.flush_wal_every_ms", 0)),
            sync_wal_every_ms=int(settings.get("Application.sync_wal_every_ms", 0)),
        )
