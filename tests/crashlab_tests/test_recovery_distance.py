"""What `make recovery` tells: the rules, what the server and pg_waldump say, and a distance really filled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashlab.judging.oracle import Cut
from crashlab.kill import LOG_BYTES_FOR_A_RATE, KilledRun
from engines.engine import LongestReplay
from engines.postgresql import server_log
from engines.postgresql.replay import IMAGE_BYTE_COST, redo_s
from knobs.errors import Undecided
from tests.bench import recovery_distance
from tests.bench.postgresql_lab import postgresql_lab
from tests.bench.recovery_distance_page import (
    Filling,
    Judged,
    Pair,
    Repetition,
    Replay,
    by_bytes,
    by_work,
    cpu_ratios,
    image_byte_costs,
    page,
    ratios,
)
from tests.crashlab_tests.histories import history
from workloads.workload import ROW, Recovered

MIB = 1 << 20
MESSAGES = """\
2026-11-29 22:05:43.596 UTC [7] LOG:  database system was interrupted
2026-11-29 22:05:44.984 UTC [7] LOG:  redo starts at 0/92233C0
2026-11-29 22:05:54.984 UTC [7] LOG:  redo in progress, elapsed time: 10.00 s, current LSN: 0/29D11718
2026-11-29 22:06:02.868 UTC [7] LOG:  redo done at 0/44AA1F98 system usage: CPU: user: 9.72 s, \
system: 1.61 s, elapsed: 17.88 s
"""
STATS = """\
LogicalMessage           0 (  0.00)            0 (  0.00)            0 (  0.00)            0 (  0.00)
                  --------              --------              --------              --------
Total              9605342             664275350 [68.37%]    307379224 [31.63%]    971654574 [100%]
"""


def test_a_replay_is_what_the_server_and_pg_waldump_say() -> None:
    found = recovery_distance.replay(server_log.parse(MESSAGES), 19.7, STATS)
    assert (found.redo_s, found.redo_cpu_s) == pytest.approx((17.884, 11.33))
    log_bytes = 0x44AA1F98 - 0x92233C0
    assert (found.start_s, found.log_bytes, found.records) == (19.7, log_bytes, 9605342)
    assert (found.image_bytes, found.record_bytes) == (307379224, log_bytes - 307379224)
    old = recovery_distance.replay(server_log.parse(MESSAGES.replace(" system usage: CPU", "")), 19.7, STATS)
    assert old.redo_cpu_s is None
    for messages, stats in (("", STATS), (MESSAGES, "pg_waldump: error: could not find a valid record")):
        with pytest.raises(Undecided):
            recovery_distance.replay(server_log.parse(messages), 19.7, stats)


short_replays = st.builds(
    lambda start, redo, records, images: Replay(start + redo, redo, redo, records + images, 1, images),
    st.floats(0.01, 5),
    st.floats(0.01, 5),
    st.integers(LOG_BYTES_FOR_A_RATE, 100 * MIB),
    st.integers(0, 200 * MIB),
)


@given(short_replays, st.integers(1, 64_000 * MIB))
def test_by_work_is_what_a_killed_run_predicts(short: Replay, longest: int) -> None:
    nothing = np.empty(0, dtype=ROW)
    made = Recovered(True, "", "", short.start_s, nothing, nothing)
    seen, log_bytes = short.seen(4.0), max(short.log_bytes, longest)
    there = LongestReplay(log_bytes, redo_s(seen, log_bytes))
    killed = KilledRun({}, "", history([]), Cut(0, 0), made, seen, there)
    assert killed.recovery_s_predicted == pytest.approx(by_work(short, log_bytes))


def costs(record_bytes: float, image_bytes: float) -> float:
    """Seconds of a redo on a machine that takes 20 ns for a byte of a record."""
    return 20e-9 * (record_bytes + IMAGE_BYTE_COST * image_bytes)


def replay_of(record_bytes: int, image_bytes: int) -> Replay:
    """A redo on that machine, half a second after the start began."""
    redo_s = costs(record_bytes, image_bytes)
    return Replay(redo_s + 0.5, redo_s, redo_s, record_bytes + image_bytes, 1, image_bytes)


@given(st.integers(MIB, 100 * MIB), st.integers(0, 200 * MIB), st.integers(2, 100))
def test_by_work_is_right_where_the_longest_log_has_two_rounds_of_images(
    records: int, images: int, times: int
) -> None:
    """Of more images than two rounds there is less to do than predicted."""
    short, filled = replay_of(records, images), replay_of(records * times, 2 * images)
    assert by_work(short, filled.log_bytes) == pytest.approx(filled.start_s)
    assert by_work(short, short.log_bytes) == pytest.approx(short.start_s)
    more = replay_of(records * times, 3 * images)
    assert by_work(short, more.log_bytes) >= more.start_s - 1e-9
    each = Repetition(short, 4.0, [filled], 300.0, 1024 * MIB, 1024 * MIB)
    assert [*ratios([each], by_work), *cpu_ratios([each], by_work)] == pytest.approx([1.0, 1.0])
    if images > MIB and times > 3:
        assert image_byte_costs([each]) == [pytest.approx(IMAGE_BYTE_COST, rel=1e-4)]


def test_a_ratio_is_measured_over_predicted() -> None:
    short = Replay(1.5, 0.5, 0.4, 100 * MIB, 1000, 90 * MIB)
    filled = Replay(42.0, 41.0, 16.4, 1000 * MIB, 82_000, 180 * MIB)
    each = [Repetition(short, 4.0, [filled], 300.0, 1024 * MIB, 500 * MIB)]
    assert ratios(each, by_bytes) == [pytest.approx(42.0 / (1.5 + 0.5 * 9))]
    assert cpu_ratios(each, by_bytes) == [pytest.approx(16.4 / (0.4 * 10))]

    narrow, wide = Pair("1GB", "5min"), Pair("64GB", "1h")
    judged = [
        Judged(narrow, 1000.0, 1.0, 4.0, ["HELD"]),
        Judged(narrow, 1100.0, 1.0, 4.0, ["BROKEN slow-recovery"]),
        Judged(wide, 1000.0, 1.0, 400.0, ["BROKEN slow-recovery"]),
        Judged(wide, 1210.0, 1.0, 500.0, ["BROKEN slow-recovery"]),
    ]
    fillings = [Filling(narrow, "by volume", 0.9, each)]
    told = page(fillings, judged, ["strict,recovery=5s"], ["- origin"], ["- method"])
    assert "| 1, short | 4 | 100 | 90% | 1000 | 1.50 | 0.50 | 0.40 |" in told
    assert "| 1, filled | 300 | 1000 | 18% | 82000 | 42.00 | 41.00 | 16.40 |" in told
    work_s = by_work(short, 450 * MIB)
    bytes_s = by_bytes(short, int(0.9 * 1024 * MIB))
    assert f"| by bytes | {1000 / 921.6:.2f} | 7.00 | 4.10 | {42.0 / bytes_s:.2f} | " in told
    assert f"| by work | {1000 / 450:.2f} | " in told and f" | {42.0 / work_s:.2f} | " in told
    assert "| 1GB, 5min | 1.00 | 1.00 | 4.00 | HELD (1 of 2), BROKEN slow-recovery (1 of 2) |" in told
    assert "| 64GB, 1h | 1.05 (1.00 to 1.10) | 1.00 | 450.00 (400.00 to 500.00) | BROKEN" in told


@pytest.mark.slow
def test_a_distance_is_filled_and_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with postgresql_lab() as place:
        killed = recovery_distance.run_and_recover(place, place.subject({}, 2), 1, 1, 4 * MIB)
        assert list(place.lab.data.glob("duratune-run-*")) == [], "the run is still there"
    (found,) = killed.replays
    assert 4 * MIB <= found.log_bytes < 64 * MIB
    assert 0 < found.image_bytes < found.log_bytes and found.records > 1000
    assert found.start_s > found.redo_s > 0
    assert place.engine.in_force(killed.effective)["max_wal_size"] == "1024"
