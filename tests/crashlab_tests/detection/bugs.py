"""The catalogue: kinds of bugs, each planted as code or by settings, and what must become of each.

A bug is caught where the verdict under its contract is BROKEN. Syncs are planted by a library that is loaded
before the recorder (planted.c); recovery by a verifier that spoils what the engine finds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crashlab.models.names import Metadata

Spoil = Callable[[Path], None]
WAL = {"postgresql": "*/pg_wal/0000*", "rocksdb": "*/db/*.log"}
DATA = {"postgresql": "*/db/*", "rocksdb": "*/db/*"}


@dataclass(frozen=True)
class Bug:
    """One kind in one engine: ``plant`` for its syncs, ``settings`` over those that hold, ``spoil`` for what
    recovery does with the database's folder. ``recorder`` is with which it is tried."""

    name: str
    engine: Literal["rocksdb", "postgresql"]
    plant: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    contract: str = "strict"
    metadata: Metadata = "ordered"
    spoil: Spoil | None = None
    checksums: bool = True
    strict_model: bool = False
    mount_options: str = ""
    recorders: tuple[str, ...] = ("preload", "block")

    @property
    def id(self) -> str:
        return f"{self.engine}: {self.name}"


def replay_a_stale_log(database: Path) -> None:
    """What a recycled log held before is replayed in the place of what was written to it since."""
    logs = sorted(database.glob("*.log"))
    if logs:
        logs[-1].write_bytes(logs[0].read_bytes() if len(logs) > 1 else b"")


def _of_syncs(engine: Literal["rocksdb", "postgresql"]) -> tuple[Bug, ...]:
    wal, data = WAL[engine], DATA[engine]
    # A commit of PostgreSQL is its own round, so that one in fifty is soon covered by the next.
    return (
        Bug("every sync ignored", engine, f"ignore every:1 {data}"),
        Bug("every 50th sync of the log ignored", engine, f"ignore every:50 {wal}"),
        Bug("every sync of the log ignored", engine, f"ignore every:1 {wal}"),
        Bug("the first sync of each log ignored", engine, f"ignore first {wal}"),
        Bug("acknowledged before the sync returns", engine, f"late:0 every:1 {wal}"),
        Bug("the sync 2 ms after the acknowledgement", engine, f"late:2 every:1 {wal}"),
        Bug("the wrong file synced", engine, f"elsewhere every:1 {wal}"),
    )


ROCKSDB = (
    *_of_syncs("rocksdb"),
    Bug("folder syncs ignored", "rocksdb", "ignore every:1 */db", metadata="posix", recorders=("preload",)),
    Bug("the manifest not synced", "rocksdb", "ignore every:1 */db/MANIFEST*"),
    Bug("tables not synced before the manifest names them", "rocksdb", "ignore every:1 */db/*.sst"),
    Bug("writes are not synced", "rocksdb", settings=(("WriteOptions.sync", "false"),)),
    Bug(
        "writes have no log",
        "rocksdb",
        settings=(("WriteOptions.disableWAL", "true"), ("WriteOptions.sync", "false")),
        contract="process",
    ),
    Bug(
        "recovery skips damaged records and leaves holes",
        "rocksdb",
        settings=(
            ("WriteOptions.sync", "false"),
            ("DBOptions.wal_recovery_mode", "kSkipAnyCorruptedRecords"),
        ),
        contract="process",
        strict_model=True,
        # In so short a run a file system writes nothing to its disk that it is not told to sync.
        recorders=("preload",),
    ),
    Bug("a stale recycled log is replayed", "rocksdb", spoil=replay_a_stale_log),
    Bug("a file system without barriers", "rocksdb", mount_options="barrier=0", recorders=("block",)),
)
POSTGRESQL = (
    *_of_syncs("postgresql"),
    Bug("full_page_writes=off", "postgresql", settings=(("full_page_writes", "off"),)),
    Bug(
        "torn pages without checksums",
        "postgresql",
        settings=(("full_page_writes", "off"),),
        checksums=False,
    ),
    Bug("fsync=off", "postgresql", settings=(("fsync", "off"),)),
    Bug(
        "synchronous_commit=off",
        "postgresql",
        settings=(("synchronous_commit", "off"), ("wal_writer_delay", "10s")),
    ),
    Bug("data files not synced by the checkpoint", "postgresql", "ignore every:1 */base/*"),
    Bug("the control file synced and the log not", "postgresql", "ignore every:1 */db/* */pg_control"),
    Bug("a file system without barriers", "postgresql", mount_options="barrier=0", recorders=("block",)),
)
BUGS = (*ROCKSDB, *POSTGRESQL)
