"""PostgreSQL as the lab sees it: how much log a recovery may meet, and what a private cluster overrides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engines.engine import Replay
from engines.postgresql.binaries import Binaries, Version
from engines.postgresql.engine import PostgresqlEngine
from engines.postgresql.replay import IMAGE_BYTE_COST
from engines.postgresql.server_user import ServerUser
from knobs.contract import Contract

MIB = 1 << 20
DEFAULTS = {"max_wal_size": "1024", "checkpoint_timeout": "300", "checkpoint_completion_target": "0.9"}
"""PostgreSQL's own, as pg_settings prints them: MiB and seconds."""


@pytest.fixture(scope="module")
def engine() -> PostgresqlEngine:
    """An engine in no lab: none of its programs is there."""
    user = ServerUser("somebody", 12345, 12345, True)
    return PostgresqlEngine(Binaries(Path("/nowhere"), Version(15, 18), "15.18"), user)


def in_force(**values: str) -> str:
    kept: Mapping[str, Any] = {
        "values": {**DEFAULTS, **values},
        "differences": [],
        "elsewhere": {},
        "role_settings": [],
        "file_errors": [],
    }
    return json.dumps(kept)


@pytest.mark.parametrize(
    ("settings", "log_bytes_per_s", "wanted"),
    [
        # A fast load reaches max_wal_size first, however long the timeout is.
        ({}, 1e9, 1024 * MIB),
        ({"checkpoint_timeout": "86400"}, 10e6, 1024 * MIB),
        ({"max_wal_size": "32"}, 1e9, 32 * MIB),
        # A slow one the timeout: from the last checkpoint's begin to the end of the next, spread over 0.9.
        ({}, 1000.0, 300 * 1.9 * 1000),
        ({"checkpoint_timeout": "30"}, 1000.0, 30 * 1.9 * 1000),
        ({"checkpoint_completion_target": "0.5"}, 1000.0, 300 * 1.5 * 1000),
        ({"checkpoint_completion_target": "0"}, 1000.0, 300 * 1000),
        # A load that writes nothing leaves nothing.
        ({}, 0.0, 0),
    ],
)
def test_how_much_log_a_recovery_may_meet(
    engine: PostgresqlEngine, settings: dict[str, str], log_bytes_per_s: float, wanted: float
) -> None:
    seen = Replay(int(log_bytes_per_s) or 1, 0, 0.1, written_s=1.0 if log_bytes_per_s else 1e9)
    assert engine.longest_replay(in_force(**settings), seen).log_bytes == max(int(wanted), seen.log_bytes)


def test_the_distance_grows_with_both_settings(engine: PostgresqlEngine) -> None:
    def longest(**settings: str) -> int:
        return engine.longest_replay(in_force(**settings), Replay(MIB, 0, 0.1, 1.0)).log_bytes

    wal = [longest(max_wal_size=str(size)) for size in (32, 64, 4096)]
    time = [longest(checkpoint_timeout=str(seconds), max_wal_size="65536") for seconds in (30, 60, 300)]
    assert wal == sorted(set(wal)) and time == sorted(set(time))


def test_page_images_are_cheap_and_come_twice(engine: PostgresqlEngine) -> None:
    """A log of images alone tells little of one of records: replaying the records takes the time."""
    half = Replay(100 * MIB, 50 * MIB, 1.0, 10.0)
    found = engine.longest_replay(in_force(max_wal_size="1000", checkpoint_timeout="86400"), half)
    images, cost = 2 * 50, IMAGE_BYTE_COST
    assert found.log_bytes == 1000 * MIB
    assert found.redo_s == pytest.approx((900 + cost * images) / (50 + cost * 50))
    short = engine.longest_replay(in_force(checkpoint_timeout="30"), Replay(100 * MIB, 99 * MIB, 1.0, 1000.0))
    assert short.log_bytes == int(30 * 1.9 * MIB / 1000) + 2 * 99 * MIB


def test_what_was_in_force_is_the_sessions(engine: PostgresqlEngine) -> None:
    assert engine.in_force(in_force(synchronous_commit="off")) == {**DEFAULTS, "synchronous_commit": "off"}
    assert engine.differences(in_force()) == []


def test_it_needs_no_settings_of_its_own(engine: PostgresqlEngine) -> None:
    assert engine.reference_settings(Contract("strict")) == {}
    assert engine.plain() is engine
    assert engine.stamps_in_server and engine.major == "15" and engine.version() == "15.18"


def test_what_a_private_cluster_overrides_is_noted(engine: PostgresqlEngine) -> None:
    (finding,) = engine.notes({"archive_command": "rm -rf /", "work_mem": "8MB"})
    assert (finding.rule, finding.setting, finding.value) == ("overridden", "archive_command", "rm -rf /")


@pytest.mark.usefixtures("as_root")
def test_a_folder_that_is_closed_to_the_server_is_out_of_reach(
    engine: PostgresqlEngine, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert engine.reaches(Path("/tmp/not yet there/and below")) and not engine.reaches(closed)
    assert not engine.reaches(closed / "not yet there")
