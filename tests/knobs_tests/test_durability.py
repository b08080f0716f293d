"""What the catalogue predicts about durability, against the table that runs have confirmed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from knobs.contract import Contract
from knobs.rocksdb import durability
from knobs.rocksdb.catalogue import load

SYNCED = {"WriteOptions.sync": "true"}
MANUAL = {"DBOptions.manual_wal_flush": "true"}


def breaks(settings: dict[str, str], contract: str) -> set[str]:
    return {finding.failure for finding in durability.breaking(settings, Contract.parse(contract))}


@pytest.mark.parametrize(
    ("settings", "process", "strict"),
    [
        ({}, False, True),
        (SYNCED, False, False),
        (MANUAL, True, True),
        (MANUAL | {"Application.flush_wal_every_ms": "50"}, True, True),
        ({"WriteOptions.disableWAL": "true"}, True, True),
        ({"DBOptions.wal_bytes_per_sync": "1048576"}, False, True),
        (SYNCED | MANUAL, False, False),
        (SYNCED | {"DBOptions.best_efforts_recovery": "true"}, True, True),
        (SYNCED | {"DBOptions.use_fsync": "true"}, False, False),
        (SYNCED | {"DBOptions.enable_pipelined_write": "true"}, False, False),
        (SYNCED | {"DBOptions.unordered_write": "true"}, False, False),
        (SYNCED | {"DBOptions.max_total_wal_size": "1M"}, False, False),
        (SYNCED | {"DBOptions.recycle_log_file_num": "4"}, False, False),
        (SYNCED | {"DBOptions.wal_recovery_mode": "kAbsoluteConsistency"}, False, False),
    ],
    ids=str,
)
def test_predictions_agree_with_the_verdicts(settings: dict[str, str], process: bool, strict: bool) -> None:
    assert bool(breaks(settings, "process")) is process
    assert bool(breaks(settings, "strict")) is strict


def test_bounded_follows_what_the_application_does() -> None:
    flushed = MANUAL | {"Application.flush_wal_every_ms": "50"}
    assert breaks(flushed, "bounded:500ms") == {"power-cut"}  # nobody syncs
    synced = MANUAL | {"Application.sync_wal_every_ms": "400"}
    assert breaks(synced, "bounded:500ms") == set()
    assert breaks(synced, "bounded:300ms") == {"process-crash", "power-cut"}
    assert breaks({"Application.sync_wal_every_ms": "400"}, "bounded:500ms") == set()
    assert breaks({}, "bounded:500ms") == {"power-cut"}
    # A flush does not bound a power cut, whatever its period.
    assert breaks({"Application.flush_wal_every_ms": "1"}, "bounded:500ms") == {"power-cut"}
    mapped = {"Application.sync_wal_every_ms": "400", "DBOptions.allow_mmap_writes": "true"}
    assert breaks(mapped, "bounded:500ms") == {"power-cut"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # An OPTIONS file alone cannot say what a power cut does.
        ({"DBOptions.max_open_files": "9"}, ("kept", "unknown", "kept")),
        (SYNCED, ("kept", "kept", "kept")),
        ({"WriteOptions.sync": "false"}, ("kept", "weakened", "kept")),
        (MANUAL, ("weakened", "unknown", "kept")),
        (MANUAL | SYNCED, ("kept", "kept", "kept")),
        ({"WriteOptions.disableWAL": "1"}, ("weakened", "weakened", "kept")),
        (
            {"WriteOptions.disableWAL": "true", "DBOptions.avoid_flush_during_shutdown": "true"},
            ("weakened", "weakened", "weakened"),
        ),
        ({"DBOptions.avoid_flush_during_shutdown": "true"}, ("kept", "unknown", "kept")),
        (SYNCED | {"DBOptions.best_efforts_recovery": "true"}, ("kept", "kept", "weakened")),
        (SYNCED | {"BlockBasedTableOptions.checksum": "kNoChecksum"}, ("kept", "kept", "weakened")),
        (SYNCED | {"DBOptions.wal_recovery_mode": "kSkipAnyCorruptedRecords"}, ("kept", "kept", "weakened")),
        ({"DBOptions.wal_recovery_mode": "kAbsoluteConsistency"}, ("kept", "unknown", "weakened")),
    ],
    ids=str,
)
def test_promises(settings: dict[str, str], expected: tuple[str, str, str]) -> None:
    promised = durability.promise(settings)
    assert (promised.process_crash, promised.power_cut, promised.recovery) == expected


def test_what_looks_dangerous_and_is_not_raises_nothing() -> None:
    catalogue = load()
    for name, why in durability.HARMLESS.items():
        knob = catalogue.knob(name)
        value = {"bool": "true"}.get(knob.kind, "5")
        found = durability.promise(SYNCED | {name: value}).findings
        assert (name, found) == (name, ())
        assert why


def test_hidden_corruption_breaks_every_contract() -> None:
    for settings in (
        {"DBOptions.paranoid_checks": "false"},
        {"CFOptions.force_consistency_checks": "false"},
        {"BlockBasedTableOptions.checksum": "kNoChecksum"},
    ):
        for contract in ("strict", "process", "bounded:10s"):
            assert "hidden-corruption" in breaks(SYNCED | settings, contract)


def test_every_finding_cites_a_header_line() -> None:
    for weakness in durability.WEAKNESSES:
        for name in weakness.names:
            source = load().knob(name).source
            assert source.file.startswith("rocksdb/") and source.line > 0
    [finding] = durability.breaking({}, Contract.parse("strict"))
    sync = load().knob("WriteOptions.sync").source
    assert (finding.setting, finding.value, finding.source) == ("WriteOptions.sync", "false", str(sync))
    assert "newest" in finding.loss


def test_the_window_is_part_of_the_loss() -> None:
    found = durability.promise(MANUAL | {"Application.flush_wal_every_ms": "50"}).findings
    [loss] = [finding.loss for finding in found if finding.failure == "process-crash"]
    assert loss.endswith("the last 50 ms at most")


def test_it_starts_without_the_slow_imports() -> None:
    code = (
        "import sys, knobs.rocksdb.durability, knobs.configuration;"
        "print(sorted({'pydantic', 'numpy', 'typer', 'rich', 'optuna'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.strip() == "[]"


def test_a_mode_that_refuses_a_torn_tail_is_a_caveat_and_breaks_nothing() -> None:
    settings = {"WriteOptions.sync": "true", "DBOptions.wal_recovery_mode": "kAbsoluteConsistency"}
    assert [finding.rule for finding in durability.caveats(settings)] == ["torn-tail-after-a-kill"]
    assert durability.breaking(settings, Contract.parse("strict")) == []
    assert durability.caveats({"WriteOptions.sync": "true"}) == []
