"""PGTune's rules against vectors computed by hand, and against the expectations of PGTune's own tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knobs.contract import Contract
from knobs.errors import InvalidInput
from knobs.postgresql import durability
from knobs.postgresql.catalogue import load, versions
from tuner.proposers.pgtune import Pgtune
from tuner.proposers.proposal import HostLimits, Proposal, Proposer

MB = 1 << 20
GB = 1 << 30
DB_TYPES = ("web", "oltp", "dw", "desktop", "mixed")
STORAGES = ("ssd", "hdd", "san", "nvme")


BARE = {"wal_compression": ("lz4", "zstd"), "io_method": ("io_uring",)}
"""What only some builds of a version have."""


def proposed(
    memory_bytes: int,
    cores: int,
    version: str | None = None,
    without: Mapping[str, Sequence[str]] | None = None,
    **asked: Any,
) -> Proposal:
    proposer: Proposer = Pgtune(load(version).without(without or {}), **asked)
    (proposal,) = proposer.start_points(HostLimits(cores, memory_bytes))
    return proposal


def of(memory_bytes: int, cores: int, **asked: Any) -> Mapping[str, str]:
    return proposed(memory_bytes, cores, **asked).settings


def test_oltp_on_16_gb_and_8_cpus() -> None:
    assert of(16 * GB, 8, version="15") == {
        "max_connections": "300",
        "shared_buffers": "4GB",
        "effective_cache_size": "12GB",
        "maintenance_work_mem": "1GB",
        "checkpoint_completion_target": "0.9",
        "wal_buffers": "16MB",
        "default_statistics_target": "100",
        "random_page_cost": "1.1",
        "effective_io_concurrency": "200",
        "work_mem": "13617kB",  # 12582912 kB / (308 x 3) = 13617.9
        "huge_pages": "try",
        "jit": "off",
        "wal_compression": "lz4",
        "min_wal_size": "2GB",
        "max_wal_size": "8GB",
        "max_worker_processes": "8",
        "max_parallel_workers_per_gather": "4",
        "max_parallel_workers": "8",
        "max_parallel_maintenance_workers": "4",
    }


def test_web_on_1_gb_and_2_cpus_with_a_disk() -> None:
    assert of(1 * GB, 2, version="13", db_type="web", storage="hdd") == {
        "max_connections": "200",
        "shared_buffers": "256MB",
        "effective_cache_size": "768MB",
        "maintenance_work_mem": "64MB",
        "checkpoint_completion_target": "0.9",
        "wal_buffers": "7864kB",  # 3 % of 262144 kB = 7864.3
        "default_statistics_target": "100",
        "random_page_cost": "4",
        "effective_io_concurrency": "2",
        "work_mem": "4MB",  # 786432 kB / (208 x 3) = 1260.3, and 4 MB is the least
        "huge_pages": "off",
        "jit": "off",
        "wal_compression": "on",
        "min_wal_size": "1GB",
        "max_wal_size": "4GB",
    }


def test_a_data_warehouse_on_64_gb_and_32_cpus() -> None:
    assert of(64 * GB, 32, version="18", db_type="dw", storage="san") == {
        "max_connections": "40",
        "shared_buffers": "16GB",
        "effective_cache_size": "48GB",
        "maintenance_work_mem": "8GB",
        "checkpoint_completion_target": "0.9",
        "wal_buffers": "16MB",
        "default_statistics_target": "500",
        "random_page_cost": "1.1",
        "effective_io_concurrency": "300",
        "work_mem": "116508kB",  # 50331648 kB / (72 x 3) = 233017.8, and half of it
        "huge_pages": "try",
        "wal_compression": "lz4",
        "autovacuum_max_workers": "5",
        "autovacuum_work_mem": "2GB",
        "io_method": "io_uring",
        "io_workers": "8",
        "min_wal_size": "4GB",
        "max_wal_size": "16GB",
        "max_worker_processes": "32",
        "max_parallel_workers_per_gather": "16",
        "max_parallel_workers": "32",
        "max_parallel_maintenance_workers": "4",
    }


def test_a_desktop_of_2_gb_and_4_cpus() -> None:
    assert of(2 * GB, 4, version="17", db_type="desktop") == {
        "max_connections": "20",
        "shared_buffers": "128MB",
        "effective_cache_size": "512MB",
        "maintenance_work_mem": "128MB",
        "checkpoint_completion_target": "0.9",
        "wal_buffers": "3932kB",  # 3 % of 131072 kB = 3932.2
        "default_statistics_target": "100",
        "random_page_cost": "1.1",
        "effective_io_concurrency": "200",
        "work_mem": "4551kB",  # 1966080 kB / (24 x 3) = 27306.7, and a sixth of it
        "huge_pages": "off",
        "wal_compression": "lz4",
        "min_wal_size": "100MB",
        "max_wal_size": "2GB",
        "max_worker_processes": "4",
        "max_parallel_workers_per_gather": "2",
        "max_parallel_workers": "4",
        "max_parallel_maintenance_workers": "2",
        "wal_level": "minimal",
        "max_wal_senders": "0",
    }


def test_memory_that_is_no_round_number() -> None:
    """8191 MB and some bytes, which do not count."""
    found = of(8191 * MB + 12345, 2, version="15", db_type="mixed", storage="nvme", connections=50)
    assert found == of(8191 * MB, 2, version="15", db_type="mixed", storage="nvme", connections=50)
    expected = {
        "max_connections": "50",
        "shared_buffers": "2096896kB",
        "effective_cache_size": "6290688kB",
        "maintenance_work_mem": "524224kB",
        "work_mem": "18076kB",  # 6290688 kB / (58 x 3) = 36153.4, and half of it
        "huge_pages": "off",  # 256 kB less than 2 GB
        "effective_io_concurrency": "1000",
        "random_page_cost": "1.1",
    }
    assert expected.items() <= found.items()


@pytest.mark.parametrize(
    ("memory_mb", "wal_buffers"),
    [
        (1866, "14330kB"),  # 3 % of 477696 kB = 14330.9: not above 14 MB
        (1867, "16MB"),  # 3 % of 477952 kB = 14338.6: near 16 MB
        (64, "491kB"),  # 3 % of 16384 kB = 491.5
    ],
)
def test_wal_buffers(memory_mb: int, wal_buffers: str) -> None:
    assert of(memory_mb * MB, 2, version="15")["wal_buffers"] == wal_buffers


# The expectations of src/features/configuration/__tests__/configurationSlice.test.js (commit
# 421728c2f26fae14285f9805d31198b98925d697), those for Linux and for versions with a catalogue. What its
# cases leave out (memory, CPUs) is added here. None: the setting is not among PGTune's.
PUBLISHED: list[tuple[int, int, dict[str, Any], dict[str, str | None]]] = [
    (4, 2, {"db_type": "web"}, {"max_connections": "200", "default_statistics_target": "100"}),
    (4, 2, {"db_type": "oltp"}, {"max_connections": "300", "default_statistics_target": "100"}),
    (4, 2, {"db_type": "dw"}, {"max_connections": "40", "default_statistics_target": "500"}),
    (4, 2, {"db_type": "desktop"}, {"max_connections": "20", "default_statistics_target": "100"}),
    (4, 2, {"db_type": "mixed"}, {"max_connections": "100", "default_statistics_target": "100"}),
    (4, 2, {"storage": "hdd"}, {"random_page_cost": "4", "effective_io_concurrency": "2"}),
    (4, 2, {"storage": "ssd"}, {"random_page_cost": "1.1", "effective_io_concurrency": "200"}),
    (4, 2, {"storage": "san"}, {"random_page_cost": "1.1", "effective_io_concurrency": "300"}),
    (4, 2, {"storage": "nvme"}, {"random_page_cost": "1.1", "effective_io_concurrency": "1000"}),
    (4, 1, {"version": "14"}, {"max_worker_processes": None, "max_parallel_workers": None}),
    (
        4,
        12,
        {"version": "13"},
        {
            "max_worker_processes": "12",
            "max_parallel_workers_per_gather": "4",
            "max_parallel_workers": "12",
            "max_parallel_maintenance_workers": "4",
        },
    ),
    (
        4,
        31,
        {"version": "13", "db_type": "dw"},
        {
            "max_worker_processes": "31",
            "max_parallel_workers_per_gather": "16",
            "max_parallel_workers": "31",
            "max_parallel_maintenance_workers": "4",
        },
    ),
    (4, 2, {"db_type": "desktop"}, {"wal_level": "minimal", "max_wal_senders": "0"}),
    (4, 2, {"db_type": "web"}, {"wal_level": None, "max_wal_senders": None}),
    (256, 2, {"version": "17", "db_type": "web"}, {"maintenance_work_mem": "8GB"}),
    (16, 2, {"db_type": "web"}, {"maintenance_work_mem": "1GB", "huge_pages": "try"}),
    (4, 2, {"db_type": "web"}, {"huge_pages": "off", "autovacuum_work_mem": None}),
    (4, 4, {"db_type": "web", "connections": 9999}, {"work_mem": "4MB"}),
    (4, 2, {"db_type": "oltp"}, {"jit": "off"}),
    (4, 2, {"db_type": "dw"}, {"jit": None}),
    (4, 2, {"version": "14"}, {"wal_compression": "on"}),
    (4, 2, {"version": "15"}, {"wal_compression": "lz4"}),
    (4, 2, {"version": "17"}, {"wal_compression": "lz4", "io_method": None}),
    (4, 32, {}, {"autovacuum_max_workers": "5"}),
    (4, 16, {}, {"autovacuum_max_workers": "4"}),
    (4, 8, {}, {"autovacuum_max_workers": None}),
    (256, 2, {"db_type": "web"}, {"autovacuum_work_mem": "2GB"}),
    (4, 32, {"version": "17"}, {"io_workers": None}),
    (4, 8, {"version": "18"}, {"io_workers": None, "io_method": "io_uring"}),
    (4, 32, {"version": "18"}, {"io_workers": "8"}),
    (4, 64, {"version": "18"}, {"io_workers": "16"}),
    (4, 256, {"version": "18"}, {"io_workers": "32"}),
]


@pytest.mark.parametrize(("memory_gb", "cores", "asked", "expected"), PUBLISHED)
def test_what_pgtune_itself_expects(
    memory_gb: int, cores: int, asked: dict[str, Any], expected: dict[str, str | None]
) -> None:
    found = of(memory_gb * GB, cores, **{"version": "15", **asked})
    assert {name: found.get(name) for name in expected} == expected


def test_a_server_that_was_built_without() -> None:
    whole = of(4 * GB, 2, version="18")
    bare = of(4 * GB, 2, version="18", without=BARE)
    assert bare["wal_compression"] == "on" and "io_method" not in bare
    assert {name: value for name, value in whole.items() if bare.get(name) != value} == {
        "wal_compression": "lz4",
        "io_method": "io_uring",
    }


def test_it_says_for_what_it_is_and_where_it_comes_from() -> None:
    proposal = proposed(24152 * MB, 2, version="15.18")
    assert proposal.proposer == Pgtune.name == "pgtune"
    assert proposal.reason == (
        "PGTune's rules for this host (PostgreSQL 15, linux, oltp, 24152 MB, 2 CPUs, 300 connections, ssd)"
    )
    assert "le0pard/pgtune" in proposal.source and "configurationSlice.js" in proposal.source


@settings(max_examples=60, deadline=None)
@given(
    st.integers(256 * MB, 2048 * GB),
    st.integers(1, 512),
    st.sampled_from(versions()),
    st.sampled_from(DB_TYPES),
    st.sampled_from(STORAGES),
    st.none() | st.integers(20, 20_000),
    st.frozensets(st.sampled_from(tuple(BARE))),
)
def test_postgresql_takes_them_and_they_hold_strict(
    memory_bytes: int,
    cores: int,
    version: str,
    db_type: str,
    storage: str,
    connections: int | None,
    lacking: frozenset[str],
) -> None:
    without = {name: BARE[name] for name in lacking}
    found = of(
        memory_bytes,
        cores,
        version=version,
        db_type=db_type,
        storage=storage,
        connections=connections,
        without=without,
    )
    load(version).without(without).validate(found)
    assert durability.breaking(found, Contract("strict"), version) == []
    # What the server keeps and what it expects the system to keep are never more than there is.
    in_force = load(version).in_force(found)
    assert int(in_force["shared_buffers"]) + int(in_force["effective_cache_size"]) <= memory_bytes // 8192


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"db_type": "olap"}, "no 'olap'"),
        ({"storage": "tape"}, "no 'tape'"),
        ({"connections": 19}, "19 connections"),
        ({"connections": 0}, "0 connections"),
    ],
)
def test_what_pgtune_does_not_know(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Pgtune(load("15"), **asked)


def test_formulas_that_leave_what_postgresql_takes() -> None:
    with pytest.raises(InvalidInput, match="maintenance_work_mem"):
        of(8 * MB, 1, version="15")
    with pytest.raises(InvalidInput, match="max_connections"):
        of(4 * GB, 1, version="15", connections=999_999)
