"""Our own data about single options: durability meaning, bounds that the engine states, outside names.

Every sentence was read from the header that the catalogue cites for the option, or seen on the version in
brackets. What follows from several options together is in durability.py.
"""

from __future__ import annotations

from knobs.knob import Knob, Source

MEANINGS: dict[str, str] = {
    "WriteOptions.sync": (
        "false: a write returns once the operating system has it, so a power cut loses the newest "
        "acknowledged writes and a process crash none; true: it returns after the WAL was synced"
    ),
    "WriteOptions.disableWAL": (
        "true: nothing of a write is on disk until its memtable is flushed, so any crash loses it"
    ),
    "DBOptions.manual_wal_flush": (
        "true: WAL records stay in a buffer of the process until FlushWAL, a write with sync=true, or the "
        "buffer is full, so a process crash loses them; SyncWAL alone returns OK and saves nothing [7.8.3]"
    ),
    "DBOptions.best_efforts_recovery": (
        "true: recovery ignores every WAL, so each open drops what was not in table files, synced or not, "
        "also after a clean close [7.8.3]"
    ),
    "DBOptions.wal_recovery_mode": (
        "what a damaged WAL leads to: kPointInTimeRecovery opens with what lies before the damage; "
        "kTolerateCorruptedTailRecords also accepts an incomplete last record but refuses other damage; "
        "kAbsoluteConsistency refuses even a torn last record; "
        "kSkipAnyCorruptedRecords opens and leaves holes"
    ),
    "DBOptions.avoid_flush_during_shutdown": (
        "true: a clean close does not flush memtables, so data written without a WAL is lost even then; "
        "harmless while every write goes through the WAL"
    ),
    "DBOptions.avoid_flush_during_recovery": (
        "true: recovery keeps the old WALs instead of flushing, so replay may be repeated at the next open; "
        "loses nothing"
    ),
    "DBOptions.allow_mmap_writes": (
        "true: by its header SyncWAL does not work, so a periodic sync must not be relied on; on Linux the "
        "WAL is nevertheless written with write() [7.8.3]"
    ),
    "DBOptions.paranoid_checks": (
        "false: the database opens with missing or damaged table files, and goes on writing after a "
        "failed write"
    ),
    "DBOptions.track_and_verify_wals_in_manifest": (
        "true: a synced, closed WAL that is missing or short makes the open fail instead of losing its "
        "writes silently; it does not track the live WAL"
    ),
    "DBOptions.verify_sst_unique_id_in_manifest": (
        "false: a table file that was overwritten or misplaced is not noticed when it is opened"
    ),
    "DBOptions.skip_checking_sst_file_sizes_on_db_open": (
        "true: a table file of a wrong size is not noticed at open"
    ),
    "DBOptions.flush_verify_memtable_count": "false: a flush that lost entries is not noticed",
    "DBOptions.use_fsync": "fsync in place of fdatasync, equally safe; without a sync it syncs nothing",
    "DBOptions.wal_bytes_per_sync": (
        "starts writing WAL bytes back early with sync_file_range, which makes nothing durable"
    ),
    "DBOptions.bytes_per_sync": (
        "starts writing table files back early with sync_file_range; a finished table file is synced anyway"
    ),
    "DBOptions.strict_bytes_per_sync": "limits bytes under writeback; gives no persistence guarantee",
    "DBOptions.recycle_log_file_num": (
        "reuses WAL files; the engine sets it to 0 unless wal_recovery_mode is kSkipAnyCorruptedRecords, and "
        "with WAL_ttl_seconds or WAL_size_limit_MB [7.8.3]"
    ),
    "DBOptions.WAL_ttl_seconds": "keeps obsolete WALs in an archive; no effect on crashes",
    "DBOptions.WAL_size_limit_MB": "limits the archive of obsolete WALs; no effect on crashes",
    "DBOptions.wal_dir": (
        "where WALs are; a database opened with another wal_dir silently misses every write that is only in "
        "the old WALs, synced or not [7.8.3]"
    ),
    "DBOptions.wal_filter": "a program's filter may drop WAL records during recovery",
    "DBOptions.wal_compression": "compresses WAL records; no effect on what survives",
    "DBOptions.atomic_flush": (
        "flushes column families together; matters for writes without a WAL, and adds nothing with one"
    ),
    "DBOptions.unordered_write": ("gives up that snapshots and iterators are immutable; not durability"),
    "DBOptions.enable_pipelined_write": "overlaps WAL and memtable writes; not durability",
    "DBOptions.two_write_queues": "a second queue for writes without memtable; not durability",
    "DBOptions.max_total_wal_size": (
        "flushes earlier with several column families, so recovery replays less; loses nothing"
    ),
    "DBOptions.allow_2pc": "false: recovery fails when the WAL holds a prepared transaction",
    "DBOptions.writable_file_max_buffer_size": (
        "how many WAL bytes the process may hold back under manual_wal_flush"
    ),
    "DBOptions.error_if_exists": "true: the database does not open again after it was created",
    "CFOptions.write_buffer_size": (
        "a larger memtable means more WAL to replay, so a longer recovery; without a WAL, more to lose"
    ),
    "CFOptions.force_consistency_checks": "false: inconsistencies of the LSM tree are not noticed",
    "CFOptions.paranoid_file_checks": "true: each new table file is read back and compared",
    "CFOptions.check_flush_compaction_key_order": "false: keys written out of order are not noticed",
    "CFOptions.memtable_protection_bytes_per_key": "checksums of memtable entries against memory faults",
    "CFOptions.ttl": "with FIFO compaction, data older than this is deleted on purpose",
    "CFOptions.compaction_style": "kCompactionStyleFIFO deletes the oldest data on purpose",
    "BlockBasedTableOptions.checksum": ("kNoChecksum: damage to new table files is returned as data"),
    "BlockBasedTableOptions.verify_compression": "true: each compressed block is decompressed and compared",
    "BlockBasedTableOptions.detect_filter_construct_corruption": (
        "true: filters are checked after construction against memory faults"
    ),
    "Application.flush_wal_every_ms": (
        "bounds what a process crash loses under manual_wal_flush to this many milliseconds"
    ),
    "Application.sync_wal_every_ms": (
        "bounds what a power cut loses without WriteOptions.sync to this many milliseconds"
    ),
}

# Bounds that the engine itself keeps, narrower than the type: (least, greatest).
BOUNDS: dict[str, tuple[float, float]] = {
    # "The minimum value allowed is 1. Any smaller value will be silently overwritten" (table.h).
    "BlockBasedTableOptions.block_restart_interval": (1, 2**31 - 1),
    "BlockBasedTableOptions.index_block_restart_interval": (1, 2**31 - 1),
    # Outside 0..100 the table factory silently uses 0 [7.8.3].
    "BlockBasedTableOptions.block_size_deviation": (0, 100),
    # "block size exceeds maximum number (4GiB) allowed" [7.8.3].
    "BlockBasedTableOptions.block_size": (0, 2**32 - 1),
    # "Unsupported BlockBasedTable format_version" [7.8.3].
    "BlockBasedTableOptions.format_version": (0, 5),
    # A negative count makes the library throw, a huge one exhausts memory; one is the least it keeps.
    "CFOptions.num_levels": (1, 64),
    # "keep_log_file_num must be greater than 0" [7.8.3].
    "DBOptions.keep_log_file_num": (1, 2**64 - 1),
    # "The age cutoff for blob garbage collection should be in the range [0.0, 1.0]" [7.8.3].
    "CFOptions.blob_garbage_collection_age_cutoff": (0, 1),
    "CFOptions.blob_garbage_collection_force_threshold": (0, 1),
    # -1 keeps every file open; anything else is a count.
    "DBOptions.max_open_files": (-1, 2**31 - 1),
    # With 20 and more the table cache is not made, and the library aborts [7.8.3].
    "DBOptions.table_cache_numshardbits": (-1, 19),
    # "Currently supported values are zero (disabled) and eight" (options.h); a rule checks the two.
    "WriteOptions.protection_bytes_per_key": (0, 8),
}

# Options that name a path, host object or callback outside the data folder.
OUTSIDE = frozenset(
    {
        "DBOptions.wal_dir",
        "DBOptions.db_log_dir",
        "DBOptions.db_paths",
        "DBOptions.env",
        "DBOptions.listeners",
        "DBOptions.info_log",
        "DBOptions.wal_filter",
        "DBOptions.sst_file_manager",
        "DBOptions.compaction_service",
        "CFOptions.cf_paths",
        "CFOptions.compaction_filter",
        "CFOptions.compaction_filter_factory",
        "BlockBasedTableOptions.persistent_cache",
    }
)

# DB::FlushWAL: "Flush the WAL memory buffer to the file. If sync is true, it calls SyncWAL afterwards."
_DB_H = Source("rocksdb/db.h", 1442)

APPLICATION: tuple[Knob, ...] = (
    Knob(
        name="Application.flush_wal_every_ms",
        kind="integer",
        type="uint64_t",
        default="0",
        documentation=(
            "How often the application calls DB::FlushWAL(false), which hands the WAL buffer to the\n"
            "operating system. 0: never. No option of RocksDB: the program that embeds it does this, or\n"
            "does not."
        ),
        source=_DB_H,
        unit="ms",
        minimum=0,
        maximum=3_600_000,
        meaning=MEANINGS["Application.flush_wal_every_ms"],
    ),
    Knob(
        name="Application.sync_wal_every_ms",
        kind="integer",
        type="uint64_t",
        default="0",
        documentation=(
            "How often the application calls DB::FlushWAL(true), which hands the WAL buffer to the\n"
            "operating system and syncs the WAL. 0: never. No option of RocksDB: the program that embeds it\n"
            "does this, or does not. DB::SyncWAL() alone does not flush the buffer of manual_wal_flush."
        ),
        source=_DB_H,
        unit="ms",
        minimum=0,
        maximum=3_600_000,
        meaning=MEANINGS["Application.sync_wal_every_ms"],
    ),
)
