"""The catalogue: names, values, ranges and rules; every fault in one message, nothing clamped."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knobs.catalogue import load, resolve_all
from knobs.errors import InvalidInput
from knobs.rocksdb import library
from knobs.rocksdb.catalogue import RocksdbCatalogue
from knobs.rocksdb.catalogue import load as load_rocksdb


@pytest.fixture
def catalogue() -> RocksdbCatalogue:
    return load_rocksdb()


def test_the_registry_finds_it_and_refuses_the_rest() -> None:
    assert load("rocksdb").version == "7.8.3"
    with pytest.raises(InvalidInput, match="mysql"):
        load("mysql")
    with pytest.raises(InvalidInput, match=r"no catalogue of RocksDB 1\.2"):
        load("rocksdb", "1.2")


def test_names_resolve(catalogue: RocksdbCatalogue) -> None:
    assert catalogue.resolve("manual_wal_flush") == "DBOptions.manual_wal_flush"
    assert catalogue.resolve("sync") == "WriteOptions.sync"
    assert catalogue.resolve("ColumnFamilyOptions.num_levels") == "CFOptions.num_levels"
    assert catalogue.resolve("TableOptions/BlockBasedTable.block_size") == "BlockBasedTableOptions.block_size"
    # A deprecated DBOptions spelling of the same name does not make it ambiguous.
    assert catalogue.resolve("experimental_mempurge_threshold") == "CFOptions.experimental_mempurge_threshold"
    assert all(catalogue.resolve(knob.name) == knob.name for knob in catalogue.knobs())


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("manual_wal_flsh", "DBOptions.manual_wal_flush"),
        ("DBOptions.wal_ttl_seconds", "DBOptions.WAL_ttl_seconds"),
        ("disable_wal", "WriteOptions.disableWAL"),
        ("CFOptions.blok_size", "BlockBasedTableOptions.block_size"),
    ],
)
def test_an_unknown_name_brings_the_nearest(catalogue: RocksdbCatalogue, name: str, nearest: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        catalogue.resolve(name)
    assert nearest in caught.value.what


def test_every_fault_is_in_one_message(catalogue: RocksdbCatalogue) -> None:
    with pytest.raises(InvalidInput) as caught:
        catalogue.validate(
            {
                "DBOptions.max_background_jobs": "4G",  # the library reads this as 0
                "DBOptions.max_total_wal_size": "-1",  # and this as 2^64-1
                "BlockBasedTableOptions.block_size": "12abc",  # and this as 12
                "DBOptions.manual_wal_flush": "yes",
                "DBOptions.wal_recovery_mode": "2",
                "CFOptions.memtable_prefix_bloom_size_ratio": "0.1x",
                "DBOptions.write_buffer_manager": "x",
                "DBOptions.nonsense": "1",
                "CFOptions.compression_opts": "{level=3",
                "DBOptions.unordered_write": "true",
                "DBOptions.enable_pipelined_write": "true",
            }
        )
    for part in (
        "max_background_jobs: 4294967296 is above the greatest value 2147483647",
        "max_total_wal_size: -1 is below the least value 0",
        "block_size: '12abc' is no whole number",
        "manual_wal_flush: 'yes' is neither true nor false",
        "wal_recovery_mode: '2' is none of kTolerateCorruptedTailRecords",
        "memtable_prefix_bloom_size_ratio: '0.1x' is no number",
        "write_buffer_manager cannot be set by text",
        "no option 'DBOptions.nonsense'",
        "compression_opts: the braces do not match",
        "unordered_write and enable_pipelined_write exclude each other",
    ):
        assert part in caught.value.what


def test_members_of_a_nested_value_are_checked(catalogue: RocksdbCatalogue) -> None:
    name = "CFOptions.compression_opts"
    for value, part in (
        ("{levle=3;}", "no member 'levle'; nearest: level"),
        ("{level=x;}", "level: 'x' is no whole number"),
        ("{enabled=7;}", "enabled: '7' is neither true nor false"),
    ):
        [fault] = catalogue.faults({name: value})
        assert part in fault
        [answer] = library.probe([("CFOptions", "compression_opts", value)])
        assert not answer.accepted
    assert catalogue.faults({name: "{level=3;enabled=true}"}) == []
    assert catalogue.faults({name: "4:5:6:7"}) == []  # the library's older spelling


def test_the_defaults_have_no_fault(catalogue: RocksdbCatalogue) -> None:
    settable = {knob.name: knob.default for knob in catalogue.knobs() if knob.settable and knob.default}
    assert len(settable) > 150
    assert catalogue.faults(settable) == []


def test_values_at_the_edge_of_the_type(catalogue: RocksdbCatalogue) -> None:
    assert catalogue.faults({"CFOptions.ttl": str(2**64 - 1)}) == []
    assert catalogue.faults({"CFOptions.ttl": str(2**64)}) != []
    assert catalogue.faults({"DBOptions.max_subcompactions": str(2**32 - 1)}) == []
    assert catalogue.faults({"DBOptions.max_subcompactions": "4G"}) != []


def test_normalise_follows_the_library(catalogue: RocksdbCatalogue) -> None:
    cases = [
        ("DBOptions", "manual_wal_flush", "1"),
        ("DBOptions", "max_total_wal_size", "64M"),
        ("DBOptions", "max_total_wal_size", "64MB"),
        ("DBOptions", "max_total_wal_size", "3k"),
        ("DBOptions", "max_total_wal_size", "1T"),
        ("DBOptions", "max_open_files", "007"),
        ("CFOptions", "max_bytes_for_level_multiplier", "8"),
        ("CFOptions", "max_bytes_for_level_multiplier", "1e1"),
        ("CFOptions", "compression", "kZSTD"),
    ]
    answers = library.probe(cases)
    for (section, name, value), answer in zip(cases, answers, strict=True):
        assert answer.accepted
        assert catalogue.normalise(f"{section}.{name}", value) == answer.text, (name, value)


def test_nested_values_compare_without_their_order(catalogue: RocksdbCatalogue) -> None:
    name = "CFOptions.compression_opts"
    assert catalogue.normalise(name, "{level=3;enabled=true}") == catalogue.normalise(
        name, "{ enabled=true; level=3; }"
    )
    assert catalogue.normalise(name, "{level=3;}") != catalogue.normalise(name, "{level=4;}")


@settings(deadline=None)
@given(number=st.integers(-(2**70), 2**70), suffix=st.sampled_from(["", "K", "m", "G", "TB"]))
def test_normalise_is_stable(number: int, suffix: str) -> None:
    catalogue = load_rocksdb()
    once = catalogue.normalise("DBOptions.max_total_wal_size", f"{number}{suffix}")
    assert catalogue.normalise("DBOptions.max_total_wal_size", once) == once
    assert int(once) == number << {"": 0, "K": 10, "m": 20, "G": 30, "TB": 40}[suffix]


def test_resolve_all_collects(catalogue: RocksdbCatalogue) -> None:
    assert resolve_all(catalogue, {"sync": "true"}) == {"WriteOptions.sync": "true"}
    with pytest.raises(InvalidInput) as caught:
        resolve_all(catalogue, {"a_b": "1", "c_d": "2", "sync": "1", "WriteOptions.sync": "0"}, where="--set")
    assert "'a_b'" in caught.value.what and "'c_d'" in caught.value.what
    assert "WriteOptions.sync is given twice" in caught.value.what
    assert caught.value.where == "--set"
