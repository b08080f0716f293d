"""Rules: the start points that somebody who knows RocksDB would try first, each with its source.

None of them touches what an acknowledged write is worth. They are starting points for the search, not
advice for production: each is measured and crashed like any other candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.proposers.proposal import HostLimits, Proposal, StartPoint

MIB = 1 << 20
_DB, _CF, _TABLE = "DBOptions.", "CFOptions.", "BlockBasedTableOptions."


class RocksdbRules:
    """The rule-based proposer for RocksDB."""

    name = "rules"

    def start_points(self, host: HostLimits) -> Sequence[Proposal]:
        return [Proposal(self.name, point.settings, point.reason, point.source) for point in _points(host)]


def speed_alone(reference: Mapping[str, str]) -> list[Proposal]:
    """What somebody who looks at speed alone tries first; only for an audit."""
    unsynced = {"WriteOptions.sync": "false"}
    tries = [
        (unsynced, "no sync at the writes"),
        ({**unsynced, "WriteOptions.disableWAL": "true"}, "no log at all"),
        ({**unsynced, _DB + "manual_wal_flush": "true"}, "log records stay in the process"),
    ]
    return [
        Proposal("speed", settings, reason, "rocksdb/options.h: WriteOptions, manual_wal_flush")
        for settings, reason in tries
        if any(reference.get(name, "false") != value for name, value in settings.items())
    ]


def _points(host: HostLimits) -> list[StartPoint]:
    cache = str(max(8 * MIB, min(host.memory_bytes // 4, 1024 * MIB)))
    jobs = str(max(2, host.cores))
    read_path = {
        _TABLE + "block_cache": cache,
        _TABLE + "filter_policy": "bloomfilter:10:false",
        _TABLE + "data_block_index_type": "kDataBlockBinaryAndHash",
    }
    memtable = {
        _CF + "write_buffer_size": str(_memtable_bytes(host)),
        _CF + "max_write_buffer_number": "4",
        _DB + "max_background_jobs": jobs,
    }
    return [
        StartPoint(
            "point reads: a block cache of a quarter of the memory, bloom filters, a hash index in blocks",
            "rocksdb/table.h: block_cache, filter_policy, data_block_index_type",
            read_path,
        ),
        StartPoint(
            "one group's memtable writes overlap with the next group's WAL write",
            "rocksdb/options.h: enable_pipelined_write",
            {_DB + "enable_pipelined_write": "true"},
        ),
        StartPoint(
            "larger memtables flush less often and absorb overwrites of hot records",
            "rocksdb/advanced_options.h: max_write_buffer_number; rocksdb/options.h: write_buffer_size",
            memtable,
        ),
        StartPoint(
            "the read path and the larger memtables together",
            "rocksdb/table.h, rocksdb/options.h",
            {**read_path, **memtable},
        ),
        StartPoint(
            "no compression: CPU is scarcer than space on a small host",
            "rocksdb/advanced_options.h: compression",
            {**read_path, **memtable, _CF + "compression": "kNoCompression"},
        ),
        StartPoint(
            "writers wait for no other writer's memtable insert (weaker snapshots, same durability)",
            "rocksdb/options.h: unordered_write",
            {**read_path, **memtable, _DB + "unordered_write": "true"},
        ),
        StartPoint(
            "writers block at once instead of spinning, which costs other threads their core",
            "rocksdb/options.h: enable_write_thread_adaptive_yield",
            {**read_path, **memtable, _DB + "enable_write_thread_adaptive_yield": "false"},
        ),
        StartPoint(
            "a leader commits a larger group with one sync",
            "rocksdb/options.h: max_write_batch_group_size_bytes",
            {**read_path, **memtable, _DB + "max_write_batch_group_size_bytes": str(4 * MIB)},
        ),
        StartPoint(
            "universal compaction rewrites less under updates",
            "rocksdb/advanced_options.h: compaction_style",
            {**read_path, **memtable, _CF + "compaction_style": "kCompactionStyleUniversal"},
        ),
        StartPoint(
            "a bloom filter of the memtable spares point reads its skip list",
            "rocksdb/advanced_options.h: memtable_prefix_bloom_size_ratio, memtable_whole_key_filtering",
            {
                **read_path,
                **memtable,
                _CF + "memtable_prefix_bloom_size_ratio": "0.1",
                _CF + "memtable_whole_key_filtering": "true",
            },
        ),
    ]


def _memtable_bytes(host: HostLimits) -> int:
    """Several memtables are alive at once, so one takes a sixteenth of a small host's memory at most."""
    return max(8 * MIB, min(host.memory_bytes // 16, 128 * MIB))
