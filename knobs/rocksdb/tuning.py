"""Which options a tuner searches, and where.

The ranges hold for hosts from two cores and a few GiB up; memory-bound ones are given for the smallest of
these and widened by `ranges` for the host at hand. They say where improvement is usually found, not what is
allowed. Nothing in RANGES changes what an acknowledged write is worth; UNSAFE_RANGES does.
"""

from __future__ import annotations

from knobs.knob import TuningRange, choice, linear, log
from knobs.rocksdb.values import InForce, is_on, whole

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_DB = "DBOptions."
_CF = "CFOptions."
_TABLE = "BlockBasedTableOptions."


def _switch(why: str) -> TuningRange:
    return choice(why, "false", "true")


RANGES: dict[str, TuningRange] = {
    _DB + "max_background_jobs": linear(1, 8, "flushes and compactions that run side by side"),
    _DB + "max_subcompactions": linear(1, 4, "threads that share one compaction"),
    _DB + "bytes_per_sync": choice(
        "smooths the writeback of table files", "0", "262144", "1048576", "4194304"
    ),
    _DB + "wal_bytes_per_sync": choice(
        "smooths the writeback of the WAL", "0", "262144", "1048576", "4194304"
    ),
    _DB + "compaction_readahead_size": choice(
        "larger sequential reads in compactions", "0", "262144", "1048576", "2097152", "4194304"
    ),
    _DB + "writable_file_max_buffer_size": log(64 * KIB, 4 * MIB, "bytes per write call of a table file"),
    _DB + "delayed_write_rate": log(
        4 * MIB, 256 * MIB, "how fast writers may go while compaction is behind, bytes per second"
    ),
    _DB + "enable_pipelined_write": _switch("overlaps one group's WAL write with another's memtable write"),
    _DB + "unordered_write": _switch("writers do not wait for each other's memtable writes"),
    _DB + "allow_concurrent_memtable_write": _switch("parallel memtable inserts against their overhead"),
    _DB + "enable_write_thread_adaptive_yield": _switch("spinning before blocking in the write queue"),
    _DB + "write_thread_max_yield_usec": choice(
        "how long a writer spins before it blocks", "0", "25", "100", "250", "500"
    ),
    _DB + "max_write_batch_group_size_bytes": log(
        128 * KIB, 8 * MIB, "how much one leader writes for its group: group commit"
    ),
    _DB + "max_total_wal_size": choice(
        "forces flushes of old memtables with several column families",
        "0",
        "67108864",
        "268435456",
        "1073741824",
    ),
    _DB + "wal_compression": choice("fewer WAL bytes for more CPU", "kNoCompression", "kZSTD"),
    _DB + "use_direct_reads": _switch("reads past the page cache"),
    _DB + "use_direct_io_for_flush_and_compaction": _switch("keeps compactions out of the page cache"),
    _DB + "avoid_unnecessary_blocking_io": _switch("deletes obsolete files in the background"),
    _DB + "table_cache_numshardbits": linear(4, 8, "lock contention on open table files"),
    _CF + "write_buffer_size": log(8 * MIB, 256 * MIB, "memtable size: fewer, larger flushes"),
    _CF + "max_write_buffer_number": linear(2, 8, "memtables that may wait for their flush"),
    _CF + "min_write_buffer_number_to_merge": linear(1, 3, "memtables merged into one flush"),
    _CF + "level0_file_num_compaction_trigger": linear(2, 16, "when level 0 is compacted"),
    _CF + "level0_slowdown_writes_trigger": linear(16, 64, "when writers are slowed down"),
    _CF + "level0_stop_writes_trigger": linear(32, 128, "when writers are stopped"),
    _CF + "max_bytes_for_level_base": log(32 * MIB, 2 * GIB, "size of level 1"),
    _CF + "max_bytes_for_level_multiplier": linear(4, 16, "how much larger each level is"),
    _CF + "target_file_size_base": log(8 * MIB, 256 * MIB, "size of a table file"),
    _CF + "level_compaction_dynamic_level_bytes": _switch("sizes levels from the last one"),
    _CF + "compaction_style": choice(
        "levelled: less space; universal: fewer rewrites",
        "kCompactionStyleLevel",
        "kCompactionStyleUniversal",
    ),
    _CF + "compaction_pri": choice(
        "which file a levelled compaction takes first",
        "kByCompensatedSize",
        "kOldestLargestSeqFirst",
        "kOldestSmallestSeqFirst",
        "kMinOverlappingRatio",
    ),
    _CF + "compression": choice(
        "CPU against bytes", "kNoCompression", "kSnappyCompression", "kLZ4Compression", "kZSTD"
    ),
    _CF + "bottommost_compression": choice(
        "the last level holds most data",
        "kDisableCompressionOption",
        "kNoCompression",
        "kLZ4Compression",
        "kZSTD",
    ),
    _CF + "memtable_prefix_bloom_size_ratio": linear(0.0, 0.25, "bloom filter of the memtable"),
    _CF + "memtable_whole_key_filtering": _switch("lets the memtable's bloom filter answer point reads"),
    _CF + "optimize_filters_for_hits": _switch("no filters on the last level, when most reads hit"),
    _CF + "memtable_huge_page_size": choice("memtable arenas from huge pages", "0", "2097152"),
    _TABLE + "block_cache": log(8 * MIB, 512 * MIB, "uncompressed blocks kept in memory"),
    _TABLE + "block_size": log(4 * KIB, 64 * KIB, "bytes read per miss against index size"),
    _TABLE + "filter_policy": choice(
        "bloom filters save reads of files without the key",
        "nullptr",
        "bloomfilter:8:false",
        "bloomfilter:10:false",
        "bloomfilter:16:false",
        "ribbonfilter:10",
    ),
    _TABLE + "cache_index_and_filter_blocks": _switch("index and filter compete for the block cache"),
    _TABLE + "data_block_index_type": choice(
        "a hash index inside blocks speeds up point reads",
        "kDataBlockBinarySearch",
        "kDataBlockBinaryAndHash",
    ),
    _TABLE + "block_restart_interval": choice("key compression against seek speed", "4", "8", "16", "32"),
    _TABLE + "format_version": choice("newer formats read faster", "4", "5"),
}

# What a search that looks at speed alone would vary too. Never part of a search for a configuration that
# holds its contract; only an audit of what such a search ships puts these in.
UNSAFE_RANGES: dict[str, TuningRange] = {
    "WriteOptions.sync": _switch("a sync for each group of writes, or none"),
    "WriteOptions.disableWAL": _switch("no log at all"),
    _DB + "manual_wal_flush": _switch("log records stay in the process"),
    _DB + "best_efforts_recovery": _switch("recovery without the log"),
    _DB + "paranoid_checks": _switch("fewer checks at open and after a failed write"),
    _CF + "force_consistency_checks": _switch("fewer checks of the LSM tree"),
    _TABLE + "checksum": choice("cheaper checksums, or none", "kXXH3", "kCRC32c", "kNoChecksum"),
}

# Share of the host's memory that the upper end of a memory-bound range may reach.
_PER_MEMORY: dict[str, float] = {
    _TABLE + "block_cache": 0.5,
    _CF + "write_buffer_size": 0.0625,
    _CF + "max_bytes_for_level_base": 0.5,
}


def ranges(memory_bytes: int, cores: int) -> dict[str, TuningRange]:
    """The ranges for a host (or container) with this much memory and this many cores.

    The block cache may take half of the memory; a memtable a sixteenth, since several are alive at once.
    """
    chosen = dict(RANGES)
    for name, share in _PER_MEMORY.items():
        base = RANGES[name]
        high = max((base.low or 1) * 2, float(int(memory_bytes * share)))
        chosen[name] = TuningRange(base.low, high, base.log, (), base.why)
    jobs = RANGES[_DB + "max_background_jobs"]
    chosen[_DB + "max_background_jobs"] = TuningRange(1, max(4, 2 * cores), False, (), jobs.why)
    subcompactions = RANGES[_DB + "max_subcompactions"]
    chosen[_DB + "max_subcompactions"] = TuningRange(1, max(2, cores), False, (), subcompactions.why)
    return chosen


def bounded_ranges(window_ms: float) -> dict[str, TuningRange]:
    """What a contract that allows to lose the last ``window_ms`` pays for: the application syncs the WAL
    every part of the window, and the writes themselves are not synced."""
    periods = dict.fromkeys(str(max(1, int(window_ms / part))) for part in (2, 4, 8, 16))
    return {
        "WriteOptions.sync": choice(
            "a sync for each group of writes, or by the application", "true", "false"
        ),
        "Application.sync_wal_every_ms": choice("one sync for all writes of a period", "0", *periods),
    }


def memory_bytes(in_force: InForce) -> int:
    """What the block cache and the memtables may hold at once under these values, in bytes.

    ``in_force`` holds every option, normalised. One memtable more than max_write_buffer_number is counted,
    because a flushed one is freed only after its table file is written. Table readers, compactions and the
    page cache come on top.
    """
    memtables = (whole(in_force, _CF + "max_write_buffer_number") + 1) * whole(
        in_force, _CF + "write_buffer_size"
    )
    is_cached = not is_on(in_force, _TABLE + "no_block_cache")
    return memtables + (whole(in_force, _TABLE + "block_cache") if is_cached else 0)
