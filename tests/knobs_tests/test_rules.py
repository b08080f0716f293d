"""Each rule and each silent change is what the installed engine really does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest

from knobs import native
from knobs.errors import InvalidInput
from knobs.rocksdb import changes, library, options_file, rules
from knobs.rocksdb.catalogue import load
from knobs.rule import Rule

FIFO = "kCompactionStyleFIFO"

# For each rule the settings that break it, under short names.
BREAKING: dict[str, dict[str, str]] = {
    "sync-without-wal": {"sync": "true", "disableWAL": "true"},
    "unordered-pipelined": {"unordered_write": "true", "enable_pipelined_write": "true"},
    "atomic-flush-pipelined": {"atomic_flush": "true", "enable_pipelined_write": "true"},
    "two-queues-pipelined": {"two_write_queues": "true", "enable_pipelined_write": "true"},
    "unordered-serial-memtable": {"unordered_write": "true", "allow_concurrent_memtable_write": "false"},
    "unordered-merges": {"unordered_write": "true", "max_successive_merges": "3"},
    "unordered-manual-flush": {"unordered_write": "true", "manual_wal_flush": "true"},
    "best-efforts-atomic-flush": {"best_efforts_recovery": "true", "atomic_flush": "true"},
    "mmap-writes-direct": {"allow_mmap_writes": "true", "use_direct_io_for_flush_and_compaction": "true"},
    "mmap-reads-direct": {"allow_mmap_reads": "true", "use_direct_reads": "true"},
    "direct-without-buffer": {
        "use_direct_io_for_flush_and_compaction": "true",
        "writable_file_max_buffer_size": "0",
    },
    "concurrent-inplace": {"inplace_update_support": "true"},
    "concurrent-memtable": {"memtable_factory": "VectorRepFactory"},
    "cached-index-without-cache": {"cache_index_and_filter_blocks": "true", "no_block_cache": "true"},
    "pinned-index-without-cache": {
        "pin_l0_filter_and_index_blocks_in_cache": "true",
        "no_block_cache": "true",
    },
    "aligned-compressed": {"block_align": "true"},
    "aligned-odd-block": {"block_align": "true", "compression": "kNoCompression", "block_size": "5000"},
    "hash-index-without-prefix": {"index_type": "kHashSearch"},
    "hash-data-index-ratio": {
        "data_block_index_type": "kDataBlockBinaryAndHash",
        "data_block_hash_table_util_ratio": "0",
    },
    "fifo-ttl-open-files": {"compaction_style": FIFO, "ttl": "100", "max_open_files": "100"},
    "compression-disabled-word": {"compression": "kDisableCompressionOption"},
    "memtable-protection": {"memtable_protection_bytes_per_key": "3"},
    "dictionary-without-size": {"compression": "kZSTD", "compression_opts": "{zstd_max_train_bytes=100;}"},
    "ttl-table-format": {"table_factory": "PlainTable", "ttl": "100"},
    "periodic-compaction-table-format": {"table_factory": "PlainTable", "periodic_compaction_seconds": "100"},
    "never-compacts": {"compaction_style": "kCompactionStyleNone"},
    "write-protection": {"protection_bytes_per_key": "4"},
    "ingest-behind-levels": {"allow_ingest_behind": "true", "num_levels": "2"},
}


def full(settings: dict[str, str]) -> dict[str, str]:
    return {load().resolve(name): value for name, value in settings.items()}


def write_options_file(tmp_path: Path, settings: dict[str, str]) -> Path:
    file = tmp_path / "OPTIONS"
    file.write_text(options_file.from_default().apply(full(settings)).render(), encoding="utf-8")
    return file


def test_every_rule_has_a_case() -> None:
    assert sorted(BREAKING) == sorted(rule.id for rule in rules.RULES)


@pytest.mark.slow
@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.id)
def test_a_broken_rule_is_refused_by_us_and_by_the_engine(rule: Rule, tmp_path: Path) -> None:
    settings = BREAKING[rule.id]
    catalogue = load()
    with pytest.raises(InvalidInput) as ours:
        catalogue.validate(full(settings))
    assert rule.message in ours.value.what
    assert {catalogue.resolve(name) for name in settings} & set(rule.names)
    file = write_options_file(tmp_path, settings)
    flags = [flag for flag in ("sync", "disableWAL") if flag in settings]
    if rule.fails_at == "open":
        with pytest.raises(InvalidInput, match=r"RocksDB (refuses|aborted)"):
            library.open_database(file, tmp_path / "db")
    elif rule.fails_at == "write":
        library.open_database(file, tmp_path / "db")
        with pytest.raises(InvalidInput, match="RocksDB refuses"):
            library.write_one(file, tmp_path / "db", *flags)
    elif rule.fails_at == "hang":
        library.open_database(file, tmp_path / "db")
        assert waits_for_ever(file, tmp_path / "db", *flags)


def waits_for_ever(file: Path, folder: Path, *flags: str) -> bool:
    """Whether the tool's one write has not ended after two seconds, and does nothing but sleep."""
    command = [str(native.find(library.TOOL)), "write", str(file), str(folder), *flags]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            return bool(psutil.Process(process.pid).status() == psutil.STATUS_SLEEPING)
        finally:
            process.kill()
    return False


@pytest.mark.slow
@pytest.mark.parametrize("sync", [(), ("sync",)], ids=["unsynced", "synced"])
def test_a_write_that_waits_for_itself_does_so_synced_or_not(sync: tuple[str, ...], tmp_path: Path) -> None:
    settings = BREAKING["unordered-manual-flush"]
    assert len(load().faults(full(settings | dict.fromkeys(sync, "true")))) == 1
    assert waits_for_ever(write_options_file(tmp_path, settings), tmp_path / "db", *sync)


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({}, ("disableWAL",)),
        ({"two_write_queues": "true"}, ()),
        ({"two_write_queues": "true"}, ("sync",)),
        ({"unordered_write": "false"}, ()),
        ({"manual_wal_flush": "false"}, ()),
    ],
    ids=str,
)
def test_what_keeps_a_write_from_waiting_for_itself(
    settings: dict[str, str], flags: tuple[str, ...], tmp_path: Path
) -> None:
    changed = BREAKING["unordered-manual-flush"] | settings
    assert load().faults(full(changed | dict.fromkeys(flags, "true"))) == []
    library.write_one(write_options_file(tmp_path, changed), tmp_path / "db", *flags)


def test_level_0_may_grow_where_nobody_waits_for_its_compaction() -> None:
    negative = {"level0_file_num_compaction_trigger": "-1"}
    assert len(load().faults(full(negative))) == 1
    assert load().faults(full(negative | {"disable_auto_compactions": "true"})) == []


def test_the_engine_takes_the_defaults(tmp_path: Path) -> None:
    # Without this the refusals above could have any other cause.
    file = write_options_file(tmp_path, {})
    library.write_one(file, tmp_path / "db", "sync")
    library.write_one(file, tmp_path / "db", "disableWAL")


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"compression": "kXpressCompression"}, "compression"),
        ({"blob_compression_type": "kXpressCompression"}, "blob_compression_type"),
        ({"compression_per_level": "kNoCompression:kXpressCompression"}, "compression_per_level"),
    ],
)
def test_an_unlinked_compression_is_refused(settings: dict[str, str], option: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=rf"{option}: kXpressCompression is not linked"):
        load().validate(full(settings))
    with pytest.raises(InvalidInput, match="Xpress"):
        library.open_database(write_options_file(tmp_path, settings), tmp_path / "db")


def test_bottommost_compression_may_be_disabled_but_not_unlinked() -> None:
    assert load().faults(full({"bottommost_compression": "kDisableCompressionOption"})) == []
    assert load().faults(full({"bottommost_compression": "kXpressCompression"})) != []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format_version", "6"),
        ("keep_log_file_num", "0"),
        ("block_size", "4294967296"),
        ("blob_garbage_collection_age_cutoff", "1.5"),
        ("table_cache_numshardbits", "20"),
    ],
)
def test_bounds_are_the_engines(name: str, value: str, tmp_path: Path) -> None:
    assert len(load().faults(full({name: value}))) == 1
    settings = {name: value, "enable_blob_garbage_collection": "true"}
    with pytest.raises(InvalidInput, match=r"RocksDB (refuses|aborted)"):
        library.open_database(write_options_file(tmp_path, settings), tmp_path / "db")


CHANGED: dict[str, list[dict[str, str]]] = {
    "recycled-logs-dropped": [
        {"recycle_log_file_num": "4"},
        {"recycle_log_file_num": "4", "wal_recovery_mode": "kAbsoluteConsistency"},
        {"recycle_log_file_num": "4", "wal_recovery_mode": "kTolerateCorruptedTailRecords"},
        {
            "recycle_log_file_num": "4",
            "wal_recovery_mode": "kSkipAnyCorruptedRecords",
            "WAL_ttl_seconds": "10",
        },
        {
            "recycle_log_file_num": "4",
            "wal_recovery_mode": "kSkipAnyCorruptedRecords",
            "WAL_size_limit_MB": "10",
        },
    ],
    "open-files-raised": [{"max_open_files": "5"}, {"max_open_files": "0"}],
    "write-buffers-raised": [{"max_write_buffer_number": "1"}],
    "merged-buffers-lowered": [
        {"min_write_buffer_number_to_merge": "5", "max_write_buffer_number": "4"},
        {"min_write_buffer_number_to_merge": "3", "max_write_buffer_number": "6", "atomic_flush": "true"},
        {"min_write_buffer_number_to_merge": "0"},
    ],
    "slowdown-trigger-raised": [
        {"level0_slowdown_writes_trigger": "3", "level0_file_num_compaction_trigger": "8"}
    ],
    "stop-trigger-raised": [
        {"level0_stop_writes_trigger": "3"},
        {"level0_stop_writes_trigger": "3", "level0_slowdown_writes_trigger": "2"},
    ],
    "compaction-trigger-raised": [{"level0_file_num_compaction_trigger": "0"}],
    "levels-raised": [
        {"num_levels": "1"},
        {
            "num_levels": "2",
            "allow_ingest_behind": "true",
            "compaction_style": "kCompactionStyleUniversal",
        },
    ],
    "partitioned-filters-dropped": [{"partition_filters": "true"}],
    "memtable-raised": [{"write_buffer_size": "1000"}],
    "memtable-bloom-lowered": [{"memtable_prefix_bloom_size_ratio": "0.9"}],
    "level-multiplier-raised": [{"max_bytes_for_level_multiplier": "0"}],
    "soft-limit-lowered": [
        {"soft_pending_compaction_bytes_limit": "2000000", "hard_pending_compaction_bytes_limit": "1000000"},
        {"soft_pending_compaction_bytes_limit": "0"},
    ],
    "readahead-raised": [{"use_direct_reads": "true"}],
    "wal-compression-ignored": [{"wal_compression": "kLZ4Compression"}],
    "dbid-forgotten": [{"write_dbid_to_manifest": "true"}],
}

KEPT: list[dict[str, str]] = [
    {"recycle_log_file_num": "4", "wal_recovery_mode": "kSkipAnyCorruptedRecords"},
    {"max_open_files": "20"},
    {"max_open_files": "-1"},
    {"num_levels": "1", "compaction_style": "kCompactionStyleUniversal"},
    {"partition_filters": "true", "index_type": "kTwoLevelIndexSearch"},
    {"use_direct_reads": "true", "compaction_readahead_size": "4096"},
    {"wal_compression": "kZSTD"},
    {"min_write_buffer_number_to_merge": "2", "max_write_buffer_number": "3"},
    {"filter_policy": "ribbonfilter:10", "prefix_extractor": "fixed:4", "memtable_factory": "skip_list:5"},
    {"compression_opts": "{level=3;}", "compaction_options_universal": "{size_ratio=5}"},
    {"block_cache": "64M", "write_buffer_size": "32M"},
]


def in_force(tmp_path: Path, settings: dict[str, str]) -> dict[str, str]:
    text = library.open_database(write_options_file(tmp_path, settings), tmp_path / "db")
    return options_file.parse(text, "engine").settings()


def test_every_change_has_a_case() -> None:
    assert sorted(CHANGED) == sorted(change.id for change in changes.CHANGES)


@pytest.mark.parametrize(
    ("change_id", "settings"),
    [(change_id, settings) for change_id, cases in CHANGED.items() for settings in cases],
)
def test_a_silent_change_is_foretold_and_found(
    change_id: str, settings: dict[str, str], tmp_path: Path
) -> None:
    catalogue = load()
    change = next(change for change in changes.CHANGES if change.id == change_id)
    asked = catalogue.in_force(full(settings))
    foretold = change.becomes(asked)
    assert foretold is not None and foretold != asked[change.name]
    assert change_id in [finding.rule for finding in changes.changes(asked)]
    effective = in_force(tmp_path, settings)
    if not change.is_shown:
        return
    assert catalogue.normalise(change.name, effective[change.name]) == foretold
    if change.name in full(settings):
        found = changes.differences(catalogue, full(settings), effective)
        assert change_id in [finding.rule for finding in found]


@pytest.mark.parametrize("settings", KEPT, ids=str)
def test_what_the_engine_keeps_is_no_difference(settings: dict[str, str], tmp_path: Path) -> None:
    catalogue = load()
    assert changes.changes(catalogue.in_force(full(settings))) == []
    assert changes.differences(catalogue, full(settings), in_force(tmp_path, settings)) == []


def test_the_engines_own_choices_are_no_difference(tmp_path: Path) -> None:
    catalogue = load()
    stated = options_file.from_default().settings()
    effective = in_force(tmp_path, {})
    # The tool itself asks for these two.
    stated |= {"DBOptions.create_if_missing": "true", "DBOptions.create_missing_column_families": "true"}
    assert changes.differences(catalogue, stated, effective) == []
    effective["DBOptions.max_open_files"] = "77"
    [finding] = changes.differences(catalogue, stated, effective)
    assert (finding.setting, finding.rule) == ("DBOptions.max_open_files", "open-files-raised")


def test_what_cannot_be_read_back_is_said(tmp_path: Path) -> None:
    stated = full(
        {"skip_log_error_on_recovery": "true", "rate_limiter_bytes_per_sec": "1000000", "sync": "true"}
    )
    found = changes.differences(load(), stated, in_force(tmp_path, {}))
    assert [(finding.rule, finding.setting) for finding in found] == [
        ("ignored", "DBOptions.skip_log_error_on_recovery"),
        ("not-read-back", "DBOptions.rate_limiter_bytes_per_sec"),
    ]


def test_the_uncompressed_wal_is_really_uncompressed(tmp_path: Path) -> None:
    sizes = {}
    for value in ("kNoCompression", "kLZ4Compression", "kZSTD"):
        folder = tmp_path / value
        folder.mkdir()
        library.write_one(write_options_file(folder, {"wal_compression": value}), folder / "db")
        sizes[value] = max((folder / "db").glob("*.log")).stat().st_size
    assert sizes["kLZ4Compression"] == sizes["kNoCompression"] != sizes["kZSTD"]
