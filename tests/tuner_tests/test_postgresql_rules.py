"""The start points for PostgreSQL: what they promise, whether the search takes them, and a real server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from optuna.distributions import CategoricalDistribution

from engines.postgresql import binaries, server_user
from engines.postgresql.binaries import Binaries
from engines.postgresql.cluster import Cluster, create
from engines.postgresql.readback import compare, read
from engines.postgresql.server import start
from engines.postgresql.session import Session
from engines.scratch import Scratch
from knobs.contract import Contract
from knobs.errors import InvalidInput, MachineLacks
from knobs.postgresql import durability
from knobs.postgresql.catalogue import load, versions
from knobs.postgresql.memory import memory_bytes
from knobs.postgresql.tuning import UNSAFE_RANGES, ranges
from tuner.proposers.pgtune import Pgtune
from tuner.proposers.postgresql_rules import PostgresqlRules, speed_alone
from tuner.proposers.proposal import HostLimits, Proposal, Proposer
from tuner.search.search_space import SearchSpace, build_space

GIB = 1 << 30
HOSTS = [HostLimits(1, GIB), HostLimits(2, 4 * GIB), HostLimits(16, 64 * GIB)]
SMALL = HOSTS[0]
STRICT = Contract("strict")

each_version = pytest.mark.parametrize("version", versions())
each_host = pytest.mark.parametrize(
    "host", HOSTS, ids=lambda host: f"{host.memory_bytes // GIB}GiB-{host.cores}"
)


def points(version: str, host: HostLimits = SMALL) -> list[Proposal]:
    proposer: Proposer = PostgresqlRules(load(version))
    return list(proposer.start_points(host))


@each_version
@each_host
def test_each_rule_is_valid_and_breaks_nothing(version: str, host: HostLimits) -> None:
    catalogue = load(version)
    for point in points(version, host):
        catalogue.validate(point.settings)
        assert durability.breaking(point.settings, STRICT, version) == [], point
        assert durability.promise(point.settings, version) == durability.promise({}, version)
        assert point.proposer == "rules" and point.reason
    assert len({tuple(sorted(point.settings.items())) for point in points(version, host)}) >= 10


@each_version
@pytest.mark.parametrize("memory_mb", [256, 1023, 3085, 65_536])
@pytest.mark.parametrize("cores", [1, 8, 64])
def test_the_search_takes_each_value_as_it_is_proposed(version: str, memory_mb: int, cores: int) -> None:
    """Of every proposer: what is searched is tried with its own value, and only this is not searched."""
    catalogue, host = load(version), HostLimits(cores, memory_mb << 20)
    found = ranges(host.memory_bytes, host.cores, catalogue) | UNSAFE_RANGES
    proposers: list[Proposer] = [PostgresqlRules(catalogue), Pgtune(catalogue)]
    proposals = [
        *speed_alone(catalogue, {}),
        *(one for proposer in proposers for one in proposer.start_points(host)),
    ]
    points = [
        {name: catalogue.normalise(name, value) for name, value in proposal.settings.items()}
        for proposal in proposals
    ]
    space = build_space(catalogue, found, {}, points)
    lost, unsearched = set(), set()
    for settings in points:
        searched = {name: value for name, value in settings.items() if space.takes(name, value)}
        tried = {**space.reference, **space.settings(space.parameters(searched))}
        lost |= {
            (name, value)
            for name, value in settings.items()
            if name in found and catalogue.normalise(name, str(tried[name])) != value
        }
        unsearched |= {name for name in settings if name not in found and name not in tried}
    assert lost <= {("io_method", "io_uring")}, "its run could not be judged"
    assert unsearched <= {
        "max_connections",
        "max_worker_processes",
        "max_parallel_workers",
        "max_parallel_maintenance_workers",
        "autovacuum_work_mem",
    }
    assert {"2048", "-1"} <= {str(choice) for choice in choices_of(space, "wal_buffers")} or memory_mb < 2048


def choices_of(space: SearchSpace, name: str) -> tuple[object, ...]:
    distribution = space.distributions[name]
    assert isinstance(distribution, CategoricalDistribution)
    return distribution.choices


def test_the_rules_are_in_the_searchs_own_spelling() -> None:
    for point in points("15"):
        assert all(load("15").normalise(name, value) == value for name, value in point.settings.items())


def test_the_least_wal_is_proposed_with_what_it_needs() -> None:
    """Alone the server refuses it (xlog.c: WAL streaming needs more than minimal)."""
    catalogue = load("15")
    space = build_space(catalogue, UNSAFE_RANGES, {})
    assert space.settings({**space.reference, "wal_level": "minimal"}) == MINIMAL
    catalogue.validate(MINIMAL)
    assert catalogue.faults({"wal_level": "minimal"}) != []
    assert space.parameters(MINIMAL) == {**space.reference, "wal_level": "minimal"}
    with pytest.raises(InvalidInput, match="max_wal_senders is not searched"):
        space.parameters({"wal_level": "minimal", "max_wal_senders": "5"})


@each_version
def test_each_source_is_the_section_of_a_setting(version: str) -> None:
    catalogue = load(version)
    for point in points(version) + speed_alone(load(version), {}):
        cited = re.findall(r"[\w-]+\.html#[\w-]+", point.source)
        own = {catalogue.knob(name).source.file for name in point.settings}
        assert cited and set(cited) <= own, point


@each_host
def test_no_rule_asks_for_memory_that_its_host_lacks(host: HostLimits) -> None:
    """A quarter for shared_buffers and what manages them: little over 26 % more than the defaults."""
    in_force = load("15").in_force
    before, _ = memory_bytes(in_force({"shared_buffers": "16"}), connections=16)
    for point in points("15", host):
        wanted, terms = memory_bytes(in_force(point.settings), connections=16)
        assert wanted <= host.memory_bytes and wanted - before <= 0.28 * host.memory_bytes, terms


def test_buffers_are_a_quarter_of_the_memory() -> None:
    assert points("15", HostLimits(2, 4 * GIB))[0].settings["shared_buffers"] == str(GIB // 8192)
    wal_buffers = {points("15", host)[-1].settings["wal_buffers"] for host in HOSTS}
    assert wal_buffers == {str(16 * 128), str(64 * 128)}


def test_compression_is_the_best_that_the_version_has() -> None:
    found = {v: {point.settings.get("wal_compression") for point in points(v)} for v in versions()}
    assert found == {v: {None, "on" if int(v) < 15 else "lz4"} for v in versions()}
    bare = PostgresqlRules(load("18").without({"wal_compression": ("lz4", "zstd")})).start_points(SMALL)
    assert {point.settings.get("wal_compression") for point in bare} == {None, "on"}


THREE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
MINIMAL = {"wal_level": "minimal", "max_wal_senders": "0"}


@each_version
def test_speed_alone_breaks_the_contract_each_time(version: str) -> None:
    tries = speed_alone(load(version), {})
    assert [dict(point.settings) for point in tries] == [
        {"fsync": "off"},
        {"synchronous_commit": "off"},
        {"full_page_writes": "off"},
        THREE,
        {**THREE, **MINIMAL},
    ]
    for point in tries:
        load(version).validate(point.settings)
        assert durability.breaking(point.settings, STRICT, version) != [], point
        assert point.proposer == "speed" and point.reason
        assert point.source.startswith(f"the manual of PostgreSQL {version}: ")


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (
            {"FSYNC": "no", "work_mem": "8MB"},
            [
                {"synchronous_commit": "off"},
                {"full_page_writes": "off"},
                {"synchronous_commit": "off", "full_page_writes": "off"},
                {"synchronous_commit": "off", "full_page_writes": "off", **MINIMAL},
            ],
        ),
        # What is left of "all three" is what one of them alone is.
        (
            {"fsync": "off", "synchronous_commit": "false"},
            [{"full_page_writes": "off"}, {"full_page_writes": "off", **MINIMAL}],
        ),
        (THREE, [MINIMAL]),
        ({**THREE, "wal_level": "Minimal", "max_wal_senders": "0"}, []),
        ({**THREE, "wal_level": "minimal", "max_wal_senders": "0x1"}, [{"max_wal_senders": "0"}]),
        # A name that this catalogue no longer has says nothing about speed alone.
        ({**THREE, **MINIMAL, "vacuum_defer_cleanup_age": "1"}, []),
    ],
)
def test_speed_alone_leaves_out_what_the_reference_has(
    reference: dict[str, str], expected: list[dict[str, str]]
) -> None:
    tries = speed_alone(load("15"), reference)
    assert [dict(point.settings) for point in tries] == expected
    for point in tries:
        assert durability.breaking({**reference, **point.settings}, STRICT, "15") != []


@pytest.fixture(scope="module")
def installed() -> Binaries:
    try:
        return binaries.find()
    except MachineLacks as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def template(installed: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return create(installed, server_user.choose(), tmp_path_factory.mktemp("template"))


@pytest.fixture
def cluster(template: Cluster, tmp_path: Path) -> Cluster:
    folder = tmp_path / "cluster"
    folder.mkdir()
    return template.clone(folder)


def started(version: str) -> list[Proposal]:
    """Everything that is proposed for a small host; PGTune's as a server without liburing takes it."""
    known = load(version).without({"io_method": ("io_uring",)})
    pgtune = Pgtune(known).start_points(SMALL)
    desktop = Pgtune(known, db_type="desktop", storage="hdd").start_points(SMALL)
    return [*points(version), *pgtune, *desktop, *speed_alone(load(version), {})]


def not_in_force(
    cluster: Cluster, settings: Mapping[str, str], wanted: Mapping[str, str], version: str
) -> set[str]:
    """Which of ``wanted`` a server started with ``settings`` does not run with."""
    normalise = load(version).normalise
    with (
        Scratch() as scratch,
        start(cluster, dict(settings), scratch=scratch, watcher=None) as server,
        Session(server.address) as session,
    ):
        readback = read(session)
    differing = {difference.name for difference in compare(wanted, readback, normalise)}
    values = readback.values()
    return differing | {name for name, value in wanted.items() if values[name] != normalise(name, value)}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(started("15"))))
def test_a_server_starts_and_runs_with_each(cluster: Cluster, installed: Binaries, number: int) -> None:
    point = started(str(installed.version.major))[number]
    assert not_in_force(cluster, point.settings, point.settings, str(installed.version.major)) == set(), point


@pytest.mark.slow
def test_a_server_without_them_is_noticed(cluster: Cluster, installed: Binaries) -> None:
    wanted = points(str(installed.version.major))[4].settings
    found = not_in_force(cluster, {"jit": "off"}, wanted, str(installed.version.major))
    assert {"shared_buffers", "wal_compression", "bgwriter_delay"} <= found and "jit" not in found
