"""The engine's events as operations of a recorded run: names at the time, phases, and what is aimed at."""

from __future__ import annotations

import pytest

from crashlab.recording.write_log import Kind
from crashlab.states.events import PHASES, Event, events_of
from crashlab.states.plan import plan_states
from crashlab.states.run_view import RunView
from engines.postgresql.log_reader import PostgresqlLogReader
from engines.rocksdb.log_reader import RocksdbLogReader
from tests.crashlab_tests.histories import W, history
from tests.crashlab_tests.runs import recording
from tests.crashlab_tests.tapes import FOLDERS_FROM, Tape
from tests.engines_tests.rocksdb_tests.edits import edit, framed

DB = FOLDERS_FROM
LOAD = 4
"""Where the load begins: what comes before opened the database."""
LOG, MANIFEST, TABLE, OTHER_TABLE, NEXT_LOG = 1, 2, 3, 4, 5


def flush_and_compaction() -> Tape:
    """A log and the next one, a flush, and a compaction of what it made."""
    tape = Tape()
    tape.create("db/000001.log", LOG)
    tape.create("db/MANIFEST-000002", MANIFEST)
    assert tape.position == LOAD
    tape.write(LOG, 0, b"0123456789")
    tape.create("db/000005.log", NEXT_LOG)
    tape.write(NEXT_LOG, 0, b"0123456789")
    first = framed(edit([3], log=5))
    tape.create("db/000003.sst", TABLE)
    tape.write(TABLE, 0, b"table")
    tape.fsync(TABLE)
    tape.fsync_folder(DB)
    tape.write(MANIFEST, 0, first)
    tape.fsync(MANIFEST)
    tape.create("db/000004.sst", OTHER_TABLE)
    tape.write(OTHER_TABLE, 0, b"table")
    tape.fsync(OTHER_TABLE)
    tape.write(MANIFEST, len(first), framed(edit([4], [3])))
    tape.fsync(MANIFEST)
    tape.unlink("db/000003.sst", TABLE)
    return tape


def view_of(tape: Tape) -> RunView:
    past = history([W(1, 0, tape.begin(), tape.begin())])
    return recording(tape.disk(), past, first_position=LOAD).view


def by_name(tape: Tape) -> dict[str, Event]:
    return {event.name: event for event in events_of(tape.disk(), RocksdbLogReader(), LOAD)}


def test_events_are_made_of_their_operations() -> None:
    found = by_name(flush_and_compaction())
    kinds = {name: [each.kind for each in event.operations] for name, event in found.items()}
    install = [Kind.CREATE, Kind.FSYNC, Kind.WRITE, Kind.FSYNC]
    assert kinds == {"WAL switch": [Kind.WRITE], "memtable flush": install, "compaction install": install}


def test_the_first_position_aimed_at_is_just_before_the_first_sync_and_the_last_just_after_the_last() -> None:
    flush = by_name(flush_and_compaction())["memtable flush"]
    create, sync, write, install = flush.operations
    assert install.end is not None and sync.end is not None and write.end is not None
    assert flush.positions("before") == [sync.begin] and flush.begin == create.begin
    assert flush.positions("after") == [install.end + 1]
    inside = flush.positions("inside")
    edges = [sync.begin + 1, sync.end + 1, write.begin + 1, write.end + 1, install.begin + 1]
    assert inside == sorted({*edges}) and max(inside) <= install.end


def test_an_event_without_a_sync_is_before_itself() -> None:
    switch = by_name(flush_and_compaction())["WAL switch"]
    (write,) = switch.operations
    assert write.end is not None and not switch.has_sync
    assert [switch.positions(phase) for phase in PHASES] == [
        [write.begin],
        [write.begin + 1],
        [write.end + 1],
    ]


def test_a_write_that_is_its_own_sync_is_one() -> None:
    tape = Tape()
    tape.create("db/000001.log", LOG)
    tape.write(LOG, 0, b"a")
    tape.create("db/000005.log", NEXT_LOG)
    write = tape.write(NEXT_LOG, 0, b"a", own_sync=True)
    switch = by_name(tape)["WAL switch"]
    assert switch.has_sync and switch.first_sync == write.begin


def test_an_event_that_the_crash_cut_short_has_no_after() -> None:
    tape = flush_and_compaction()
    tape.create("db/000009.log", 9)
    tape.add(Kind.WRITE, 9, data=b"x", answered=False)
    last = events_of(tape.disk(), RocksdbLogReader(), LOAD)[-1]
    assert last.name == "WAL switch" and last.end is None
    assert last.positions("after") == [] and last.positions("inside") == [last.begin + 1]


def test_what_began_before_the_load_is_left_out() -> None:
    tape = flush_and_compaction()
    compaction = by_name(tape)["compaction install"]
    names = [event.name for event in events_of(tape.disk(), RocksdbLogReader(), compaction.begin)]
    assert names == ["compaction install"]


def test_a_call_that_failed_is_no_part_of_an_event() -> None:
    tape = Tape()
    tape.create("db/000001.log", LOG)
    tape.write(LOG, 0, b"a")
    tape.create("db/000005.log", NEXT_LOG)
    tape.add(Kind.WRITE, NEXT_LOG, data=b"a", result=-28)
    assert by_name(tape) == {}


def test_a_file_has_the_name_that_it_had_at_the_time() -> None:
    """A segment is filled with zeros before it is a log, and an old one is written before it is recycled."""
    wal = "db/data/pg_wal"
    tape = Tape()
    tape.create(f"{wal}/{1:024X}", 1)
    tape.write(1, 0, b"log")
    tape.create(f"{wal}/xlogtemp.1", 2)
    tape.write(2, 0, bytes(100))
    tape.rename(f"{wal}/xlogtemp.1", f"{wal}/{2:024X}", 2)
    tape.fsync(2)
    tape.fsync_folder(FOLDERS_FROM + 2)
    switch = tape.write(2, 0, b"log")
    tape.fdatasync(2)
    tape.rename(f"{wal}/{1:024X}", f"{wal}/{3:024X}", 1)
    disk = tape.disk(folders=("db", "db/data", wal))
    found = events_of(disk, PostgresqlLogReader(), 0)
    assert [(event.name, len(event.operations)) for event in found] == [
        ("new segment", 3),
        ("WAL switch", 2),
        ("recycle", 1),
    ]
    assert found[1].begin == switch.begin


@pytest.mark.parametrize("model", ["cache", "synced", "torn"])
def test_every_event_is_aimed_at_in_every_phase(model: str) -> None:
    run = view_of(flush_and_compaction())
    assert set(run.events) == {"WAL switch", "memtable flush", "compaction install"}
    aimed = [
        state for seed in range(8) for state in plan_states(run, model, 40, seed) if state.source == "event"
    ]
    phases = {"before the first sync of": "before"}
    for state in aimed:
        where, name = state.why.split(" a ")
        (event,) = run.events[name]
        assert state.position in event.positions(phases.get(where, where))  # type: ignore[arg-type]
    assert len({state.why for state in aimed}) == 9


def test_each_kind_of_event_comes_before_any_comes_twice() -> None:
    run = view_of(flush_and_compaction())
    for model in ("cache", "synced", "torn", "reordered"):
        aimed = [state for state in plan_states(run, model, 60, 3) if state.source == "event"]
        assert len({state.why.split(" a ")[1] for state in aimed[:3]}) == 3
