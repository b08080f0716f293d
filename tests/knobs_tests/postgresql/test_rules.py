"""Rules, changes and the sum of memory are what a server does."""

from __future__ import annotations

from pathlib import Path

import pytest

from knobs.contract import Contract
from knobs.postgresql import durability, memory, rules, server, tuning
from knobs.postgresql.catalogue import PostgresqlCatalogue, load
from knobs.rule import Rule
from tests.knobs_tests.postgresql import clusters

# Rule -> settings that break it and no other, and the nearest ones that do not.
BROKEN: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "minimal-streaming": ({"wal_level": "minimal"}, {"wal_level": "minimal", "max_wal_senders": "0"}),
    "minimal-archive": (
        {"wal_level": "minimal", "max_wal_senders": "0", "archive_mode": "on"},
        {"archive_mode": "on"},
    ),
    "minimal-summaries": (
        {"wal_level": "minimal", "max_wal_senders": "0", "summarize_wal": "on"},
        {"summarize_wal": "on"},
    ),
    "all-connections-reserved": ({"max_connections": "3"}, {"max_connections": "4"}),
    "too-many-processes": ({"max_worker_processes": "262100"}, {"max_worker_processes": "1000"}),
    "min-wal-below-segments": ({"min_wal_size": "31MB"}, {"min_wal_size": "32MB"}),
    "max-wal-below-segments": ({"max_wal_size": "31MB"}, {"max_wal_size": "32MB"}),
    "huge-pages-sysv": (
        {"huge_pages": "on", "shared_memory_type": "sysv"},
        {"huge_pages": "try", "shared_memory_type": "sysv"},
    ),
    "statistics-twice": (
        {"log_statement_stats": "on", "log_planner_stats": "on"},
        {"log_executor_stats": "on", "log_planner_stats": "on"},
    ),
    "vacuum-ring-too-small": ({"vacuum_buffer_usage_limit": "127"}, {"vacuum_buffer_usage_limit": "128"}),
}


def knows(own: PostgresqlCatalogue, settings: dict[str, str]) -> bool:
    return all(own.has(name) for name in settings)


def test_every_rule_has_its_example() -> None:
    assert list(BROKEN) == [rule.id for rule in rules.RULES]


@pytest.mark.slow
@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.id)
def test_what_a_rule_refuses_does_not_start(
    bindir: Path, data: Path, own: PostgresqlCatalogue, rule: Rule
) -> None:
    broken, sound = BROKEN[rule.id]
    if not knows(own, broken):
        pytest.skip(f"{own.version} has no {' or '.join(broken)}")
    assert [found.id for found in rules.broken(own.in_force(broken))] == [rule.id]
    assert rule.message in own.faults(broken)
    said = clusters.refusal(bindir, data, broken)
    assert said is not None and any(name in said for name in (*rule.names, "too many server processes")), said
    assert own.faults(sound) == []
    assert clusters.refusal(bindir, data, sound) is None


def test_changes_are_what_the_server_makes_of_a_value(bindir: Path, own: PostgresqlCatalogue) -> None:
    for name, value in (("wal_buffers", "1"), ("autovacuum_work_mem", "1"), ("wal_buffers", "5")):
        [(_, new)] = rules.changed(own.in_force({name: value})).items() or [("", value)]
        assert server.ask(bindir, {name: value}, name).value == new


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"shared_buffers": "1GB"},
        {"shared_buffers": "16MB", "wal_buffers": "64MB"},
        {"max_connections": "5000"},
        {"max_locks_per_transaction": "1000"},
    ],
    ids=str,
)
def test_shared_memory_is_what_the_server_asks_for(
    bindir: Path, data: Path, own: PostgresqlCatalogue, settings: dict[str, str]
) -> None:
    if "shared_memory_size" not in [knob.name for knob in own.knobs()]:
        pytest.skip(f"{own.version} does not tell its shared memory")
    lines = [f"{name} = '{value}'\n" for name, value in settings.items()]
    (data / "postgresql.conf").write_text("".join(lines), encoding="utf-8")
    answer = server.ask_folder(bindir, data, "shared_memory_size", as_user=clusters.USER)
    assert answer.value is not None, answer.error
    predicted = memory.shared_memory_bytes(own.in_force(settings)) / memory.MIB
    assert predicted == pytest.approx(int(answer.value), rel=0.08, abs=5)


def test_the_sum_of_memory_tells_its_terms() -> None:
    catalogue = load("15")
    amount, terms = memory.memory_bytes(catalogue.in_force({"work_mem": "64MB"}), 100)
    assert "100 clients x work_mem 64 MB x hash_mem_multiplier 2 = 12800 MB" in terms
    assert amount > 100 * 2 * 64 * memory.MIB
    less, _ = memory.memory_bytes(catalogue.in_force({"work_mem": "64MB"}), 1)
    assert amount - less == 99 * (2 * 64 + 4) * memory.MIB
    with_vacuum, _ = memory.memory_bytes(catalogue.in_force({"autovacuum_work_mem": "1GB"}), 1)
    assert with_vacuum > 3 * 1024 * memory.MIB
    assert "maintenance_work_mem, once = 64 MB" in terms
    assert memory.memory_bytes(load("13").in_force({}), 4)[0] > 128


@pytest.mark.parametrize("major", ["13", "14", "15", "16", "17", "18"])
def test_ranges_hold_only_what_the_version_takes(major: str) -> None:
    catalogue = load(major)
    ranges = tuning.ranges(8 << 30, 4, catalogue) | tuning.UNSAFE_RANGES | tuning.bounded_ranges(600.0)
    assert len(ranges) > 35
    for name, found in ranges.items():
        knob = catalogue.knob(name)
        assert found.why and not knob.outside
        values = list(found.choices)
        if not found.choices:
            assert found.low is not None and found.high is not None and found.low < found.high, name
            values = [str(edge if knob.kind == "real" else int(edge)) for edge in (found.low, found.high)]
            assert not found.log or found.low > 0
        for value in values:
            needed = {other: wanted for choice, other, wanted in found.needs if choice == value}
            assert catalogue.faults({name: value, **needed}) == [], (name, value)
            assert knob.kind == "real" or catalogue.normalise(name, value) == value, (name, value)
        assert len(set(values)) == len(values) > 1


def test_memory_bound_ranges_follow_the_host() -> None:
    small, large = tuning.ranges(2 << 30, 2, load("15")), tuning.ranges(64 << 30, 16, load("15"))
    for name in ("shared_buffers", "work_mem", "maintenance_work_mem", "effective_cache_size"):
        assert (small[name].high or 0) < (large[name].high or 0)
    assert large["shared_buffers"].high == int(0.4 * (64 << 30)) // 8192
    assert tuning.bounded_ranges(2.0) == {}
    assert tuning.bounded_ranges(600.0)["wal_writer_delay"].high == 200


def test_unsafe_values_are_in_no_default_range() -> None:
    assert not set(tuning.RANGES) & set(tuning.UNSAFE_RANGES)
    for name, found in tuning.RANGES.items():
        for value in found.choices:
            if load("15").has(name) and not load("15").faults({name: value}):
                assert durability.breaking({name: value}, Contract("strict"), "15") == []
