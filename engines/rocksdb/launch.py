"""How a driver is to open one RocksDB: the launch spec that the engine makes and a workload reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from knobs.errors import InvalidInput

WRITE_OPTIONS = ("sync", "disableWAL", "no_slowdown", "low_pri", "memtable_insert_hint_per_batch")
"""The members of rocksdb/options.h struct WriteOptions that the driver sets; all of them are booleans."""


@dataclass(frozen=True)
class RocksdbLaunch:
    """One RocksDB instance as the driver opens it.

    ``options`` is an OPTIONS file, None for RocksDB's defaults; ``write_options`` holds values of
    WRITE_OPTIONS, the rest at RocksDB's defaults. The two intervals are what an application does by
    itself: FlushWAL(false) and FlushWAL(true) every so many milliseconds, 0 for never.
    """

    database: Path
    options: Path | None = None
    column_family: str = "default"
    write_options: Mapping[str, bool] = field(default_factory=dict)
    flush_wal_every_ms: int = 0
    sync_wal_every_ms: int = 0

    def __post_init__(self) -> None:
        unknown = sorted(set(self.write_options) - set(WRITE_OPTIONS))
        if unknown:
            raise InvalidInput(
                f"unknown WriteOptions: {', '.join(unknown)}",
                where="WriteOptions",
                hint=f"known are {', '.join(WRITE_OPTIONS)}",
            )

    def at(self, database: Path) -> RocksdbLaunch:
        """The same settings on another folder."""
        return replace(self, database=database)

    def spec(self) -> dict[str, str]:
        """The keys of the driver's spec that this launch fills."""
        spec = {"db.path": str(self.database), "db.cf": self.column_family}
        if self.options is not None:
            spec["db.options"] = str(self.options)
        spec |= {f"write.{name}": str(value).lower() for name, value in self.write_options.items()}
        spec["application.flush_wal_every_ms"] = str(self.flush_wal_every_ms)
        spec["application.sync_wal_every_ms"] = str(self.sync_wal_every_ms)
        return spec
