"""RocksDB as the lab sees it: configuration in, launch spec out; its controls and its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engines.engine import ControlSettings
from engines.rocksdb.launch import RocksdbLaunch
from engines.rocksdb.log_reader import RocksdbLogReader
from engines.rocksdb.readback import effective_settings
from knobs.contract import Contract
from knobs.rocksdb import library
from knobs.rocksdb.options_file import OptionsFile

SYNC = "WriteOptions.sync"
DISABLE_WAL = "WriteOptions.disableWAL"
_WRITE_OPTIONS = "WriteOptions."


class RocksdbEngine:
    """RocksDB, embedded in the driver process that opens it."""

    name = "rocksdb"
    default_contract = Contract("process")
    log_reader = RocksdbLogReader()
    controls: Mapping[str, ControlSettings] = {
        "cache": ControlSettings(lossy={DISABLE_WAL: "true"}, honest={SYNC: "true"}),
        "synced": ControlSettings(lossy={SYNC: "false"}, honest={SYNC: "true"}),
    }

    def version(self) -> str:
        """The version of the installed library. Raises MachineLacks where the native parts are missing."""
        return str(library.options()["version"])

    def reference_settings(self, contract: Contract) -> dict[str, str]:
        """The fewest settings with which the engine's defaults hold the contract.

        `process` holds by default; `strict` and `bounded` need every write synced.
        """
        return {} if contract.kind == "process" else {SYNC: "true"}

    def log_bytes_max(self, effective: str, column_family: str) -> int | None:
        """How much WAL a recovery may have to replay under these settings, in bytes.

        A memtable is flushed when it is full, so the WAL behind it holds about as much (options.h:
        write_buffer_size, max_total_wal_size; advanced_options.h: max_write_buffer_number).
        """
        settings = effective_settings(effective, column_family)
        buffers = int(settings["CFOptions.write_buffer_size"]) * int(
            settings["CFOptions.max_write_buffer_number"]
        )
        limit = int(settings["DBOptions.max_total_wal_size"])
        return min(buffers, limit) if limit else buffers

    def launch(
        self, base: OptionsFile, settings: Mapping[str, str], folder: Path, column_family: str
    ) -> RocksdbLaunch:
        """Write the OPTIONS file into ``folder`` and say how to open the database in ``folder/db``.

        ``settings`` are under full names, with values as the catalogue normalises them. Raises
        InvalidInput where one has no place in the file.
        """
        options = folder / "OPTIONS"
        options.write_text(base.apply(settings, column_family).render(), encoding="utf-8")
        return RocksdbLaunch(
            database=folder / "db",
            options=options,
            column_family=column_family,
            write_options={
                name.removeprefix(_WRITE_OPTIONS): value == "true"
                for name, value in settings.items()
                if name.startswith(_WRITE_OPTIONS)
            },
            flush_wal_every_ms=int(settings.get("Application.flush_wal_every_ms", 0)),
            sync_wal_every_ms=int(settings.get("Application.sync_wal_every_ms", 0)),
        )
