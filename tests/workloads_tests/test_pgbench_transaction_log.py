"""pgbench's own log of its transactions, read as pgbench writes it, and its figures."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knobs.errors import Undecided
from workloads.pgbench.transaction_log import NAME, Line, done_by_client, figures, read

PLAIN = "0 1 1500 0 1700000000 250\n1 1 900 0 1700000000 400\n0 2 failed 0 1700000001 0\n"
"""client, number, microseconds, script, epoch seconds, microseconds (pgbench(1))."""
RATED = "0 1 1500 0 1700000000 250 600\n0 2 skipped 0 1700000000 300 9000\n1 1 2500 0 1700000000 999999 0\n"
SECOND = 1_700_000_000_000_000


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "run-log"


def test_lines_without_a_rate(prefix: Path) -> None:
    (prefix.parent / "run-log.123").write_text(PLAIN)
    assert read(prefix) == [
        Line(0, SECOND + 250, 1500, None, False),
        Line(1, SECOND + 400, 900, None, False),
        Line(0, SECOND + 1_000_000, None, None, False),
    ]


def test_lines_with_a_rate_tell_the_lag(prefix: Path) -> None:
    (prefix.parent / "run-log.123").write_text(RATED)
    assert read(prefix) == [
        Line(0, SECOND + 250, 1500, 600, False),
        Line(0, SECOND + 300, None, 9000, True),
        Line(1, SECOND + 999_999, 2500, 0, False),
    ]


def test_every_thread_has_a_file_and_other_files_are_none_of_them(prefix: Path) -> None:
    (prefix.parent / "run-log.123").write_text(PLAIN)
    (prefix.parent / "run-log.123.1").write_text("7 1 10 0 1700000000 1\n")
    (prefix.parent / "first-log.99").write_text("8 1 10 0 1700000000 1\n")
    (prefix.parent / "run-logbook").write_text("what is this\n")
    assert sorted({line.client for line in read(prefix)}) == [0, 1, 7]


def test_no_log_holds_nothing(prefix: Path) -> None:
    assert read(prefix) == []


@pytest.mark.parametrize(
    "last",
    [
        "0 1 15",
        "0 1 1500 0 1700000000",
        "x 1 1500 0 1700000000 1",
        "0 1 1500 0 now 1",
        "\n",
        "0 1 1.5e3 0 1700000000 1",
    ],
)
def test_a_line_that_is_none_decides_nothing(prefix: Path, last: str) -> None:
    """Such as the last one of a pgbench that was killed."""
    (prefix.parent / "run-log.123").write_text(PLAIN + last)
    with pytest.raises(Undecided, match="pgbench wrote"):
        read(prefix)


def test_failed_and_skipped_transactions_are_not_done(prefix: Path) -> None:
    (prefix.parent / "run-log.1").write_text(PLAIN)
    (prefix.parent / "run-log.1.1").write_text(RATED)
    assert done_by_client(read(prefix)) == {0: 2, 1: 2}


def line(ended_us: int, elapsed_us: int | None, lag_us: int | None = None, *, skipped: bool = False) -> Line:
    return Line(0, ended_us, elapsed_us, lag_us, skipped)


def test_the_window_takes_in_what_ended_in_it() -> None:
    lines = [line(99, 1), line(100, 2), line(199, 3), line(200, 4)]
    found = figures(lines, 100, 200)
    assert found["operations"] == 2
    assert found["seconds"] == 100e-6 and found["throughput_per_s"] == 2 / 100e-6
    assert (found["per_operation"][NAME]["min_us"], found["per_operation"][NAME]["max_us"]) == (2.0, 3.0)


def test_failed_and_skipped_ones_are_told_apart_and_count_for_nothing() -> None:
    lines = [line(1, 10, 0), line(2, None, 0), line(3, None, 0), line(4, None, 500, skipped=True)]
    found = figures(lines, 0, 10)
    operation = found["per_operation"][NAME]
    assert (found["operations"], found["skipped"]) == (1, 1)
    assert (operation["count"], operation["errors"]) == (1, 2)
    assert operation["returns"] == {"OK": 1, "ERROR": 2}
    assert operation["average_us"] == 10.0


def test_a_rate_parts_the_lag_from_the_latency() -> None:
    """pgbench counts from the scheduled start; what the server took is that less the lag."""
    found = figures([line(1, 1500, 600), line(2, 900, 0)], 0, 10)["per_operation"][NAME]
    assert (found["min_us"], found["max_us"]) == (900.0, 900.0)
    assert (found["intended_min_us"], found["intended_max_us"]) == (900.0, 1500.0)


def test_without_a_rate_there_is_no_intended_latency() -> None:
    assert not any("intended" in name for name in figures([line(1, 5)], 0, 10)["per_operation"][NAME])


def test_nothing_in_the_window_is_no_latency() -> None:
    found = figures([line(50, 1)], 0, 10)
    assert (found["operations"], found["throughput_per_s"], found["per_operation"]) == (0, 0.0, {})


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=300))
def test_quantiles_are_measured_values_that_the_share_does_not_exceed(elapsed: list[int]) -> None:
    found = figures([line(1, each) for each in elapsed], 0, 10)["per_operation"][NAME]
    ordered = sorted(elapsed)
    for name, permille in (("p50_us", 500), ("p95_us", 950), ("p99_us", 990), ("p999_us", 999)):
        assert found[name] == ordered[math.ceil(permille * len(ordered) / 1000) - 1], name
    assert found["average_us"] == pytest.approx(sum(elapsed) / len(elapsed))
    assert found["count"] == len(elapsed)
