"""A fault as it is asked for, what a run that meets one comes to, and where its crash states are planned."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import pytest

from crashlab.models import MODELS
from crashlab.recording.fault import NTH_MAX, Fault, FaultSwitch
from crashlab.recording.record import Awaited, RecordPlan, await_recorded
from crashlab.recording.recorded import Recording
from crashlab.recording.write_log import BLOCK_BYTES, Kind, WriteLog
from crashlab.states.plan import plan_states
from engines.engine import FileRole, LogReader
from engines.postgresql.log_reader import PostgresqlLogReader
from engines.postgresql.refusal import ServerDied
from engines.process import DeadlinePassed
from engines.rocksdb.log_reader import RocksdbLogReader
from knobs.errors import DuratuneError, InvalidInput, Undecided
from tests.crashlab_tests.histories import W, history
from tests.crashlab_tests.runs import recording
from tests.crashlab_tests.tapes import Tape
from tests.crashlab_tests.test_recording import REACHED, Scripted
from workloads.ledger import Ledger
from workloads.workload import Event

READERS: dict[str, LogReader] = {"postgresql": PostgresqlLogReader(), "rocksdb": RocksdbLogReader()}

# What is asked for.


@pytest.mark.parametrize(
    ("text", "engine", "wanted", "calls"),
    [
        ("fsync-eio@1", "rocksdb", Fault("fsync-eio", 1), "syncs"),
        ("enospc@12:wal", "rocksdb", Fault("enospc", 12, "wal"), "writes of wal files"),
        ("fsync-eio@3:relation", "postgresql", Fault("fsync-eio", 3, "relation"), "syncs of relation files"),
        (f"enospc@{NTH_MAX}:control", "postgresql", Fault("enospc", NTH_MAX, "control"), "writes of control"),
    ],
)
def test_a_fault_is_read_as_it_is_written(text: str, engine: str, wanted: Fault, calls: str) -> None:
    read = Fault.parse(text, READERS[engine], engine)
    assert (read, str(read)) == (wanted, text) and read.calls.startswith(calls)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no fault"),
        ("fsync-eio", "is no fault"),
        ("fsync-eio@", "is no fault"),
        ("fsync-eio@x", "is no fault"),
        ("fsync-eio@-1", "is no fault"),
        ("fsync-eio@1.5", "is no fault"),
        ("fsync-eio@1:", "is no fault"),
        ("fsync-eio@1:wal:wal", "is no fault"),
        ("fsync-eio@1 ", "is no fault"),
        ("fsync@1", "is no fault"),
        ("fsync-eio@0", "there is no sync number 0"),
        (f"enospc@{NTH_MAX + 1}", f"there is no write number {NTH_MAX + 1}"),
        ("fsync-eio@1:relation", "'relation' is no role of a recorded file of rocksdb"),
        ("fsync-eio@1:lock", "'lock' is no role of a recorded file"),
        ("fsync-eio@1:other", "'other' is no role of a recorded file"),
    ],
)
def test_what_is_no_fault_is_told_with_what_is_one(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Fault.parse(text, READERS["rocksdb"], "rocksdb")
    assert said in refused.value.what
    assert refused.value.where == "--fault" and refused.value.hint


POSTGRESQL_PATHS = """
db/data/pg_wal/000000010000000000000002 db/data/pg_wal/xlogtemp.12 db/data/pg_wal/00000001000000000000000G
db/data/pg_wal/archive_status/000000010000000000000002.done db/data/global/pg_control db/data/global/1260
db/data/global/1260_vm db/data/global/pg_filenode.map db/data/global/pg_filenode.map.tmp
db/data/global/pg_internal.init db/data/base/5/16398 db/data/base/5/16398.1 db/data/base/5/16398_fsm
db/data/base/5/16398_fsm.2 db/data/base/5/t3_16400 db/data/base/5/pg_internal.init.77 db/data/base/5/x16398
db/data/base/pgsql_tmp/pgsql_tmp1.0 db/data/pg_tblspc/1/PG_15_202209061/5/16398 db/data/pg_xact/0000
db/data/pg_multixact/offsets/0000 db/data/pg_subtrans/0000 db/data/pg_commit_ts/0000 db/data/postmaster.pid
db/data/pg_notify/0000 db/data/pg_stat/pgstat.stat db/data/postgresql.conf db/data/postgresql.auto.conf.tmp
db/data/PG_VERSION db/data/base/5/PG_VERSION db/server.log data/base/5/16398 base/5/16398 other
"""
ROCKSDB_PATHS = """
db/000012.log db/000012.sst db/000012.blob db/MANIFEST-000005 db/CURRENT db/000005.dbtmp db/OPTIONS-000007
db/OPTIONS-000007.dbtmp db/IDENTITY db/LOCK db/LOG db/LOG.old.17 db/CURRENT.bak db/x000012.log
db/archive/000012.log 000012.log db/000012.log.old
"""


@pytest.mark.parametrize(
    ("engine", "paths"), [("postgresql", POSTGRESQL_PATHS), ("rocksdb", ROCKSDB_PATHS)], ids=str.lower
)
def test_the_expression_for_a_role_fits_the_files_of_that_role(engine: str, paths: str) -> None:
    """As the C library reads it, of which grep makes the same use."""
    reader, names = READERS[engine], paths.split()
    tried = 0
    for role in get_args(FileRole):
        expression = reader.files_of(role)
        if expression:
            found = subprocess.run(
                ["grep", "-E", "-e", expression],
                input="\n".join(names),
                capture_output=True,
                text=True,
                check=True,
            ).stdout.split()
            wanted = [name for name in names if reader.role(name) == role and "_fsm" not in name]
            assert found == wanted, role
            tried += 1
    assert tried >= 6


# The run.

PLAN = RecordPlan(
    operations=100, provoke="flush@0.5,flush@1", deadline_s=5.0, fault=Fault("fsync-eio", 3, "wal")
)


def flushed(begin: int, error: str = "") -> Event:
    return {
        "event": "provoked",
        "what": "flush",
        "error": error,
        "begin_position": begin,
        "end_position": begin + 5,
    }


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "write.log"
    WriteLog.create(path, 4 * BLOCK_BYTES)
    return path


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(tmp_path / "ledger", 1, 10) as ledger:
        yield ledger


def awaited(
    log: Path, ledger: Ledger, *events: Event | DuratuneError, position: int = 0, count: int = 0
) -> Awaited:
    """What the run comes to whose fault has struck at the position."""
    with log.open("r+b") as file:
        file.seek(264)
        file.write(count.to_bytes(8, "little") + position.to_bytes(8, "little"))
    with FaultSwitch(log) as switch:
        assert (switch.count, switch.position) == (count, position)
        return await_recorded(Scripted(*events), ledger, PLAN, switch)


PANIC = ServerDied(
    "checkpointer was terminated by signal 6", where="server", hint="PANIC:  could not\n  fsync"
)


@pytest.mark.parametrize(
    "ends",
    [
        PANIC,
        InvalidInput("pgbench ended: connection lost", where="pgbench"),
        {"event": "stopped", "why": "connection-lost", "last_error": "IO error"},
    ],
    ids=["the server", "its client", "the driver"],
)
def test_an_engine_that_stops_after_the_fault_is_told_and_no_error(
    ends: Event | DuratuneError, log: Path, ledger: Ledger
) -> None:
    (note,) = awaited(log, ledger, ends, position=55).notes
    assert note.startswith("the engine stopped after the fault at position 55: ") and "\n" not in note
    assert any(words in note for words in ("signal 6; PANIC: could not; fsync", "pgbench ended", "IO error"))


def test_an_engine_that_stops_before_the_fault_is_an_error_as_ever(log: Path, ledger: Ledger) -> None:
    with pytest.raises(ServerDied):
        awaited(log, ledger, PANIC)


def test_an_engine_that_goes_on_is_watched_until_its_last_checkpoint(log: Path, ledger: Ledger) -> None:
    found = awaited(log, ledger, flushed(50, "failed"), flushed(60), REACHED, position=55)
    assert found == Awaited(("provoking flush failed: failed",), 65)


def test_what_is_said_again_and_again_is_told_once(log: Path, ledger: Ledger) -> None:
    found = awaited(log, ledger, flushed(56, "read only"), flushed(60, "read only"), REACHED, position=55)
    assert found.notes == ("provoking flush failed: read only (2 times)",)


def test_a_fault_behind_the_last_checkpoint_decides_nothing(log: Path, ledger: Ledger) -> None:
    with pytest.raises(Undecided, match="behind the last checkpoint of the run") as late:
        awaited(log, ledger, flushed(40), flushed(50), REACHED, position=55)
    assert "smaller N" in late.value.hint


@pytest.mark.parametrize(("count", "hint"), [(2, "choose N from 1 to 2"), (0, "choose another fault")])
def test_a_fault_that_is_never_reached_decides_nothing(
    count: int, hint: str, log: Path, ledger: Ledger
) -> None:
    with pytest.raises(Undecided, match=f"never reached: the load made {count} syncs of wal files") as missed:
        awaited(log, ledger, flushed(40), flushed(50), REACHED, count=count)
    assert hint in missed.value.hint


def test_a_stalled_engine_is_late_with_a_fault_too(log: Path, ledger: Ledger) -> None:
    with pytest.raises(DeadlinePassed, match="0 of 2 provocations"):
        awaited(log, ledger, REACHED, position=55)


# The recording.


def struck_run(checkpoints: int, *, open_ended: bool = False) -> tuple[Recording, int, Sequence[int]]:
    """A run whose second sync of a table fails; then so many syncs of the manifest. The fault's begin, and
    the ends of these."""
    tape = Tape()
    tape.create("db/MANIFEST-000001", 1)
    tape.create("db/000007.dbtmp", 2)
    tape.fsync_folder()
    tape.fsync(1)
    first_position = tape.position
    tape.write(2, 0, b"table")
    tape.rename("db/000007.dbtmp", "db/000007.sst", 2)
    failed = tape.add(Kind.FSYNC, 2, result=-errno.EIO)
    tape.rename("db/000007.sst", "db/000008.sst", 2)
    ends = []
    for number in range(checkpoints):
        tape.write(1, 10 * number, b"edit")
        end = tape.fsync(1).end
        assert end is not None
        ends.append(end)
    if open_ended:
        tape.add(Kind.FSYNC, 1, answered=False)
    made = recording(
        tape.disk(),
        history([W(1, 0, tape.begin(), tape.begin())]),
        first_position=first_position,
        fault="fsync-eio@2:table",
        fault_position=failed.begin,
    )
    vars(made)["log"] = made.disk  # it has the operations, which is all that is asked of a log here
    return made, failed.begin, ends


def test_a_fault_is_told_by_the_name_that_its_file_had_then() -> None:
    made, position, ends = struck_run(2, open_ended=True)
    assert made.struck is not None
    told = made.struck.as_json()
    assert told == {
        "asked": "fsync-eio@2:table",
        "call": "fsync",
        "position": position,
        "file": "db/000007.sst",
        "role": "table",
        "after_ms": told["after_ms"],
        "checkpoints": list(ends),
    }
    assert told["after_ms"] > 0
    assert f"fsync of db/000007.sst (table) failed at position {position}" in made.struck.in_words()


def test_a_run_without_a_fault_has_none() -> None:
    made = recording(Tape().disk(), history([]))
    assert made.struck is None


@pytest.mark.parametrize("checkpoints", [0, 1, 2, 5])
@pytest.mark.parametrize("states", [1, 3, 30])
@pytest.mark.parametrize("model", ["cache", "synced", "torn"])
def test_states_are_planned_where_a_fault_shows_whatever_the_budget(
    model: str, states: int, checkpoints: int
) -> None:
    made, position, ends = struck_run(checkpoints)
    planned = plan_states(made.view, model, states, 1)
    wanted = {position + 2, *(end + 1 for end in (*ends[:1], *ends[-1:])), made.timeline.last_position}
    assert {state.position for state in planned if state.source == "fault"} == wanted
    assert len({state.position for state in planned}) == len(planned) <= max(states, len(wanted))
    assert model in MODELS
