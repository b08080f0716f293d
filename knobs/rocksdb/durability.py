"""What RocksDB settings promise to an acknowledged write: a prediction from the catalogue, never a verdict.

Pure and free of imports that start slowly: static checks of two configurations live on it. Each statement
cites a line of the header (the snapshot's version), or a run: "in trials" means rows counted after SIGKILL or
a clean close of RocksDB 7.8.3.

An OPTIONS file cannot promise a power cut: WriteOptions.sync lives in the application. Where a configuration
does not state it, the power cut is `unknown`; `breaking`, which judges a candidate that will be run, takes
the default that RocksDB itself then uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from knobs.contract import Contract
from knobs.finding import Finding
from knobs.rocksdb import values
from knobs.rocksdb.catalogue import RocksdbCatalogue, load
from knobs.weakness import InForce, Level, Weakness, findings_of

SYNC = "WriteOptions.sync"
DISABLE_WAL = "WriteOptions.disableWAL"
MANUAL_WAL_FLUSH = "DBOptions.manual_wal_flush"
FLUSH_EVERY = "Application.flush_wal_every_ms"
SYNC_EVERY = "Application.sync_wal_every_ms"
BEST_EFFORTS = "DBOptions.best_efforts_recovery"
RECOVERY_MODE = "DBOptions.wal_recovery_mode"
AVOID_FLUSH = "DBOptions.avoid_flush_during_shutdown"
MMAP_WRITES = "DBOptions.allow_mmap_writes"
WAL_DIR = "DBOptions.wal_dir"


@dataclass(frozen=True, slots=True)
class Promise:
    """What settings promise by themselves, for each failure, with the findings that say why."""

    process_crash: Level
    power_cut: Level
    recovery: Level
    findings: tuple[Finding, ...] = ()


def promise(settings: Mapping[str, str], version: str | None = None) -> Promise:
    """What ``settings`` (full names, only those stated) promise; see the module's text about `unknown`.

    Raises InvalidInput for an unknown name, or a version without a catalogue.
    """
    catalogue = load(version)
    stated = {catalogue.resolve(name) for name in settings}
    found = _findings(catalogue, settings)
    failures = {finding.failure for finding in found if finding.rule != "unsynced" or SYNC in stated}
    power: Level = "weakened" if "power-cut" in failures else "kept"
    if power == "kept" and SYNC not in stated and not _on(catalogue.in_force(settings), DISABLE_WAL):
        power = "unknown"
    return Promise(
        process_crash="weakened" if "process-crash" in failures else "kept",
        power_cut=power,
        recovery="weakened" if failures & {"recovery", "hidden-corruption"} else "kept",
        findings=tuple(found),
    )


def breaking(settings: Mapping[str, str], contract: Contract, version: str | None = None) -> list[Finding]:
    """The findings that break ``contract`` by the catalogue, for a candidate with these settings.

    Options that are not stated have RocksDB's defaults: with nothing stated, `strict` is broken by
    WriteOptions.sync=false. Raises InvalidInput for an unknown name, or a version without a catalogue.
    """
    catalogue = load(version)
    return findings_of(WEAKNESSES, catalogue, catalogue.in_force(settings), contract)


def caveats(settings: Mapping[str, str], version: str | None = None) -> list[Finding]:
    """What these settings risk although they break no contract by what is promised of them.

    Raises InvalidInput as `promise` does.
    """
    catalogue = load(version)
    return findings_of(CAVEATS, catalogue, catalogue.in_force(settings))


def _findings(catalogue: RocksdbCatalogue, settings: Mapping[str, str]) -> list[Finding]:
    in_force = catalogue.in_force(settings)
    return findings_of(WEAKNESSES, catalogue, in_force)


def _on(s: InForce, name: str) -> bool:
    return values.is_on(s, name)


def _every_ms(s: InForce, *names: str) -> float | None:
    """The shortest period among these `Application.*` options; None where all are `never` (0)."""
    periods = [float(values.whole(s, name)) for name in names if values.whole(s, name) > 0]
    return min(periods) if periods else None


def _is_logged(s: InForce) -> bool:
    return not _on(s, DISABLE_WAL)


def _is_unsynced(s: InForce) -> bool:
    return _is_logged(s) and not _on(s, SYNC)


def _is_buffered(s: InForce) -> bool:
    return _is_unsynced(s) and _on(s, MANUAL_WAL_FLUSH)


def _mode(name: str) -> Callable[[InForce], bool]:
    return lambda s: _is_logged(s) and s.get(RECOVERY_MODE) == name


def _unsynced_mode(name: str) -> Callable[[InForce], bool]:
    return lambda s: _is_unsynced(s) and s.get(RECOVERY_MODE) == name


def _is(name: str, value: str) -> Callable[[InForce], bool]:
    return lambda s: s.get(name) == value


WEAKNESSES: tuple[Weakness, ...] = (
    Weakness(
        "no-wal",
        (DISABLE_WAL,),
        "process-crash",
        lambda s: _on(s, DISABLE_WAL),
        "every acknowledged write since the last flush of its memtable",
        "nothing of a write is on disk before its memtable is flushed; in trials: 0 of 1000 after SIGKILL",
    ),
    Weakness(
        "no-wal",
        (DISABLE_WAL,),
        "power-cut",
        lambda s: _on(s, DISABLE_WAL),
        "every acknowledged write since the last flush of its memtable",
        "nothing of a write is on disk before its memtable is flushed",
    ),
    Weakness(
        "no-wal-no-flush",
        (DISABLE_WAL, AVOID_FLUSH),
        "recovery",
        lambda s: _on(s, DISABLE_WAL) and _on(s, AVOID_FLUSH),
        "the same writes also at a clean close",
        "closing does not flush, and there is no WAL to replay; in trials: 0 of 1000 after a clean close",
    ),
    Weakness(
        "buffered-wal",
        (MANUAL_WAL_FLUSH, SYNC),
        "process-crash",
        _is_buffered,
        "the newest acknowledged writes, as many as the WAL buffer of the process holds",
        "WAL records leave the process only with FlushWAL or a synced write; SyncWAL alone returns OK and "
        "saves nothing; in trials: 0 of 1000 after SIGKILL, 1000 with FlushWAL(false)",
        lambda s: _every_ms(s, FLUSH_EVERY, SYNC_EVERY),
        only_newest=True,
    ),
    Weakness(
        "unsynced",
        (SYNC,),
        "power-cut",
        _is_unsynced,
        "the newest acknowledged writes that the operating system had not written",
        "a write returns once the operating system has it; in trials: 3623 of 359974 at a cut, a contiguous "
        "tail",
        lambda s: _every_ms(s, SYNC_EVERY),
        only_newest=True,
    ),
    Weakness(
        "wal-ignored",
        (BEST_EFFORTS,),
        "recovery",
        _is(BEST_EFFORTS, "true"),
        "every write that is not in a table file, synced or not, at each open",
        "WAL files are not used for recovery; in trials: 0 of 1000 synced writes after SIGKILL, and "
        "after a clean close",
    ),
    Weakness(
        "older-version-taken",
        (BEST_EFFORTS,),
        "hidden-corruption",
        _is(BEST_EFFORTS, "true"),
        "data of missing or damaged table files, up to all of it, without an error",
        "the open falls back to the newest state whose files are whole, possibly an empty one",
    ),
    Weakness(
        "holes-accepted",
        (RECOVERY_MODE,),
        "hidden-corruption",
        _mode("kSkipAnyCorruptedRecords"),
        "writes in the middle of the WAL, while later ones survive",
        "damaged records are skipped; in trials: 984 of 1000 with a hole after 8 damaged bytes",
    ),
    Weakness(
        "torn-tail-refused",
        (RECOVERY_MODE, SYNC),
        "recovery",
        _unsynced_mode("kAbsoluteConsistency"),
        "the database does not open until somebody repairs it",
        "an unsynced last record may be torn by a power cut, and this mode refuses any damage; "
        "in trials: refuses after 7 bytes were cut off",
    ),
    Weakness(
        "damage-refused",
        (RECOVERY_MODE, SYNC),
        "recovery",
        _unsynced_mode("kTolerateCorruptedTailRecords"),
        "the database does not open until somebody repairs it",
        "unsynced WAL bytes may reach the disk out of order, and this mode refuses damage before the last "
        "record; in trials: refuses after 8 damaged bytes in the middle",
    ),
    Weakness(
        "mmap-wal-sync",
        (MMAP_WRITES, SYNC),
        "power-cut",
        lambda s: _is_unsynced(s) and _on(s, MMAP_WRITES) and _every_ms(s, SYNC_EVERY) is not None,
        "the newest acknowledged writes, without the bound of the periodic sync",
        "by its header SyncWAL does not work with mapped writes; seen to work on Linux, so this is not "
        "guaranteed rather than broken",
        only_newest=True,
    ),
    Weakness(
        "paranoia-off",
        ("DBOptions.paranoid_checks",),
        "hidden-corruption",
        _is("DBOptions.paranoid_checks", "false"),
        "missing or damaged table files are noticed only when they are read",
        "the open does not verify table files, and writing goes on after a failed write; "
        "seen: opens with a table file missing, then reads fail",
    ),
    Weakness(
        "checksums-off",
        ("BlockBasedTableOptions.checksum",),
        "hidden-corruption",
        _is("BlockBasedTableOptions.checksum", "kNoChecksum"),
        "damage to new table files is returned as data",
        "new blocks carry no checksum",
    ),
    Weakness(
        "consistency-checks-off",
        ("CFOptions.force_consistency_checks",),
        "hidden-corruption",
        _is("CFOptions.force_consistency_checks", "false"),
        "an inconsistent order of table files is not noticed",
        "the checks of the LSM tree at each change are skipped",
    ),
    Weakness(
        "file-identity-unchecked",
        ("DBOptions.verify_sst_unique_id_in_manifest",),
        "hidden-corruption",
        _is("DBOptions.verify_sst_unique_id_in_manifest", "false"),
        "an overwritten or misplaced table file is not noticed",
        "the file's id is not compared with the MANIFEST",
    ),
    Weakness(
        "flush-count-unchecked",
        ("DBOptions.flush_verify_memtable_count",),
        "hidden-corruption",
        _is("DBOptions.flush_verify_memtable_count", "false"),
        "a flush that lost entries is not noticed",
        "the number of entries written is not compared with the memtable's",
    ),
    Weakness(
        "key-order-unchecked",
        ("CFOptions.check_flush_compaction_key_order",),
        "hidden-corruption",
        _is("CFOptions.check_flush_compaction_key_order", "false"),
        "keys written out of order are not noticed",
        "the order is not checked while table files are written",
    ),
    Weakness(
        "oldest-data-deleted",
        ("CFOptions.compaction_style",),
        "recovery",
        _is("CFOptions.compaction_style", "kCompactionStyleFIFO"),
        "the oldest data, on purpose, once the size limit or ttl is reached",
        "FIFO compaction deletes the oldest table files",
    ),
)

# Names that look like durability and are not: what a reviewer asks about first. Rule of each: harmless alone.
HARMLESS: dict[str, str] = {
    "DBOptions.use_fsync": "fsync in place of fdatasync; without WriteOptions.sync there is no sync at all",
    "DBOptions.wal_bytes_per_sync": "sync_file_range only: it makes nothing durable, and loses nothing",
    "DBOptions.bytes_per_sync": "sync_file_range only: a finished table file is synced anyway",
    "DBOptions.strict_bytes_per_sync": "it bounds writeback and gives no persistence guarantee",
    "DBOptions.unordered_write": "it relaxes snapshots, not durability; in trials: 1000 of 1000 after "
    "SIGKILL",
    "DBOptions.enable_pipelined_write": "in trials: 1000 of 1000 after SIGKILL",
    "DBOptions.two_write_queues": "in trials: 1000 of 1000 after SIGKILL",
    "DBOptions.atomic_flush": "it adds nothing while every write goes through the WAL",
    "DBOptions.WAL_ttl_seconds": "it keeps obsolete WALs longer; in trials: 1000 of 1000 after SIGKILL",
    "DBOptions.WAL_size_limit_MB": "it limits the archive of obsolete WALs",
    "DBOptions.recycle_log_file_num": "the engine sets it to 0 unless damaged records are skipped",
    "DBOptions.track_and_verify_wals_in_manifest": "it makes a lost synced WAL loud instead of silent",
    "DBOptions.skip_stats_update_on_db_open": "it skips statistics, not data",
    "DBOptions.max_total_wal_size": "it flushes earlier, so recovery replays less",
}

CAVEATS: tuple[Weakness, ...] = (
    Weakness(
        "torn-tail-after-a-kill",
        (RECOVERY_MODE,),
        "recovery",
        _mode("kAbsoluteConsistency"),
        "nothing is lost, but the database does not open until somebody changes the mode",
        "a SIGKILL may cut the WAL write under way between two pages, and this mode refuses a torn last "
        "record; in trials: 40 of 60 kills cut appends of 19,200 bytes (Linux 6.18, ext4)",
    ),
)
