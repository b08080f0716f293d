"""What RocksDB changes without a word.

`CHANGES` name values that the engine replaces while it opens a database, so that what is in force is not
what was asked for; tried on 7.8.3, and the tests try them again. Limits that depend on the machine
(max_open_files above the process's own limit) are not here: only the values read back from a running engine
can tell, and `differences` tells about them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from knobs.catalogue import Catalogue
from knobs.finding import Finding
from knobs.knob import Knob
from knobs.rocksdb import values
from knobs.rocksdb.values import InForce, is_on, whole

_DB = "DBOptions."
_CF = "CFOptions."
_TABLE = "BlockBasedTableOptions."

_OUTSIDE_THE_DATABASE = ("WriteOptions.", "Application.")

_SEEN = "RocksDB 7.8.3 at open: "


@dataclass(frozen=True, slots=True)
class Change:
    """A value that the engine replaces; ``becomes`` gives the new one, None where it keeps it.

    ``is_shown`` is False where the engine goes on printing the old value and acts by the new one.
    """

    id: str
    name: str
    becomes: Callable[[InForce], str | None]
    why: str
    source: str
    is_shown: bool = True


def changes(in_force: InForce) -> list[Finding]:
    """A finding for each value that the engine silently replaces."""
    found = []
    for change in CHANGES:
        new = change.becomes(in_force)
        if new is not None and new != in_force[change.name]:
            found.append(_finding(change.name, in_force[change.name], new, change))
    return found


def differences(
    catalogue: Catalogue, stated: Mapping[str, str], effective: Mapping[str, str]
) -> list[Finding]:
    """A finding for each stated value that is not in force, with the reason where it is known.

    ``stated`` and ``effective`` hold full names; ``effective`` is what an open database printed. Values that
    ask the engine to choose are no difference, and of a nested value only the members that were stated count.
    What no database prints is a finding too, because nobody can know whether it is in force. WriteOptions and
    the application's own calls are no part of an open database and are not compared.
    """
    reasons = {change.name: change for change in CHANGES}
    found = []
    for name, value in stated.items():
        knob = catalogue.knob(name)
        if name.startswith(_OUTSIDE_THE_DATABASE) or value in ("", "nullptr"):
            continue
        if (name, values.normalise(knob, value)) in CHOSEN_BY_ENGINE:
            continue
        if name not in effective:
            found.append(_unprinted(knob, value))
        elif not values.agrees(knob, value, effective[name]):
            found.append(_finding(name, value, effective[name], reasons.get(name)))
    return found


def _unprinted(knob: Knob, asked: str) -> Finding:
    if knob.deprecated and not knob.type:
        why = "the engine takes this deprecated name and ignores it"
        return Finding("ignored", knob.name, asked, "", "nothing", why, "no header declares it")
    why = "the engine does not print this option, so nobody can read back whether it is in force"
    return Finding("not-read-back", knob.name, asked, "", "nothing", why, str(knob.source))


def _finding(name: str, asked: str, got: str, change: Change | None) -> Finding:
    if change is None:
        return Finding(
            "not-in-force", name, asked, "", "nothing", f"the engine changes it to {got}", "read back"
        )
    why = f"the engine changes it to {got}: {change.why}"
    return Finding(change.id, name, asked, "", "nothing", why, change.source)


def _recycled_logs(s: InForce) -> str | None:
    archived = whole(s, _DB + "WAL_ttl_seconds") > 0 or whole(s, _DB + "WAL_size_limit_MB") > 0
    skips = s.get(_DB + "wal_recovery_mode") == "kSkipAnyCorruptedRecords"
    return None if skips and not archived else "0"


def _slowdown(s: InForce) -> int:
    return max(
        whole(s, _CF + "level0_slowdown_writes_trigger"),
        whole(s, _CF + "level0_file_num_compaction_trigger"),
    )


def _open_files(s: InForce) -> str | None:
    asked = whole(s, _DB + "max_open_files")
    return "20" if asked != -1 and asked < 20 else None


def _merged_buffers(s: InForce) -> str | None:
    if is_on(s, _DB + "atomic_flush"):
        return "1"
    asked = whole(s, _CF + "min_write_buffer_number_to_merge")
    kept = max(whole(s, _CF + "max_write_buffer_number"), 2)
    return str(max(1, min(asked, kept - 1)))


def _levels(s: InForce) -> str | None:
    asked = whole(s, _CF + "num_levels")
    style = s.get(_CF + "compaction_style")
    if style == "kCompactionStyleUniversal" and is_on(s, _DB + "allow_ingest_behind") and asked < 3:
        return "3"
    return "2" if style == "kCompactionStyleLevel" and asked < 2 else None


def _soft_limit(s: InForce) -> str | None:
    soft = whole(s, _CF + "soft_pending_compaction_bytes_limit")
    hard = whole(s, _CF + "hard_pending_compaction_bytes_limit")
    return str(hard) if hard > 0 and (soft > hard or soft == 0) else None


# Values that ask the engine to choose: (full name, value). What it chose is no difference to report.
CHOSEN_BY_ENGINE = frozenset(
    {
        (_DB + "delayed_write_rate", "0"),
        (_DB + "max_total_wal_size", "0"),
        (_CF + "arena_block_size", "0"),
        (_CF + "max_compaction_bytes", "0"),
        (_CF + "ttl", values.UNCHOSEN_AGE),
        (_CF + "periodic_compaction_seconds", values.UNCHOSEN_AGE),
    }
)

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
        lambda s: "2" if whole(s, _CF + "max_write_buffer_number") < 2 else None,
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
        lambda s: str(max(whole(s, _CF + "level0_stop_writes_trigger"), _slowdown(s))),
        "writes stop only at or after the slowdown trigger",
        _SEEN + "the options in force",
    ),
    Change(
        "compaction-trigger-raised",
        _CF + "level0_file_num_compaction_trigger",
        lambda s: "1" if whole(s, _CF + "level0_file_num_compaction_trigger") == 0 else None,
        "a trigger of 0 is meaningless",
        _SEEN + "the options in force",
    ),
    Change(
        "levels-raised",
        _CF + "num_levels",
        _levels,
        "levelled compaction needs two levels, universal with allow_ingest_behind three",
        _SEEN + "the options in force",
    ),
    Change(
        "partitioned-filters-dropped",
        _TABLE + "partition_filters",
        lambda s: (
            "false"
            if is_on(s, _TABLE + "partition_filters")
            and s.get(_TABLE + "index_type") != "kTwoLevelIndexSearch"
            else None
        ),
        "partitioned filters need index_type=kTwoLevelIndexSearch",
        "RocksDB 7.8.3, BlockBasedTableFactory",
    ),
    Change(
        "memtable-raised",
        _CF + "write_buffer_size",
        lambda s: "65536" if whole(s, _CF + "write_buffer_size") < 65536 else None,
        "64 KiB is the least",
        _SEEN + "the options in force",
    ),
    Change(
        "memtable-bloom-lowered",
        _CF + "memtable_prefix_bloom_size_ratio",
        lambda s: (
            "0.250000"
            if (values.real(s.get(_CF + "memtable_prefix_bloom_size_ratio", "")) or 0.0) > 0.25
            else None
        ),
        "a quarter of the memtable is the most",
        "rocksdb/advanced_options.h memtable_prefix_bloom_size_ratio",
    ),
    Change(
        "level-multiplier-raised",
        _CF + "max_bytes_for_level_multiplier",
        lambda s: (
            "1.000000"
            if (values.real(s.get(_CF + "max_bytes_for_level_multiplier", "")) or 0.0) <= 0.0
            else None
        ),
        "a multiplier of 0 or less is meaningless",
        _SEEN + "the options in force",
    ),
    Change(
        "soft-limit-lowered",
        _CF + "soft_pending_compaction_bytes_limit",
        _soft_limit,
        "the soft limit stays at or below the hard one",
        _SEEN + "the options in force",
    ),
    Change(
        "readahead-raised",
        _DB + "compaction_readahead_size",
        lambda s: (
            "2097152"
            if is_on(s, _DB + "use_direct_reads") and whole(s, _DB + "compaction_readahead_size") == 0
            else None
        ),
        "direct reads need a readahead for compactions",
        _SEEN + "the options in force",
    ),
    Change(
        "wal-compression-ignored",
        _DB + "wal_compression",
        lambda s: None if s.get(_DB + "wal_compression") in ("kNoCompression", "kZSTD") else "kNoCompression",
        "only zstd is supported; the WAL is written uncompressed",
        "rocksdb/options.h wal_compression",
        is_shown=False,
    ),
    Change(
        "dbid-forgotten",
        _DB + "write_dbid_to_manifest",
        lambda s: "false" if is_on(s, _DB + "write_dbid_to_manifest") else None,
        "this version forgets the option when it copies DBOptions",
        "RocksDB 7.8.3, GetDBOptionsFromMap",
    ),
)
