"""The two checks of a write log: each difference planted and told, and only what was open is excused."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashlab.recording.check import SYNCS_IN_FLIGHT_MAX, SyncCount, check_syncs, check_writes
from crashlab.recording.write_log import Kind
from crashlab.states.disk import FALLOC_KEEP_SIZE
from crashlab.states.lives import lives
from engines.postgresql.log_reader import PostgresqlLogReader
from engines.rocksdb.log_reader import RocksdbLogReader
from tests.crashlab_tests.tapes import Tape

READER = RocksdbLogReader()
WAL, TABLE = 1, 2


@pytest.fixture
def tape() -> Tape:
    tape = Tape()
    tape.create("db/000001.log", WAL)
    tape.write(WAL, 0, b"0123456789")
    tape.create("db/000002.sst", TABLE)
    tape.write(TABLE, 0, b"table")
    return tape


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """The folder as the tape left it."""
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "000001.log").write_bytes(b"0123456789")
    (tmp_path / "db" / "000002.sst").write_bytes(b"table")
    (tmp_path / "db" / "LOG").write_bytes(b"the info log is never in the write log")
    return tmp_path


def faults(tape: Tape, live: Path) -> list[str]:
    return check_writes(tape.disk(folders=("db",)), live, READER)


def test_a_log_that_holds_everything_has_no_fault(tape: Tape, live: Path) -> None:
    assert faults(tape, live) == []


@pytest.mark.parametrize("content", [b"012345678", b"0123456789A", b"0123x56789", b""])
def test_any_byte_that_differs_is_told(tape: Tape, live: Path, content: bytes) -> None:
    (live / "db" / "000001.log").write_bytes(content)
    (fault,) = faults(tape, live)
    assert fault.startswith(f"db/000001.log: {len(content)} bytes live, 10 in the log")


def test_a_file_that_one_side_lacks_is_told(tape: Tape, live: Path) -> None:
    (live / "db" / "000003.log").write_bytes(b"")
    (live / "db" / "000002.sst").unlink()
    assert faults(tape, live) == ["db/000002.sst: only in the log", "db/000003.log: not in the log"]


@pytest.mark.parametrize("kept", [b"", b"ab", b"abcd", b"\0\0cd"])
def test_an_open_write_explains_any_part_of_its_own_bytes(tape: Tape, live: Path, kept: bytes) -> None:
    tape.add(Kind.WRITE, WAL, a=10, data=b"abcd", answered=False)
    (live / "db" / "000001.log").write_bytes(b"0123456789" + kept)
    assert faults(tape, live) == []


@pytest.mark.parametrize(
    "content", [b"0123456789abcdX", b"0123456789aXcd", b"X123456789abcd", b"012345678", b"0123456789abc\x01"]
)
def test_an_open_write_explains_no_other_byte(tape: Tape, live: Path, content: bytes) -> None:
    tape.add(Kind.WRITE, WAL, a=10, data=b"abcd", answered=False)
    (live / "db" / "000001.log").write_bytes(content)
    assert len(faults(tape, live)) == 1


def test_an_open_write_explains_nothing_in_another_file(tape: Tape, live: Path) -> None:
    tape.add(Kind.WRITE, WAL, a=10, data=b"abcd", answered=False)
    (live / "db" / "000002.sst").write_bytes(b"tabl")
    assert len(faults(tape, live)) == 1


@pytest.mark.parametrize(("size", "content"), [(4, b"0123"), (4, b"0123456789"), (14, b"0123456789\0\0\0\0")])
def test_an_open_truncation_explains_both_sizes(tape: Tape, live: Path, size: int, content: bytes) -> None:
    tape.add(Kind.TRUNCATE, WAL, a=size, answered=False)
    (live / "db" / "000001.log").write_bytes(content)
    assert faults(tape, live) == []


@pytest.mark.parametrize(
    ("size", "content"), [(4, b"01X3"), (4, b"012345678X"), (4, b"012"), (14, b"0123456789\0\0\0X")]
)
def test_an_open_truncation_explains_no_other_byte(tape: Tape, live: Path, size: int, content: bytes) -> None:
    tape.add(Kind.TRUNCATE, WAL, a=size, answered=False)
    (live / "db" / "000001.log").write_bytes(content)
    assert len(faults(tape, live)) == 1


def test_an_open_rename_over_a_file_has_happened_or_not(tape: Tape, live: Path) -> None:
    tape.create("db/000009.dbtmp", 3)
    tape.write(3, 0, b"new")
    tape.add(Kind.RENAME, 3, a=WAL, path="db/000009.dbtmp", new_path="db/000001.log", answered=False)
    (live / "db" / "000009.dbtmp").write_bytes(b"new")
    assert faults(tape, live) == []
    (live / "db" / "000009.dbtmp").rename(live / "db" / "000001.log")
    assert faults(tape, live) == []
    (live / "db" / "000001.log").write_bytes(b"neither")
    assert len(faults(tape, live)) > 0


def test_an_open_creation_or_removal_has_happened_or_not(tape: Tape, live: Path) -> None:
    tape.add(Kind.UNLINK, TABLE, path="db/000002.sst", answered=False)
    assert faults(tape, live) == []
    (live / "db" / "000002.sst").unlink()
    assert faults(tape, live) == []
    (live / "db" / "000001.log").unlink()
    assert faults(tape, live) == ["db/000001.log: only in the log"]


def test_an_open_creation_explains_an_empty_file_only(tape: Tape, live: Path) -> None:
    tape.add(Kind.CREATE, path="db/000003.log", answered=False)
    assert faults(tape, live) == []
    (live / "db" / "000003.log").write_bytes(b"")
    assert faults(tape, live) == []
    (live / "db" / "000003.log").write_bytes(b"whence?")
    assert len(faults(tape, live)) == 1


def test_many_faults_are_told_in_part(tape: Tape, live: Path) -> None:
    for number in range(100, 150):
        (live / "db" / f"{number:06d}.log").write_bytes(b"")
    assert len(faults(tape, live)) == 10


# Syncs.


def synced_tape(count: int) -> Tape:
    tape = Tape()
    tape.create("db/000001.log", WAL)
    for _ in range(count):
        tape.write(WAL, 0, b"x")
        tape.fdatasync(WAL)
    tape.create("db/000002.sst", TABLE)
    tape.fsync(TABLE)
    return tape


def sync_faults(tape: Tape, counted: int) -> list[str]:
    end = tape.position + 1
    return check_syncs(lives(tape.disk()), READER, SyncCount(end, counted, end))


def test_syncs_of_logs_are_counted_and_no_others() -> None:
    tape = synced_tape(20)
    assert sync_faults(tape, 20) == []
    assert len(sync_faults(tape, 21)) == 1


def test_a_sync_that_ended_may_not_be_counted_yet() -> None:
    tape = synced_tape(20)
    assert sync_faults(tape, 20 - SYNCS_IN_FLIGHT_MAX) == []
    (fault,) = sync_faults(tape, 20 - SYNCS_IN_FLIGHT_MAX - 1)
    assert fault == "the engine counted 17 log syncs where the write log holds 20 to 20"


def test_syncs_that_the_recorder_missed_are_told() -> None:
    assert len(sync_faults(synced_tape(0), 5)) == 1


def test_syncs_after_the_reading_do_not_count() -> None:
    tape = synced_tape(5)
    position = tape.position + 1
    for _ in range(10):
        tape.fdatasync(WAL)
    assert check_syncs(lives(tape.disk()), READER, SyncCount(position, 5, position)) == []
    assert check_syncs(lives(tape.disk()), READER, SyncCount(position, 15, tape.position)) == []


def test_syncs_beside_a_log_that_nobody_has_written_to_may_count_or_not() -> None:
    """RocksDB makes the next WAL before its rounds take it in; a flush may sync the older one too."""
    tape = Tape()
    tape.create("db/000001.log", 1)
    tape.write(1, 0, b"a")
    tape.create("db/000005.log", 5)
    for _ in range(8):
        tape.fdatasync(1)
    end = tape.position + 1
    for engines_own in (0, 8):
        assert check_syncs(lives(tape.disk()), READER, SyncCount(end, engines_own, end)) == []
    assert len(check_syncs(lives(tape.disk()), READER, SyncCount(end, 9, end))) == 1
    tape.write(5, 0, b"a")
    for _ in range(3):
        tape.fdatasync(1)
    end = tape.position + 1
    # One round may have been about to begin with the older log; the next would have taken in the newer.
    assert check_syncs(lives(tape.disk()), READER, SyncCount(end, 9, end)) == []
    assert len(check_syncs(lives(tape.disk()), READER, SyncCount(end, 10, end))) == 1


def test_a_sync_of_an_older_log_is_not_what_the_engine_counts() -> None:
    """RocksDB ticks once for a round that ends with the newest WAL."""
    tape = Tape()
    tape.create("db/000001.log", 1)
    tape.write(1, 0, b"a")
    tape.create("db/000005.log", 5)
    tape.write(5, 0, b"a")
    for _ in range(8):
        tape.fdatasync(1)
        tape.fdatasync(5)
    end = tape.position + 1
    assert check_syncs(lives(tape.disk()), READER, SyncCount(end, 8, end)) == []
    assert len(check_syncs(lives(tape.disk()), READER, SyncCount(end, 10, end))) == 1
    assert len(check_syncs(lives(tape.disk()), READER, SyncCount(end, 16, end))) == 1


def test_a_log_is_made_room_for_without_a_sync() -> None:
    """FALLOC_FL_KEEP_SIZE is the number that tells a write that is a sync of its own."""
    tape = synced_tape(4)
    tape.add(Kind.FALLOCATE, WAL, b=1 << 20, flags=FALLOC_KEEP_SIZE)
    assert sync_faults(tape, 4) == []
    assert len(sync_faults(tape, 5)) == 1


# Syncs of PostgreSQL's logs: files under names that come and go.


SEGMENTS = [f"db/data/pg_wal/00000001000000000000000{number}" for number in range(1, 4)]


def postgresql_faults(tape: Tape, counted: int) -> list[str]:
    end = tape.position + 1
    return check_syncs(lives(tape.disk()), PostgresqlLogReader(), SyncCount(end, counted, end))


def test_a_segment_that_is_filled_and_synced_before_it_has_its_name_is_not_counted() -> None:
    """PostgreSQL makes a segment under another name, syncs it, and renames it (xlog.c, XLogFileInit)."""
    tape = Tape()
    tape.create("db/data/pg_wal/xlogtemp.77", 1)
    tape.write(1, 0, bytes(64))
    for _ in range(5):
        tape.fsync(1)
    tape.rename("db/data/pg_wal/xlogtemp.77", SEGMENTS[0], 1)
    for _ in range(7):
        tape.write(1, 0, b"record")
        tape.fdatasync(1)
    assert postgresql_faults(tape, 7) == []
    assert len(postgresql_faults(tape, 8)) == 1
    assert len(postgresql_faults(tape, 7 - SYNCS_IN_FLIGHT_MAX - 1)) == 1


def test_a_recycled_segment_is_counted_under_both_of_its_names_and_no_third() -> None:
    tape = Tape()
    tape.create(SEGMENTS[0], 1)
    for _ in range(4):
        tape.write(1, 0, b"record")
        tape.fdatasync(1)
    tape.rename(SEGMENTS[0], "db/data/pg_wal/waiting", 1)
    for _ in range(6):
        tape.fdatasync(1)
    tape.rename("db/data/pg_wal/waiting", SEGMENTS[2], 1)
    for _ in range(5):
        tape.write(1, 0, b"again")
        tape.fdatasync(1)
    assert postgresql_faults(tape, 9) == []
    assert len(postgresql_faults(tape, 10)) == 1
    assert len(postgresql_faults(tape, 9 - SYNCS_IN_FLIGHT_MAX - 1)) == 1


def test_a_write_that_is_its_own_sync_counts_as_one_and_one_of_another_file_does_not() -> None:
    tape = Tape()
    tape.create(SEGMENTS[0], 1)
    tape.create("db/data/base/5/16384", 2)
    for _ in range(6):
        tape.write(1, 0, b"record", own_sync=True)
        tape.write(1, 0, b"record")
        tape.write(2, 0, b"page", own_sync=True)
    assert postgresql_faults(tape, 6) == []
    assert len(postgresql_faults(tape, 7)) == 1
    assert len(postgresql_faults(tape, 6 - SYNCS_IN_FLIGHT_MAX - 1)) == 1
