"""What the catalogue predicts of PostgreSQL's settings."""

from __future__ import annotations

import pytest

from knobs.contract import Contract
from knobs.postgresql import durability
from knobs.postgresql.catalogue import load

STRICT, PROCESS, BOUNDED = (
    Contract.parse("strict"),
    Contract.parse("process"),
    Contract.parse("bounded:600ms"),
)


def broken(settings: dict[str, str], contract: Contract) -> list[tuple[str, str]]:
    return [(f.rule, f.failure) for f in durability.breaking(settings, contract, "15")]


@pytest.mark.parametrize("major", ["13", "14", "15", "16", "17", "18"])
def test_the_defaults_hold_strict(major: str) -> None:
    assert durability.breaking({}, STRICT, major) == []
    found = durability.promise({}, major)
    assert (found.process_crash, found.power_cut, found.recovery) == ("kept", "kept", "kept")
    assert found.failover == "unknown" and found.findings == ()


@pytest.mark.parametrize(
    ("settings", "process_crash", "power_cut", "rule"),
    [
        ({"fsync": "false"}, "kept", "weakened", "nothing-synced"),
        ({"synchronous_commit": "no"}, "weakened", "weakened", "acknowledged-early"),
        ({"full_page_writes": "0"}, "kept", "weakened", "torn-pages-kept"),
    ],
)
def test_the_settings_that_lose_data(
    settings: dict[str, str], process_crash: str, power_cut: str, rule: str
) -> None:
    found = durability.promise(settings, "15")
    assert (found.process_crash, found.power_cut) == (process_crash, power_cut)
    assert rule in {finding.rule for finding in found.findings}
    assert all("runtime-config-wal.html#GUC-" in finding.source for finding in found.findings)
    assert broken(settings, STRICT)


def test_an_early_commit_is_bounded_by_three_delays() -> None:
    off = {"synchronous_commit": "off"}
    assert broken(off, PROCESS) == [("acknowledged-early", "process-crash")]
    assert broken(off, BOUNDED) == []
    assert broken({**off, "wal_writer_delay": "50ms"}, BOUNDED) == []
    assert len(broken({**off, "wal_writer_delay": "0.201s"}, BOUNDED)) == 2
    [first, _] = durability.breaking({**off, "wal_writer_delay": "10s"}, BOUNDED, "15")
    assert "last 30000 ms at most" in first.loss
    assert "wal_writer_delay=10s" in first.in_words
    assert broken({"wal_writer_delay": "10s"}, BOUNDED) == []


@pytest.mark.parametrize("contract", [STRICT, PROCESS, BOUNDED], ids=str)
@pytest.mark.parametrize(
    "settings",
    [
        {"fsync": "off"},
        {"full_page_writes": "off"},
        {"zero_damaged_pages": "on"},
        {"ignore_checksum_failure": "on"},
        {"ignore_invalid_pages": "on"},
        {"data_sync_retry": "on"},
    ],
    ids=str,
)
def test_corruption_breaks_every_contract(settings: dict[str, str], contract: Contract) -> None:
    assert broken(settings, contract)


@pytest.mark.parametrize(
    "settings",
    [
        *({"synchronous_commit": value} for value in ("local", "remote_write", "remote_apply", "on", "1")),
        *({"wal_sync_method": value} for value in ("open_datasync", "open_sync", "fsync")),
        {"commit_delay": "1000"},
        {"wal_compression": "on"},
        {"wal_init_zero": "off"},
        {"wal_recycle": "off"},
        {"wal_log_hints": "on"},
        {"max_wal_size": "64GB", "checkpoint_timeout": "1d"},
        {"wal_level": "minimal", "max_wal_senders": "0"},
    ],
    ids=str,
)
def test_what_only_looks_like_it_breaks_nothing(settings: dict[str, str]) -> None:
    assert broken(settings, STRICT) == []
    found = durability.promise(settings, "15")
    assert (found.process_crash, found.power_cut, found.recovery) == ("kept", "kept", "kept")


def test_failover_is_about_the_named_standbys() -> None:
    named = {"synchronous_standby_names": "ANY 1 (a, b)"}
    for commit, level in (("on", "kept"), ("remote_apply", "kept"), ("remote_write", "weakened")):
        assert durability.promise({**named, "synchronous_commit": commit}, "15").failover == level
    for commit in ("local", "off"):
        found = durability.promise({**named, "synchronous_commit": commit}, "15")
        assert found.failover == "weakened"
    assert durability.promise({"wal_level": "minimal"}, "15").failover == "weakened"
    assert [caveat.rule for caveat in durability.caveats(named, "15")] == ["commits-wait-for-standbys"]
    assert durability.caveats({**named, "synchronous_commit": "local"}, "15") == []
    assert broken({**named, "synchronous_commit": "local"}, STRICT) == []


def test_every_name_has_a_meaning_and_exists() -> None:
    loaded = {major: load(major) for major in ("13", "14", "15", "16", "17", "18")}
    for weakness in (*durability.WEAKNESSES, *durability.CAVEATS):
        assert weakness.loss and weakness.why
        for name in weakness.names:
            assert any(catalogue.has(name) for catalogue in loaded.values())
            assert loaded["18"].knob(name).meaning, name
    for name in durability.HARMLESS:
        assert loaded["15"].has(name)
        assert durability.breaking({}, STRICT, "15") == []


def test_a_setting_that_a_version_lacks_opens_nothing() -> None:
    assert durability.caveats({}, "13") == []
    assert [c.rule for c in durability.caveats({"recovery_init_sync_method": "syncfs"}, "14")] == [
        "late-errors-of-syncfs"
    ]
