"""What RocksDB refuses as a combination.

`RULES` name combinations that do not start, that fail on the first write or never return from it, or that
the engine takes and cannot serve; each carries the engine's message. They were tried on 7.8.3, and the
tests try them again.
Every predicate looks at all options under their full names, normalised (`in_force` of the catalogue).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from knobs.rocksdb import values
from knobs.rocksdb.values import InForce, is_on, whole
from knobs.rule import Rule

_DB = "DBOptions."
_CF = "CFOptions."
_TABLE = "BlockBasedTableOptions."
_WRITE = "WriteOptions."

_DICTIONARIES: tuple[str, ...] = ("compression_opts", "bottommost_compression_opts")


def broken(in_force: InForce, linked_compressions: Sequence[str] = ()) -> list[Rule]:
    """Every rule that these values break, in the order of the list."""
    found = [rule for rule in RULES if rule.is_broken(in_force)]
    return found + (_unlinked(in_force, linked_compressions) if linked_compressions else [])


def _both(*names: str) -> Callable[[InForce], bool]:
    return lambda s: all(is_on(s, name) for name in names)


# Option -> when an algorithm that is not linked is noticed.
_COMPRESSIONS: dict[str, Literal["open", "later"]] = {
    _CF + "compression": "open",
    _CF + "compression_per_level": "open",
    _CF + "blob_compression_type": "open",
    _CF + "bottommost_compression": "later",
}


def _unlinked(in_force: InForce, linked: Sequence[str]) -> list[Rule]:
    found = []
    for name, fails_at in _COMPRESSIONS.items():
        allowed = {"", *linked}
        if name == _CF + "bottommost_compression":
            allowed.add("kDisableCompressionOption")  # means: as the other levels
        bad = [value for value in in_force.get(name, "").split(":") if value not in allowed]
        if bad:
            message = f"{name}: {', '.join(bad)} is not linked with the library"
            source = "rocksdb/convenience.h GetSupportedCompressions"
            found.append(Rule("compression-not-linked", (name,), lambda _: True, message, source, fails_at))
    return found


def _reads(option: str) -> str:
    return f"rocksdb/options.h {option}"


_SEEN = "RocksDB 7.8.3 at open: "

RULES: tuple[Rule, ...] = (
    Rule(
        "sync-without-wal",
        (_WRITE + "sync", _WRITE + "disableWAL"),
        _both(_WRITE + "sync", _WRITE + "disableWAL"),
        "WriteOptions.sync and WriteOptions.disableWAL exclude each other: a synced write needs the WAL",
        "RocksDB 7.8.3 at write: Sync writes has to enable WAL",
        "write",
    ),
    Rule(
        "unordered-pipelined",
        (_DB + "unordered_write", _DB + "enable_pipelined_write"),
        _both(_DB + "unordered_write", _DB + "enable_pipelined_write"),
        "unordered_write and enable_pipelined_write exclude each other",
        _SEEN + "unordered_write is incompatible with enable_pipelined_write",
    ),
    Rule(
        "atomic-flush-pipelined",
        (_DB + "atomic_flush", _DB + "enable_pipelined_write"),
        _both(_DB + "atomic_flush", _DB + "enable_pipelined_write"),
        "atomic_flush and enable_pipelined_write exclude each other",
        _SEEN + "atomic_flush is incompatible with enable_pipelined_write",
    ),
    Rule(
        "two-queues-pipelined",
        (_DB + "two_write_queues", _DB + "enable_pipelined_write"),
        _both(_DB + "two_write_queues", _DB + "enable_pipelined_write"),
        "two_write_queues and enable_pipelined_write exclude each other",
        "RocksDB 7.8.3 at write: pipelined_writes is not compatible with concurrent prepares",
        "write",
    ),
    Rule(
        "unordered-serial-memtable",
        (_DB + "unordered_write", _DB + "allow_concurrent_memtable_write"),
        lambda s: is_on(s, _DB + "unordered_write") and not is_on(s, _DB + "allow_concurrent_memtable_write"),
        "unordered_write needs allow_concurrent_memtable_write",
        _SEEN + "unordered_write is incompatible with !allow_concurrent_memtable_write",
    ),
    Rule(
        "unordered-merges",
        (_DB + "unordered_write", _CF + "max_successive_merges"),
        lambda s: is_on(s, _DB + "unordered_write") and whole(s, _CF + "max_successive_merges") > 0,
        "unordered_write needs max_successive_merges=0",
        _SEEN + "max_successive_merges > 0 is incompatible with unordered_write",
    ),
    Rule(
        "unordered-manual-flush",
        (_DB + "unordered_write", _DB + "manual_wal_flush", _DB + "two_write_queues", _WRITE + "disableWAL"),
        lambda s: (
            is_on(s, _DB + "unordered_write")
            and is_on(s, _DB + "manual_wal_flush")
            and not is_on(s, _DB + "two_write_queues")
            and not is_on(s, _WRITE + "disableWAL")
        ),
        "unordered_write with manual_wal_flush needs two_write_queues=true, or WriteOptions.disableWAL=true: "
        "else the first write waits for ever for a lock that it holds itself",
        "RocksDB 7.8.3 at write: DBImpl::WriteToWAL waits for the mutex that DBImpl::ConcurrentWriteToWAL "
        "holds, its caller; facebook/rocksdb issue 15097, still open in September 2026",
        "hang",
    ),
    Rule(
        "best-efforts-atomic-flush",
        (_DB + "best_efforts_recovery", _DB + "atomic_flush"),
        _both(_DB + "best_efforts_recovery", _DB + "atomic_flush"),
        "best_efforts_recovery and atomic_flush exclude each other",
        _SEEN + "atomic_flush is currently incompatible with best-efforts recovery",
    ),
    Rule(
        "mmap-writes-direct",
        (_DB + "allow_mmap_writes", _DB + "use_direct_io_for_flush_and_compaction"),
        _both(_DB + "allow_mmap_writes", _DB + "use_direct_io_for_flush_and_compaction"),
        "allow_mmap_writes and use_direct_io_for_flush_and_compaction exclude each other",
        _SEEN + "memory mapped writes need direct I/O writes to be disabled",
    ),
    Rule(
        "mmap-reads-direct",
        (_DB + "allow_mmap_reads", _DB + "use_direct_reads"),
        _both(_DB + "allow_mmap_reads", _DB + "use_direct_reads"),
        "allow_mmap_reads and use_direct_reads exclude each other",
        _SEEN + "memory mapped reads need direct I/O reads to be disabled",
    ),
    Rule(
        "direct-without-buffer",
        (_DB + "use_direct_io_for_flush_and_compaction", _DB + "writable_file_max_buffer_size"),
        lambda s: (
            is_on(s, _DB + "use_direct_io_for_flush_and_compaction")
            and whole(s, _DB + "writable_file_max_buffer_size") == 0
        ),
        "use_direct_io_for_flush_and_compaction needs writable_file_max_buffer_size > 0",
        _SEEN + "writes in direct IO require writable_file_max_buffer_size > 0",
    ),
    Rule(
        "concurrent-inplace",
        (_DB + "allow_concurrent_memtable_write", _CF + "inplace_update_support"),
        _both(_DB + "allow_concurrent_memtable_write", _CF + "inplace_update_support"),
        "inplace_update_support needs allow_concurrent_memtable_write=false",
        _SEEN + "In-place memtable updates are not compatible with concurrent writes",
    ),
    Rule(
        "concurrent-memtable",
        (_DB + "allow_concurrent_memtable_write", _CF + "memtable_factory"),
        lambda s: (
            is_on(s, _DB + "allow_concurrent_memtable_write")
            and not _is_skip_list(s.get(_CF + "memtable_factory", "SkipListFactory"))
        ),
        "allow_concurrent_memtable_write needs a skip list memtable",
        _SEEN + "Memtable doesn't concurrent writes",
    ),
    Rule(
        "cached-index-without-cache",
        (_TABLE + "cache_index_and_filter_blocks", _TABLE + "no_block_cache"),
        _both(_TABLE + "cache_index_and_filter_blocks", _TABLE + "no_block_cache"),
        "cache_index_and_filter_blocks needs a block cache",
        _SEEN + "Enable cache_index_and_filter_blocks, but block cache is disabled",
    ),
    Rule(
        "pinned-index-without-cache",
        (_TABLE + "pin_l0_filter_and_index_blocks_in_cache", _TABLE + "no_block_cache"),
        _both(_TABLE + "pin_l0_filter_and_index_blocks_in_cache", _TABLE + "no_block_cache"),
        "pin_l0_filter_and_index_blocks_in_cache needs a block cache",
        _SEEN + "Enable pin_l0_filter_and_index_blocks_in_cache, but block cache is disabled",
    ),
    Rule(
        "aligned-compressed",
        (_TABLE + "block_align", _CF + "compression"),
        lambda s: is_on(s, _TABLE + "block_align") and s.get(_CF + "compression") != "kNoCompression",
        "block_align needs compression=kNoCompression",
        _SEEN + "Enable block_align, but compression enabled",
    ),
    Rule(
        "aligned-odd-block",
        (_TABLE + "block_align", _TABLE + "block_size"),
        lambda s: is_on(s, _TABLE + "block_align") and not _is_power_of_two(whole(s, _TABLE + "block_size")),
        "block_align needs a block_size that is a power of two",
        _SEEN + "Block alignment requested but block size is not a power of 2",
    ),
    Rule(
        "hash-index-without-prefix",
        (_TABLE + "index_type", _CF + "prefix_extractor"),
        lambda s: (
            s.get(_TABLE + "index_type") == "kHashSearch"
            and s.get(_CF + "prefix_extractor") in ("", "nullptr")
        ),
        "index_type=kHashSearch needs a prefix_extractor",
        _SEEN + "Hash index is specified for block-based table, but prefix_extractor is not given",
    ),
    Rule(
        "hash-data-index-ratio",
        (_TABLE + "data_block_index_type", _TABLE + "data_block_hash_table_util_ratio"),
        lambda s: (
            s.get(_TABLE + "data_block_index_type") == "kDataBlockBinaryAndHash"
            and (values.real(s.get(_TABLE + "data_block_hash_table_util_ratio", "")) or 0.0) <= 0.0
        ),
        "data_block_index_type=kDataBlockBinaryAndHash needs data_block_hash_table_util_ratio > 0",
        _SEEN + "data_block_hash_table_util_ratio should be greater than 0",
    ),
    Rule(
        "fifo-ttl-open-files",
        (_CF + "compaction_style", _CF + "ttl", _DB + "max_open_files"),
        lambda s: (
            s.get(_CF + "compaction_style") == "kCompactionStyleFIFO"
            and whole(s, _DB + "max_open_files") != -1
            and whole(s, _CF + "ttl") > 0
        ),
        "compaction_style=kCompactionStyleFIFO with a ttl needs max_open_files=-1",
        _SEEN + "FIFO compaction only supported with max_open_files = -1",
    ),
    Rule(
        "compression-disabled-word",
        (_CF + "compression",),
        lambda s: s.get(_CF + "compression") == "kDisableCompressionOption",
        "compression=kDisableCompressionOption is for bottommost_compression only; use kNoCompression",
        _SEEN + "it aborts (CompressionTypeSupported)",
    ),
    Rule(
        "memtable-protection",
        (_CF + "memtable_protection_bytes_per_key",),
        lambda s: whole(s, _CF + "memtable_protection_bytes_per_key") not in (0, 1, 2, 4, 8),
        "memtable_protection_bytes_per_key takes 0, 1, 2, 4 or 8",
        _SEEN + "Memtable per key-value checksum protection only supports 0, 1, 2, 4 or 8 bytes per key",
    ),
    Rule(
        "dictionary-without-size",
        (_CF + "compression_opts",),
        lambda s: any(_trains_nothing(s.get(_CF + name, "")) for name in _DICTIONARIES),
        "compression_opts with zstd_max_train_bytes > 0 needs max_dict_bytes > 0",
        _SEEN + "The dictionary size limit should be nonzero if we're using zstd's dictionary generator",
    ),
    Rule(
        "ttl-table-format",
        (_CF + "ttl", _CF + "table_factory"),
        lambda s: _is_other_table(s) and _is_own_age(s.get(_CF + "ttl", "")),
        "a ttl needs table_factory=BlockBasedTable",
        _SEEN + "TTL is only supported in Block-Based Table format",
    ),
    Rule(
        "periodic-compaction-table-format",
        (_CF + "periodic_compaction_seconds", _CF + "table_factory"),
        lambda s: _is_other_table(s) and _is_own_age(s.get(_CF + "periodic_compaction_seconds", "")),
        "periodic_compaction_seconds needs table_factory=BlockBasedTable",
        _SEEN + "Periodic Compaction is only supported in Block-Based Table format",
    ),
    Rule(
        "never-compacts",
        (
            _CF + "compaction_style",
            _CF + "level0_file_num_compaction_trigger",
            _CF + "disable_auto_compactions",
        ),
        lambda s: not is_on(s, _CF + "disable_auto_compactions") and _lets_level_0_grow(s),
        "compaction_style=kCompactionStyleNone, or a negative level0_file_num_compaction_trigger, needs "
        "disable_auto_compactions=true: writes stop for good at level0_stop_writes_trigger files",
        "RocksDB 7.8.3: db_bench fillrandom stood still at 36 table files",
        "later",
    ),
    Rule(
        "write-protection",
        (_WRITE + "protection_bytes_per_key",),
        lambda s: whole(s, _WRITE + "protection_bytes_per_key") not in (0, 8),
        "WriteOptions.protection_bytes_per_key takes 0 or 8",
        _reads("protection_bytes_per_key") + ": zero (disabled) and eight",
        "later",
    ),
    Rule(
        "ingest-behind-levels",
        (_DB + "allow_ingest_behind", _CF + "num_levels"),
        lambda s: is_on(s, _DB + "allow_ingest_behind") and whole(s, _CF + "num_levels") < 3,
        "allow_ingest_behind needs num_levels >= 3",
        _reads("allow_ingest_behind") + ": num_levels should be >= 3",
        "later",
    ),
)


def _is_own_age(value: str) -> bool:
    return value not in ("", "0", values.UNCHOSEN_AGE)


def _lets_level_0_grow(s: InForce) -> bool:
    is_unmanaged = s.get(_CF + "compaction_style") == "kCompactionStyleNone"
    return is_unmanaged or whole(s, _CF + "level0_file_num_compaction_trigger") < 0


def _is_other_table(s: InForce) -> bool:
    return s.get(_CF + "table_factory", "BlockBasedTable") != "BlockBasedTable"


def _trains_nothing(options: str) -> bool:
    parts = values.fields(options) if options.startswith("{") else {}
    trained = values.integer(parts.get("zstd_max_train_bytes", "0")) or 0
    return trained > 0 and not values.integer(parts.get("max_dict_bytes", "0"))


def _is_skip_list(factory: str) -> bool:
    head = factory.strip("{}").partition(";")[0]
    return "skip" in head.lower() or factory == ""


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
