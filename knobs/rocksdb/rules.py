"""What RocksDB refuses as a combination, and what it changes without a word.

`RULES` name combinations that do not start, or that fail on the first write; each carries the engine's
message. `CHANGES` name values that the engine replaces while it opens a database, so that what is in force
is not what was asked for. Both were tried on 7.8.3 and are tried again by the tests.
The mapping that they look at holds every option under its full name, normalised (see `in_force` of the
catalogue).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from knobs.finding import Finding
from knobs.rocksdb import values

InForce = Mapping[str, str]

_DB = "DBOptions."
_CF = "CFOptions."
_TABLE = "BlockBasedTableOptions."
_WRITE = "WriteOptions."


@dataclass(frozen=True, slots=True)
class Rule:
    """A combination that fails. ``fails_at`` says when: at open, or at the first write."""

    id: str
    names: tuple[str, ...]
    is_broken: Callable[[InForce], bool]
    message: str
    source: str
    fails_at: Literal["open", "write"] = "open"


@dataclass(frozen=True, slots=True)
class Change:
    """A value that the engine replaces; ``becomes`` gives the new one, None where it keeps it."""

    id: str
    name: str
    becomes: Callable[[InForce], str | None]
    why: str
    source: str


def broken(in_force: InForce, linked_compressions: Sequence[str] = ()) -> list[Rule]:
    """Every rule that these values break, in the order of the list."""
    found = [rule for rule in RULES if rule.is_broken(in_force)]
    for name in _COMPRESSIONS:
        value = in_force.get(name, "")
        if linked_compressions and value not in (*linked_compressions, "kDisableCompressionOption"):
            found.append(_not_linked(name, value))
    return found


def changes(in_force: InForce) -> list[Finding]:
    """A finding for each value that the engine silently replaces."""
    found = []
    for change in CHANGES:
        new = change.becomes(in_force)
        if new is not None and new != in_force[change.name]:
            why = f"the engine changes it to {new}: {change.why}"
            found.append(
                Finding(change.id, change.name, in_force[change.name], "", "nothing", why, change.source)
            )
    return found


def _on(in_force: InForce, name: str) -> bool:
    return in_force.get(name) == "true"


def _number(in_force: InForce, name: str) -> int:
    return values.integer(in_force.get(name, "0")) or 0


def _both(*names: str) -> Callable[[InForce], bool]:
    return lambda s: all(_on(s, name) for name in names)


_COMPRESSIONS = (_CF + "compression", _CF + "bottommost_compression", _CF + "blob_compression_type")


def _not_linked(name: str, value: str) -> Rule:
    return Rule(
        "compression-not-linked",
        (name,),
        lambda s: s[name] == value,
        f"{name}={value}: this compression is not linked with the library",
        "rocksdb/convenience.h GetSupportedCompressions",
    )


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
        lambda s: _on(s, _DB + "unordered_write") and not _on(s, _DB + "allow_concurrent_memtable_write"),
        "unordered_write needs allow_concurrent_memtable_write",
        _SEEN + "unordered_write is incompatible with !allow_concurrent_memtable_write",
    ),
    Rule(
        "unordered-merges",
        (_DB + "unordered_write", _CF + "max_successive_merges"),
        lambda s: _on(s, _DB + "unordered_write") and _number(s, _CF + "max_successive_merges") > 0,
        "unordered_write needs max_successive_merges=0",
        _SEEN + "max_successive_merges > 0 is incompatible with unordered_write",
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
            _on(s, _DB + "use_direct_io_for_flush_and_compaction")
            and _number(s, _DB + "writable_file_max_buffer_size") == 0
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
            _on(s, _DB + "allow_concurrent_memtable_write")
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
        lambda s: _on(s, _TABLE + "block_align") and s.get(_CF + "compression") != "kNoCompression",
        "block_align needs compression=kNoCompression",
        _SEEN + "Enable block_align, but compression enabled",
    ),
    Rule(
        "aligned-odd-block",
        (_TABLE + "block_align", _TABLE + "block_size"),
        lambda s: _on(s, _TABLE + "block_align") and not _is_power_of_two(_number(s, _TABLE + "block_size")),
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
            and _number(s, _DB + "max_open_files") != -1
            and _number(s, _CF + "ttl") > 0
        ),
        "compaction_style=kCompactionStyleFIFO with a ttl needs max_open_files=-1",
        _SEEN + "FIFO compaction only supported with max_open_files = -1",
    ),
    Rule(
        "memtable-protection",
        (_CF + "memtable_protection_bytes_per_key",),
        lambda s: _number(s, _CF + "memtable_protection_bytes_per_key") not in (0, 1, 2, 4, 8),
        "memtable_protection_bytes_per_key takes 0, 1, 2, 4 or 8",
        _SEEN + "Memtable per key-value checksum protection only supports 0, 1, 2, 4 or 8 bytes per key",
    ),
    Rule(
        "wal-compression-algorithm",
        (_DB + "wal_compression",),
        lambda s: s.get(_DB + "wal_compression") not in ("kNoCompression", "kZSTD"),
        "wal_compression takes kNoCompression or kZSTD",
        _reads("wal_compression") + ": only zstd is supported",
    ),
    Rule(
        "write-protection",
        (_WRITE + "protection_bytes_per_key",),
        lambda s: _number(s, _WRITE + "protection_bytes_per_key") not in (0, 8),
        "WriteOptions.protection_bytes_per_key takes 0 or 8",
        _reads("protection_bytes_per_key") + ": zero (disabled) and eight",
        "write",
    ),
    Rule(
        "ingest-behind-levels",
        (_DB + "allow_ingest_behind", _CF + "num_levels"),
        lambda s: _on(s, _DB + "allow_ingest_behind") and _number(s, _CF + "num_levels") < 3,
        "allow_ingest_behind needs num_levels >= 3",
        _reads("allow_ingest_behind") + ": num_levels should be >= 3",
    ),
)


def _is_skip_list(factory: str) -> bool:
    head = factory.strip("{}").partition(";")[0]
    return "skip" in head.lower() or factory == ""


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _recycled_logs(s: InForce) -> str | None:
    archived = _number(s, _DB + "WAL_ttl_seconds") > 0 or _number(s, _DB + "WAL_size_limit_MB") > 0
    skips = s.get(_DB + "wal_recovery_mode") == "kSkipAnyCorruptedRecords"
    return None if skips and not archived else "0"


def _slowdown(s: InForce) -> int:
    return max(
        _number(s, _CF + "level0_slowdown_writes_trigger"),
        _number(s, _CF + "level0_file_num_compaction_trigger"),
    )


def _open_files(s: InForce) -> str | None:
    asked = _number(s, _DB + "max_open_files")
    return "20" if asked != -1 and asked < 20 else None


def _merged_buffers(s: InForce) -> str | None:
    if _on(s, _DB + "atomic_flush"):
        return "1"
    asked = _number(s, _CF + "min_write_buffer_number_to_merge")
    kept = max(_number(s, _CF + "max_write_buffer_number"), 2)
    return str(max(1, min(asked, kept - 1)))


def _levels(s: InForce) -> str | None:
    asked = _number(s, _CF + "num_levels")
    style = s.get(_CF + "compaction_style")
    return "2" if style == "kCompactionStyleLevel" and asked < 2 else None


CHANGES: tuple[Change, ...] = (
    Change(
        "recycled-logs-dropped",
        _DB + "recycle_log_file_num",
        _recycled_logs,
        "recycled logs only go with wal_recovery_mode=kSkipAnyCorruptedRecords and no WAL archive",
        _SEEN + "the options in force",
    ),
    Change(
        "open-files-raised",
        _DB + "max_open_files",
        _open_files,
        "it keeps at least 20 table files open",
        _SEEN + "the options in force",
    ),
    Change(
        "write-buffers-raised",
        _CF + "max_write_buffer_number",
        lambda s: "2" if _number(s, _CF + "max_write_buffer_number") < 2 else None,
        "two write buffers are the least, so that one can fill while the other is flushed",
        "rocksdb/advanced_options.h max_write_buffer_number",
    ),
    Change(
        "merged-buffers-lowered",
        _CF + "min_write_buffer_number_to_merge",
        _merged_buffers,
        "it stays below max_write_buffer_number, and is 1 with atomic_flush",
        "rocksdb/advanced_options.h min_write_buffer_number_to_merge",
    ),
    Change(
        "slowdown-trigger-raised",
        _CF + "level0_slowdown_writes_trigger",
        lambda s: str(_slowdown(s)),
        "writes slow down only at or after the compaction trigger",
        _SEEN + "the options in force",
    ),
    Change(
        "stop-trigger-raised",
        _CF + "level0_stop_writes_trigger",
        lambda s: str(max(_number(s, _CF + "level0_stop_writes_trigger"), _slowdown(s))),
        "writes stop only at or after the slowdown trigger",
        _SEEN + "the options in force",
    ),
    Change(
        "compaction-trigger-raised",
        _CF + "level0_file_num_compaction_trigger",
        lambda s: "1" if _number(s, _CF + "level0_file_num_compaction_trigger") == 0 else None,
        "a trigger of 0 is meaningless",
        _SEEN + "the options in force",
    ),
    Change(
        "levels-raised",
        _CF + "num_levels",
        _levels,
        "levelled compaction needs two levels",
        _SEEN + "the options in force",
    ),
    Change(
        "partitioned-filters-dropped",
        _TABLE + "partition_filters",
        lambda s: (
            "false"
            if _on(s, _TABLE + "partition_filters") and s.get(_TABLE + "index_type") != "kTwoLevelIndexSearch"
            else None
        ),
        "partitioned filters need index_type=kTwoLevelIndexSearch",
        "RocksDB 7.8.3, BlockBasedTableFactory",
    ),
    Change(
        "dbid-forgotten",
        _DB + "write_dbid_to_manifest",
        lambda s: "false" if _on(s, _DB + "write_dbid_to_manifest") else None,
        "this version forgets the option when it copies DBOptions",
        "RocksDB 7.8.3, GetDBOptionsFromMap",
    ),
)
