"""What `make windows` tells, on runs made by hand: windows, the longest flush, the bound, the check."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashlab.judging.audit import Peak, audit_run
from crashlab.judging.timeline import Timeline
from crashlab.recording.write_log import Kind
from crashlab.states.horizon import Horizons
from crashlab.states.lives import lives
from engines.engine import LogMap, LogOrder, LogPlace
from engines.postgresql.log_reader import PostgresqlLogReader
from tests.bench import loss_windows
from tests.bench.loss_windows_page import CUT, KILL, Case, Row, page
from tests.crashlab_tests.histories import W, history
from tests.crashlab_tests.runs import recording
from tests.crashlab_tests.tapes import Tape

LOG = 1
SEGMENT = "db/data/pg_wal/000000010000000000000001"


class Load:
    """Writes that are acknowledged at once, logged later, synced later still; position p is at p ms."""

    def __init__(self) -> None:
        self.tape = Tape()
        self.tape.create("db/000001.log", LOG)
        self.tape.fsync_folder()
        self.writes: list[W] = []
        self.logged = 0

    def acknowledge(self) -> int:
        """One write, in memory only; returns the position of its acknowledgement."""
        begin = self.tape.begin()
        self.writes.append(W(1, len(self.writes), begin, self.tape.begin()))
        return self.tape.position

    def log(self) -> None:
        while self.logged < len(self.writes):
            self.tape.write(LOG, 10 * self.logged, b"0123456789")
            self.logged += 1

    def sync(self) -> None:
        self.tape.fdatasync(LOG)

    def recording(self, first_position: int = 0) -> Any:
        """The run so far."""
        places = [LogPlace(1, number + 1, 0, 10 * (number + 1)) for number in range(len(self.writes))]
        log_map = LogMap(places, [LogOrder(0, 1)], [])
        return recording(
            self.tape.disk(), history(self.writes), log_map, first_position=first_position, kill_ns=1
        )


def test_a_window_is_the_age_of_the_oldest_ack_that_the_crash_must_lose() -> None:
    load = Load()
    first = load.acknowledge()
    load.acknowledge()
    load.log()
    end_of_log = load.tape.position
    load.sync()
    run = load.recording()
    audit, timeline = run.audit, run.timeline

    sync_end = load.tape.position
    assert audit.peak_at(sync_end, timeline, CUT).window_ms == sync_end - 1 - first
    assert audit.peak_at(sync_end + 1, timeline, CUT).window_ms == 0.0
    assert audit.peak_at(first + 1, timeline, KILL).window_ms == 0.0, "just acknowledged"
    assert audit.peak_at(first + 3, timeline, KILL).window_ms > 0.0
    assert audit.peak_at(end_of_log + 1, timeline, KILL).window_ms == 0.0


@given(st.lists(st.sampled_from(("acknowledge", "log", "sync")), min_size=1, max_size=30))
def test_no_position_has_a_wider_window_than_the_widest_peak(steps: list[str]) -> None:
    load = Load()
    for step in steps:
        getattr(load, step)()
    audit_of = load.recording()
    disk = audit_of.disk
    audit = audit_run(lives(disk), Horizons(disk), audit_of.log_map, audit_of.history)
    timeline = Timeline(disk.operations, audit_of.history)
    for crash in (KILL, CUT):
        for peak in audit.peaks(timeline, len(steps), crash):
            assert peak == audit.peak_at(peak.position, timeline, crash)
        widest = max((peak.window_ms for peak in audit.peaks(timeline, 1, crash)), default=0.0)
        windows = [
            audit.peak_at(position, timeline, crash).window_ms
            for position in range(timeline.last_position + 1)
        ]
        assert max(windows) == widest


def test_what_was_exposed_before_the_load_does_not_count() -> None:
    load = Load()
    load.acknowledge()
    began = load.tape.position + 1
    for _ in range(5):
        load.acknowledge()
    load.log()
    load.sync()
    covered = load.tape.position
    last = load.acknowledge()
    load.log()
    load.sync()

    peaks = loss_windows.counted_peaks(load.recording(began), CUT)
    assert [peak.position > covered for peak in peaks] == [True]
    assert peaks[0].window_ms == load.tape.position - 1 - last
    everything = loss_windows.counted_peaks(load.recording(0), CUT)
    assert len(everything) == 2 and everything[0].window_ms > peaks[0].window_ms


def test_a_run_too_short_for_its_delay_does_not_count() -> None:
    load = Load()
    load.acknowledge()
    began = load.tape.position + 1
    load.acknowledge()
    assert "stayed exposed" not in loss_windows.too_short(load.recording(began), 1.0), "not located yet"
    load.log()
    assert "stayed exposed to its end" in loss_windows.too_short(load.recording(began), 1.0)
    load.sync()
    covered = load.tape.position
    for _ in range(15):
        load.acknowledge()
        load.log()
    counted_ms = load.tape.position - covered
    run = load.recording(began)
    assert loss_windows.too_short(run, counted_ms / 2) == ""
    assert "of it count, for a delay" in loss_windows.too_short(run, counted_ms)


def test_the_longest_flush_is_one_of_a_segment_under_its_own_name() -> None:
    tape = Tape()
    tape.create("db/data/pg_wal/xlogtemp.12", LOG)
    tape.create("db/data/base/5/1234", 2)
    tape.add(Kind.FSYNC, LOG, at=(10, 1000))
    tape.rename("db/data/pg_wal/xlogtemp.12", SEGMENT, LOG)
    tape.add(Kind.FDATASYNC, LOG, at=(1010, 1017))
    tape.add(Kind.FDATASYNC, LOG, at=(1020, 1023))
    tape.add(Kind.FSYNC, 2, at=(1030, 1930))
    tape.add(Kind.FDATASYNC, LOG, at=(1940, None))
    found = lives(tape.disk(folders=("db", "db/data", "db/data/pg_wal", "db/data/base", "db/data/base/5")))
    assert loss_windows.longest_flush_ms(found.values(), PostgresqlLogReader().role) == 7.0
    assert loss_windows.longest_flush_ms([], PostgresqlLogReader().role) == 0.0


@pytest.mark.parametrize(
    ("judged_ms", "lost", "unlocated", "agrees"),
    [
        (12.5, 4, 0, True),
        (12.5, 5, 0, False),
        (12.5, 5, 1, True),
        (12.5, 3, 1, False),
        (12.6, 4, 0, False),
        (0.0, 0, 9, False),
    ],
)
def test_a_state_agrees_if_it_lost_as_much_since_the_same_moment(
    judged_ms: float, lost: int, unlocated: int, agrees: bool
) -> None:
    assert loss_windows.agree(Peak(7, 4, 12.5), unlocated, judged_ms, lost) is agrees


def run_of(cut_ms: float = 150.0, **changed: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"disbelief": "", "acks": 100, "unlocated": 1, "flush_ms": 20.0, "worst": []}
    for crash, middle, largest in ((KILL, 1.0, 5.0), (CUT, 10.0, cut_ms)):
        told |= {f"{crash}/s": 4.0, f"{crash}/median_ms": middle, f"{crash}/max_ms": largest}
    return {**told, **changed}


def kill_of(loss_ms: float, lost: int, unknown_why: str = "") -> dict[str, Any]:
    return {
        "loss_ms": loss_ms,
        "lost": lost,
        "acks": 10,
        "throughput_per_s": 50.0,
        "unknown_why": unknown_why,
    }


def worst(agrees: bool) -> dict[str, Any]:
    return {
        "model": "synced",
        "position": 7,
        "audit_ms": 150.0,
        "audit_exposed": 3,
        "unlocated": 0,
        "judged_ms": 150.0 if agrees else 90.0,
        "judged_lost": 3,
        "agrees": agrees,
        "note": "BROKEN lost-ack",
    }


CASE = Case(50, "", 0)


def test_a_row_over_its_bound_is_marked() -> None:
    inside = Row(CASE, [kill_of(5.0, 1)], [run_of(169.9, worst=[worst(True)])])
    assert inside.bound_ms == 3 * 50 + 20 and not inside.is_over and inside.cells()[-1] == ""
    assert Row(CASE, [kill_of(5.0, 1)], [run_of(170.1)]).cells()[-1] == "**over the bound**"
    assert Row(CASE, [kill_of(171.0, 1)], [run_of()]).is_over
    assert not Row(CASE, [kill_of(171.0, 1, "no ledger")], [run_of()]).is_over


def test_what_disagrees_and_what_does_not_count_is_told() -> None:
    rows = [
        Row(CASE, [kill_of(5.0, 1), kill_of(7.0, 4)], [run_of(worst=[worst(True), worst(False)])]),
        Row(CASE, [kill_of(5.0, 1, "no ledger")], [{"disbelief": "syncs unlike", "worst": []}]),
    ]
    told = page(rows, ["- origin"], 10, 4)
    assert "| 6.0 / 7.0 | 2.5 / 4 | 1.0 / 5.0 | 10 / 150 |" in told
    assert "synced at 7: 90.000 ms and 3 acks lost, the audit says 150.000 ms and 3 to 3" in told
    assert "2, of which 1 lost something else" in told
    assert "a killed run: no ledger" in told and "a recorded run: syncs unlike" in told
    assert told.count("**unlike the audit**") == 1 and told.count("not all runs count") == 1


def test_the_rows_are_all_that_the_page_is_to_show() -> None:
    rows = loss_windows.cases()
    assert len({case.name for case in rows}) == len(rows) == 16
    assert all(loss_windows.recorded_s(case) > 2 * case.delay_ms / 1000 for case in rows)
    assert rows[0].settings == {"synchronous_commit": "off", "wal_writer_delay": "10ms"}
    assert rows[-1].settings["wal_writer_flush_after"] == "1GB"
