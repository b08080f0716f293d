"""The audit: since when each acknowledged write is written and durable, by offsets, barriers, releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashlab.judging.audit import Audit, audit_run, disagreement
from crashlab.judging.oracle import NEVER, History
from crashlab.judging.timeline import Timeline
from crashlab.recording.write_log import Kind
from crashlab.states.disk import BaseFile
from crashlab.states.horizon import Horizons
from crashlab.states.lives import lives
from engines.engine import LogMap, LogOrder, LogPlace, Released
from tests.crashlab_tests.histories import W, entries, history, rows
from tests.crashlab_tests.tapes import Tape

LOG, NEWER, MANIFEST = 1, 2, 3
OLD_FILE, NEW_FILE, MANIFEST_FILE = 0, 1, 2


class Run:
    """A run told step by step: two logs and a manifest, and the clients' writes."""

    def __init__(self) -> None:
        self.tape = Tape()
        for path, inode in (
            ("db/000001.log", LOG),
            ("db/000005.log", NEWER),
            ("db/MANIFEST-000002", MANIFEST),
        ):
            self.tape.create(path, inode)
        self.tape.fsync_folder()
        self.writes: list[W] = []
        self.places: list[LogPlace] = []
        self.released: list[Released] = []
        self.orders = [LogOrder(NEW_FILE, 5), LogOrder(OLD_FILE, 1)]
        self.sizes = {LOG: 0, NEWER: 0, MANIFEST: 0}

    def put(self, inode: int = LOG, *, write_first: bool = True, sync: bool = False, family: int = 0) -> W:
        """One client write: begun, logged (before or after the ack) and acknowledged."""
        begin = self.tape.begin()
        if write_first:
            self.log(inode)
        if sync:
            self.tape.fdatasync(inode)
        acked = W(1, len(self.writes), begin, self.tape.begin())
        if not write_first:
            self.log(inode)
        self.writes.append(acked)
        file = OLD_FILE if inode == LOG else NEW_FILE
        self.places.append(LogPlace(1, len(self.writes), file, self.sizes[inode], family))
        return acked

    def log(self, inode: int, data: bytes = b"0123456789") -> None:
        self.tape.write(inode, self.sizes[inode], data)
        self.sizes[inode] += len(data)

    def release(self, rank: int, family: int | None) -> None:
        """A manifest edit after which logs below the rank are not needed."""
        self.log(MANIFEST)
        self.released.append(Released(MANIFEST_FILE, self.sizes[MANIFEST], family, rank))

    def audit(self) -> Audit:
        disk = self.tape.disk()
        log_map = LogMap(self.places, self.orders, self.released)
        return audit_run(lives(disk), Horizons(disk), log_map, history(self.writes))


@pytest.fixture
def run() -> Run:
    return Run()


def counts(audit: Audit) -> tuple[int, int, int]:
    assert audit.covered + audit.exposed + audit.unlocated == audit.acks
    return audit.covered, audit.exposed, audit.unlocated


def test_a_synced_write_is_covered_and_an_unsynced_one_exposed(run: Run) -> None:
    run.put(sync=True)
    run.put()
    audit = run.audit()
    assert counts(audit) == (1, 1, 0)
    assert audit.covered_from[1] == NEVER
    assert audit.unwritten == 0


def test_a_later_sync_covers_from_its_end_on(run: Run) -> None:
    acked = run.put()
    sync = run.tape.fdatasync(LOG)
    audit = run.audit()
    assert counts(audit) == (0, 1, 0)
    assert acked.end is not None and sync.end is not None
    assert audit.covered_from[0] == sync.end + 1
    assert audit.exposed_at(sync.end).tolist() == [True]
    assert audit.covered_at(sync.end).tolist() == [False]
    assert audit.exposed_at(sync.end + 1).tolist() == [False]
    assert audit.covered_at(sync.end + 1).tolist() == [True]
    assert audit.exposed_at(acked.end).tolist() == [False], "it was not acknowledged yet"


def test_a_write_that_the_engine_still_held_is_unwritten(run: Run) -> None:
    run.put(write_first=False)
    audit = run.audit()
    assert counts(audit) == (0, 1, 0)
    assert audit.unwritten == 1


def test_what_is_in_no_log_is_unlocated(run: Run) -> None:
    run.put(sync=True)
    run.places.clear()
    assert counts(run.audit()) == (0, 0, 1)


def test_a_place_that_was_never_wholly_written_is_unlocated(run: Run) -> None:
    run.put(sync=True)
    run.places[0] = LogPlace(1, 1, OLD_FILE, run.sizes[LOG] + 1)
    assert counts(run.audit()) == (0, 0, 1)


def test_an_open_write_is_no_place(run: Run) -> None:
    run.put(sync=True)
    run.tape.add(Kind.WRITE, LOG, a=run.sizes[LOG], data=b"x" * 10, answered=False)
    run.writes.append(W(1, 9, run.tape.begin(), run.tape.begin()))
    run.places.append(LogPlace(1, 2, OLD_FILE, run.sizes[LOG] + 10))
    assert counts(run.audit()) == (1, 0, 1)


def test_unanswered_writes_are_no_acks(run: Run) -> None:
    run.put(sync=True)
    run.writes[0] = W(1, 0, run.writes[0].begin, None)
    assert run.audit().acks == 0


def test_a_record_in_nobodys_name_is_passed_over(run: Run) -> None:
    run.put(sync=True)
    run.places += [LogPlace(9, 1, OLD_FILE, 10), LogPlace(0, 3, OLD_FILE, 10), LogPlace(1, 77, OLD_FILE, 10)]
    assert counts(run.audit()) == (1, 0, 0)


def test_a_newer_log_is_durable_only_behind_the_older_one(run: Run) -> None:
    run.put(LOG)
    run.put(NEWER, sync=True)
    assert counts(run.audit()) == (0, 2, 0)
    sync = run.tape.fdatasync(LOG)
    audit = run.audit()
    assert sync.end is not None
    assert audit.covered_from.tolist() == [sync.end + 1, sync.end + 1]


def test_an_older_log_needs_no_newer_one(run: Run) -> None:
    run.put(NEWER)
    run.put(LOG, sync=True)
    assert counts(run.audit()) == (1, 1, 0)


def test_an_older_log_with_an_open_write_is_never_whole(run: Run) -> None:
    run.put(LOG, sync=True)
    run.tape.add(Kind.WRITE, LOG, a=10, data=b"x", answered=False)
    run.put(NEWER, sync=True)
    assert counts(run.audit()) == (1, 1, 0)


def test_a_synced_edit_releases_older_logs(run: Run) -> None:
    run.put(LOG)
    run.put(NEWER, sync=True)
    run.release(5, family=None)
    assert counts(run.audit()) == (0, 2, 0), "the edit itself is not durable"
    sync = run.tape.fsync(MANIFEST)
    assert sync.end is not None
    assert run.audit().covered_from.tolist() == [sync.end + 1, sync.end + 1]


def test_an_edit_releases_logs_below_its_rank_only(run: Run) -> None:
    run.put(LOG)
    run.release(1, family=None)
    run.tape.fsync(MANIFEST)
    assert run.audit().covered_from[0] == NEVER


def test_a_family_releases_its_own_writes_only(run: Run) -> None:
    run.put(LOG, family=0)
    run.put(LOG, family=7)
    run.release(1, family=7)
    run.release(5, family=0)
    run.tape.fsync(MANIFEST)
    audit = run.audit()
    assert audit.covered_from[0] < NEVER
    assert audit.covered_from[1] == NEVER


def test_a_log_stands_in_the_way_until_every_family_has_released_it(run: Run) -> None:
    run.put(LOG, family=0)
    run.release(5, family=0)
    run.release(1, family=7)
    run.tape.fsync(MANIFEST)
    run.put(NEWER, family=0, sync=True)
    assert run.audit().covered_from[1] == NEVER
    run.release(5, family=7)
    sync = run.tape.fsync(MANIFEST)
    assert sync.end is not None
    assert run.audit().covered_from[1] == sync.end + 1


def test_peaks_are_the_widest_windows_first(run: Run) -> None:
    run.put()
    run.put()
    first = run.tape.fdatasync(LOG)
    for _ in range(5):
        run.put()
    second = run.tape.fdatasync(LOG)
    disk = run.tape.disk()
    audit = run.audit()
    timeline = Timeline(disk.operations, audit.history)
    peaks = audit.peaks(timeline, 10)
    assert first.end is not None and second.end is not None
    assert [peak.position for peak in peaks] == [second.end, first.end]
    assert [peak.exposed for peak in peaks] == [5, 2]
    assert peaks[0].window_ms > peaks[1].window_ms > 0
    assert audit.peaks(timeline, 1) == peaks[:1]


def test_without_exposure_there_is_no_peak(run: Run) -> None:
    run.put(sync=True)
    audit = run.audit()
    assert audit.peaks(Timeline(run.tape.disk().operations, audit.history), 5) == []


def test_disagreements_are_counted(run: Run) -> None:
    run.put(sync=True)
    run.put()
    audit = run.audit()
    position = run.tape.position + 1
    both = rows((0, 1, 1), (1, 1, 2))
    agreed = disagreement(audit, rows((0, 1, 1)), (1,), position)
    assert (agreed.survived, agreed.vanished) == (0, 0)
    survived = disagreement(audit, both, (), position)
    assert (survived.survived, survived.vanished) == (1, 0)
    vanished = disagreement(audit, rows(), (0, 1), position)
    assert (vanished.survived, vanished.vanished) == (0, 1)


def test_an_exposed_write_that_a_newer_one_replaced_has_survived_too(run: Run) -> None:
    run.put()
    run.put()
    run.writes[1] = W(1, 0, run.writes[1].begin, run.writes[1].end)
    audit = run.audit()
    found = disagreement(audit, rows((0, 1, 2)), (), run.tape.position + 1)
    assert found.survived == 2


def test_a_page_that_is_written_before_it_is_full_reaches_as_far_as_it_is_filled() -> None:
    """As PostgreSQL writes its log: whole pages, again and again as they fill."""
    run = Run()
    page = bytearray(64)
    for number in range(3):
        page[10 * number : 10 * number + 10] = b"0123456789"
        begin = run.tape.begin()
        run.tape.write(LOG, 0, bytes(page))
        run.tape.fdatasync(LOG)
        run.writes.append(W(1, number, begin, run.tape.begin()))
        run.places.append(LogPlace(1, number + 1, OLD_FILE, 10 * number + 10))
    found = run.audit()
    assert (found.covered, found.exposed, found.unlocated) == (3, 0, 0)
    starts = [write.begin for write in run.writes]
    assert all(start < written for start, written in zip(starts, found.written_from.tolist(), strict=True))
    assert sorted(found.covered_from.tolist()) == found.covered_from.tolist()
    assert found.covered_from[1] > run.writes[0].end, "the first page held none of the second write"


def test_what_a_recycled_log_held_before_is_no_part_of_it() -> None:
    run = Run()
    run.put(sync=True)
    run.put(sync=True)
    run.tape.rename("db/000001.log", "db/000009.log", LOG)
    run.tape.fsync_folder()
    recycled = max(lives(run.tape.disk()))
    run.sizes[LOG] = 0
    begin = run.tape.begin()
    run.log(LOG, b"abcdefghij")
    run.writes.append(W(1, 2, begin, run.tape.begin()))
    run.places.append(LogPlace(1, 3, recycled, 10))
    run.orders = [*run.orders, LogOrder(recycled, 9)]
    found = run.audit()
    assert (found.covered, found.exposed) == (2, 1)
    run.tape.fdatasync(LOG)
    assert run.audit().covered_from[2] > begin


def test_a_log_made_at_its_full_size_beforehand_is_of_the_base_only_so_far(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"old record" + bytes(54))
    tape = Tape()
    begin = tape.begin()
    tape.write(LOG, 10, b"new record")
    disk = tape.disk(BaseFile.kept("db/000001.log", LOG, tmp_path / "log"))
    acked = W(1, 0, begin, tape.begin())
    for base_bytes, exposed in ((10, 1), (None, 0)):
        places = LogMap([LogPlace(1, 1, 0, 20)], [LogOrder(0, 1, base_bytes)], [])
        found = audit_run(lives(disk), Horizons(disk), places, history([acked]))
        assert found.exposed == exposed, "the zeros of the base are no record"


def test_a_write_that_is_its_own_sync_is_durable_when_it_ends(run: Run) -> None:
    for own_sync in (True, False):
        begin = run.tape.begin()
        written = run.tape.write(LOG, run.sizes[LOG], b"0123456789", own_sync=own_sync)
        run.sizes[LOG] += 10
        run.writes.append(W(1, len(run.writes), begin, run.tape.begin()))
        run.places.append(LogPlace(1, len(run.writes), OLD_FILE, run.sizes[LOG]))
        audit = run.audit()
        assert written.end is not None
        assert audit.covered_from[-1] == (written.end + 1 if own_sync else NEVER)
    assert counts(run.audit()) == (1, 1, 0)


def test_a_write_that_is_its_own_sync_covers_no_earlier_one(run: Run) -> None:
    """One buffered write before it is still in memory only; the log is durable no further than that."""
    begin = run.tape.begin()
    run.tape.write(LOG, 0, b"0123456789")
    run.tape.write(LOG, 10, b"0123456789", own_sync=True)
    run.writes.append(W(1, 0, begin, run.tape.begin()))
    run.places.append(LogPlace(1, 1, OLD_FILE, 20))
    assert counts(run.audit()) == (0, 1, 0)
    sync = run.tape.fdatasync(LOG)
    assert sync.end is not None and run.audit().covered_from.tolist() == [sync.end + 1]


def test_an_older_log_of_writes_that_are_their_own_syncs_is_whole(run: Run) -> None:
    run.tape.write(LOG, 0, b"0123456789", own_sync=True)
    run.sizes[LOG] = 10
    run.put(NEWER, sync=True)
    assert counts(run.audit()) == (1, 0, 0)


def test_rows_of_own_registers_are_held_against_the_audit_by_their_tokens(run: Run) -> None:
    run.put(sync=True)
    run.put()
    disk, log_map = run.tape.disk(), LogMap(run.places, run.orders, run.released)
    past = History(entries([W(1, 0, w.begin, w.end) for w in run.writes]), 0, register_per_write=True)
    audit = audit_run(lives(disk), Horizons(disk), log_map, past)
    # The rows come in no order, so their own numbers say nothing.
    second, both = rows((0, 1, 2)), rows((0, 1, 2), (1, 1, 1))
    position = run.tape.position + 1
    agreed = disagreement(audit, rows((1, 1, 1)), (1,), position)
    assert (agreed.survived, agreed.vanished) == (0, 0)
    survived = disagreement(audit, both, (), position)
    assert (survived.survived, survived.vanished) == (1, 0)
    vanished = disagreement(audit, second, (0,), position)
    assert (vanished.survived, vanished.vanished) == (1, 1)
