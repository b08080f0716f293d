"""Tuning ranges: each is a real, settable knob; what is searched is valid and breaks no contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knobs.contract import Contract
from knobs.knob import TuningRange
from knobs.rocksdb import durability, library, options_file, tuning
from knobs.rocksdb.catalogue import load

GIB = 1024**3


def ends(name: str, searched: TuningRange) -> list[str]:
    if searched.choices:
        return list(searched.choices)
    return [_text(name, searched.low), _text(name, searched.high)]


def _text(name: str, number: float | None) -> str:
    assert number is not None
    return f"{number:.6f}" if load().knob(name).kind == "real" else str(int(number))


@settings(deadline=None)
@given(memory_gib=st.integers(1, 1024), cores=st.integers(1, 256))
def test_ranges_are_ordered_for_every_host(memory_gib: int, cores: int) -> None:
    for name, searched in tuning.ranges(memory_gib * GIB, cores).items():
        if searched.choices:
            assert len(set(searched.choices)) >= 2
        else:
            assert searched.low is not None and searched.high is not None
            assert searched.low < searched.high, name
            assert not searched.log or searched.low > 0
        assert searched.why


def test_memory_widens_the_cache() -> None:
    name = "BlockBasedTableOptions.block_cache"
    assert tuning.ranges(64 * GIB, 2)[name].high == 32 * GIB
    assert tuning.ranges(2 * GIB, 2)[name].high == GIB


def test_memory_counts_cache_and_memtables() -> None:
    catalogue = load()
    in_force = catalogue.in_force({"write_buffer_size": "10M", "block_cache": "100M"})
    assert tuning.memory_bytes(in_force) == (3 * 10 + 100) * 1024**2
    assert tuning.memory_bytes(in_force | {"BlockBasedTableOptions.no_block_cache": "true"}) == 30 * 1024**2


def test_every_end_is_a_valid_value_that_breaks_no_contract() -> None:
    catalogue = load()
    synced = {"WriteOptions.sync": "true"}
    for name, searched in tuning.ranges(4 * GIB, 2).items():
        assert catalogue.knob(name).tuning is not None
        for value in ends(name, searched):
            # Alone, without what other options it may need (the rules tell of those).
            assert catalogue._fault(catalogue.knob(name), value) is None, (name, value)
            assert durability.breaking(synced | {name: value}, Contract("strict")) == []


def test_each_unsafe_range_holds_a_value_that_breaks_a_contract_and_one_that_does_not() -> None:
    synced = {"WriteOptions.sync": "true"}
    for name, searched in tuning.UNSAFE_RANGES.items():
        assert name not in tuning.RANGES
        base = {} if name in ("DBOptions.manual_wal_flush", "WriteOptions.disableWAL") else synced
        contract = Contract("process" if base == {} else "strict")
        broken = [bool(durability.breaking(base | {name: value}, contract)) for value in ends(name, searched)]
        assert set(broken) == {True, False}, name


@pytest.mark.parametrize("end", [0, -1], ids=["low", "high"])
def test_the_engine_opens_with_all_ends_at_once(end: int, tmp_path: Path) -> None:
    catalogue = load()
    chosen = {name: ends(name, searched)[end] for name, searched in tuning.RANGES.items()}
    # The two mixes that rules forbid among the upper ends.
    chosen["DBOptions.enable_pipelined_write"] = "false"
    chosen["DBOptions.allow_concurrent_memtable_write"] = "true"
    catalogue.validate(chosen)
    file = tmp_path / "OPTIONS"
    file.write_text(options_file.from_default().apply(chosen).render(), encoding="utf-8")
    library.write_one(file, tmp_path / "db")
