"""The search space: a point of it is settings over the reference, and every start point is in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from knobs.errors import InvalidInput
from knobs.rocksdb import tuning
from knobs.rocksdb.catalogue import load
from tests.tuner_tests.requests import MIB
from tuner.proposers.proposal import HostLimits
from tuner.proposers.rules import RocksdbRules
from tuner.search.search_space import Parameter, SearchSpace, build_space

CATALOGUE = load()
GIB = 1024 * MIB
HOSTS = [HostLimits(cores, gib * GIB) for gib in (1, 2, 3, 64) for cores in (1, 2, 64)]


def space_of(reference: dict[str, str] | None = None, host: HostLimits = HOSTS[-1]) -> SearchSpace:
    every = {**tuning.ranges(host.memory_bytes, host.cores), **tuning.UNSAFE_RANGES}
    return build_space(CATALOGUE, every, reference or {})


SPACE = space_of()


def values_of(distribution: BaseDistribution) -> st.SearchStrategy[Any]:
    if isinstance(distribution, CategoricalDistribution):
        return st.sampled_from(distribution.choices)
    if isinstance(distribution, IntDistribution):
        return st.integers(distribution.low, distribution.high)
    assert isinstance(distribution, FloatDistribution)
    return st.floats(distribution.low, distribution.high)


POINTS: st.SearchStrategy[dict[str, Parameter]] = st.fixed_dictionaries(
    {name: values_of(distribution) for name, distribution in SPACE.distributions.items()}
)


def test_the_default_reference_is_a_point_and_sets_nothing() -> None:
    point = SPACE.parameters({})
    assert point == SPACE.reference and set(point) == set(SPACE.distributions)
    assert SPACE.settings(point) == {}
    for name, distribution in SPACE.distributions.items():
        assert distribution._contains(distribution.to_internal_repr(point[name])), name


@settings(max_examples=30, deadline=None)
@given(POINTS)
def test_a_point_and_its_settings_are_the_same_thing(point: dict[str, Parameter]) -> None:
    settings = SPACE.settings(point)
    assert SPACE.parameters(settings) == point
    assert all(point[name] != SPACE.reference[name] for name in settings), "only what differs is set"
    assert all(name in settings for name in point if point[name] != SPACE.reference[name])


@settings(max_examples=30, deadline=None)
@given(POINTS)
def test_every_proposed_value_is_one_that_the_catalogue_takes(point: dict[str, Parameter]) -> None:
    alone = [fault for name, text in SPACE.settings(point).items() for fault in _faults(name, text)]
    assert alone == []


def _faults(name: str, text: str) -> list[str]:
    """Type and range alone; rules over several knobs are the trial's business."""
    fault = CATALOGUE._fault(CATALOGUE.knob(name), text)
    return [fault] if fault else []


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: f"{host.memory_bytes // GIB}GiB-{host.cores}")
def test_every_start_point_is_in_the_space_of_its_host(host: HostLimits) -> None:
    space = space_of(host=host)
    for proposal in RocksdbRules().start_points(host):
        point = space.parameters(proposal.settings)
        assert space.settings(point).items() <= dict(proposal.settings).items()
        assert all(space.takes(name, value) for name, value in proposal.settings.items())
        assert proposal.reason and proposal.source


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: f"{host.memory_bytes // GIB}GiB-{host.cores}")
def test_no_start_point_asks_for_memory_that_its_host_lacks(host: HostLimits) -> None:
    for proposal in RocksdbRules().start_points(host):
        wanted = tuning.memory_bytes(CATALOGUE.in_force(proposal.settings))
        assert wanted <= 0.7 * host.memory_bytes, proposal


def test_every_setting_outside_the_space_is_named() -> None:
    settings = {
        "CFOptions.write_buffer_size": "1",
        "DBOptions.max_background_jobs": "many",
        "CFOptions.compression": "kZlibCompression",
        "DBOptions.max_open_files": "100",
        "DBOptions.nonsense": "1",
    }
    with pytest.raises(InvalidInput) as caught:
        SPACE.parameters({**settings, "DBOptions.unordered_write": "true"})
    faults = caught.value.what.split("; ")
    assert len(faults) == 5
    for name, value in settings.items():
        (fault,) = [fault for fault in faults if fault.startswith((f"{name} ", f"{name}={value} "))]
        assert fault.endswith("is not searched") == (name not in SPACE.distributions)
    assert not SPACE.takes("CFOptions.write_buffer_size", "1")
    assert not SPACE.takes("DBOptions.nonsense", "1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CFOptions.write_buffer_size", "1048576"),
        ("CFOptions.write_buffer_size", str(40 * GIB)),
        ("CFOptions.max_write_buffer_number", "32"),
        ("CFOptions.memtable_prefix_bloom_size_ratio", "0.5"),
    ],
)
def test_a_reference_beyond_a_range_widens_it(name: str, value: str) -> None:
    space = space_of({name: value})
    distribution, plain = space.distributions[name], SPACE.distributions[name]
    assert isinstance(distribution, type(plain)) and space.takes(name, value)
    assert space.settings(space.parameters({name: value})) == {}
    inside = CATALOGUE.knob(name).default
    found = space.settings(space.parameters({name: inside}))
    assert CATALOGUE.normalise(name, found.pop(name)) == CATALOGUE.normalise(name, inside) and found == {}


@pytest.mark.parametrize(
    ("name", "off"),
    [
        ("DBOptions.max_background_jobs", "-1"),
        ("DBOptions.delayed_write_rate", "0"),
        ("BlockBasedTableOptions.block_cache", "0"),
    ],
)
def test_a_reference_that_is_off_becomes_a_choice_among_it_and_the_range(name: str, off: str) -> None:
    space = space_of({name: off})
    distribution = space.distributions[name]
    assert isinstance(distribution, CategoricalDistribution)
    texts = [str(choice) for choice in distribution.choices]
    assert texts[0] == CATALOGUE.normalise(name, off) and len(texts) == len(set(texts)) >= 5
    searched = tuning.ranges(HOSTS[-1].memory_bytes, HOSTS[-1].cores)[name]
    assert searched.low is not None and searched.high is not None
    assert all(searched.low <= int(text) <= searched.high for text in texts[1:])
    assert space.settings(space.parameters({name: texts[-1]})) == {name: texts[-1]}
    # The start points' own values need not be among a grid's; then they are left out, never moved.
    assert not space.takes(name, str(12 * MIB + 1))


def test_what_is_proposed_is_tried_as_it_is() -> None:
    """Outside of a range it widens it; off its scale it makes a choice, which has it; a list is closed."""
    every = tuning.ranges(HOSTS[-1].memory_bytes, HOSTS[-1].cores)
    wide, off = "CFOptions.write_buffer_size", "DBOptions.max_background_jobs"
    points = [
        {wide: str(1 * MIB), off: "3"},
        {wide: str(9_000 * MIB), off: "-1", "CFOptions.compression": "kZlibCompression"},
    ]
    space = build_space(CATALOGUE, every, {}, points)
    for point in points:
        searched = {name: value for name, value in point.items() if name != "CFOptions.compression"}
        assert all(space.takes(name, value) for name, value in searched.items())
        assert searched.items() >= space.settings(space.parameters(searched)).items()
    assert isinstance(space.distributions[wide], IntDistribution)
    assert isinstance(space.distributions[off], CategoricalDistribution)
    assert not space.takes("CFOptions.compression", "kZlibCompression")
    assert space.distributions["CFOptions.compression"] == SPACE.distributions["CFOptions.compression"]


def test_a_reference_among_no_choice_is_one_more() -> None:
    name = "CFOptions.compression"
    space = space_of({name: "kZlibCompression"})
    assert space.takes(name, "kZlibCompression") and space.takes(name, "kZSTD")
    assert space.settings(space.parameters({name: "kZSTD"})) == {name: "kZSTD"}
