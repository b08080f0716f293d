"""What PostgreSQL and RocksDB make of one failed sync or write: they stop, refuse, or go on and lose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from crashlab.judging.judge import JudgedState, judge_states
from crashlab.judging.verdict import Verdict
from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.fault import Fault
from crashlab.recording.record import PROVOKE_FAULT, RecordPlan
from crashlab.recording.recorded import Recording
from crashlab.states.plan import PlannedState
from crashlab.subject import Subject
from crashlab.validate import Lab, plan_all
from engines.postgresql.launch import PostgresqlLaunch
from knobs.contract import Contract
from knobs.errors import MachineLacks, Undecided
from tests.crashlab_tests import postgresql_table, rocksdb_table
from tests.crashlab_tests.labs import open_lab
from tests.engines_tests.postgresql_engines import nothing_left

pytestmark = pytest.mark.slow

STRICT, PROCESS = Contract("strict"), Contract("process")
HELD, BROKEN = Verdict.HELD, Verdict.BROKEN
RETRIES = {"data_sync_retry": "on"}
MODELS = {"cache": 3, "synced": 4, "torn": 4, "reordered": 4}


@dataclass(frozen=True)
class Run:
    """A recorded run that met a fault, and its judged states."""

    recording: Recording
    states: list[JudgedState]

    def verdict(self, *models: str) -> Verdict:
        chosen = [state for state in self.states if state.planned.model in models]
        assert chosen
        broken = [state for state in chosen if state.judgement.verdict is not HELD]
        return broken[0].judgement.verdict if broken else HELD

    @property
    def notes(self) -> str:
        return "; ".join(self.recording.facts.notes)


def run(
    lab: Lab,
    subject: Subject,
    fault: Fault,
    folder: Path,
    seed: int,
    contract: Contract = STRICT,
    operations: int = 1_500,
) -> Run:
    plan = RecordPlan(operations=operations, provoke=PROVOKE_FAULT, fault=fault)
    with nothing_left():
        recording = lab.record(subject, contract, plan, folder / "recording", seed)
        # Both checks and the canary are as they are in any run.
        assert recording.facts.faults == ()
        assert recording.struck is not None and recording.facts.fault == str(fault)
        planned = plan_all(recording, MODELS, seed)
        states = list(judge_states(recording, lab.recover(recording, subject, planned), contract))
    return Run(recording, states)


# PostgreSQL.


class Aimed(PreloadRecorder):
    """Counts calls on one file alone, where a role would leave to chance which comes first."""

    def __init__(self, files: str) -> None:
        super().__init__()
        self.files = files

    def fault_environment(self, fault: Fault, files: str) -> dict[str, str]:
        del files
        return super().fault_environment(fault, self.files)


@pytest.fixture(scope="module")
def postgresql_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("faults"), needs_reach=True) as lab:
        yield lab


@pytest.fixture(scope="module")
def postgresql(postgresql_lab: Lab) -> Subject:
    try:
        return postgresql_table.TABLE.subject(postgresql_lab)
    except MachineLacks as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def accounts(postgresql_lab: Lab, postgresql: Subject) -> str:
    """The path of pgbench_accounts, the largest file of the loaded cluster that is no log."""
    folder = postgresql_lab.scratch.folder(postgresql_lab.data, "loaded")
    try:
        launch = postgresql.launch(folder)
        assert isinstance(launch, PostgresqlLaunch)
        postgresql.workload.load(launch, folder, 1)
        data = launch.cluster.data
        largest = max((data / "base").rglob("*"), key=lambda path: path.stat().st_size)
        return f"^db/data/{largest.relative_to(data).as_posix()}$"
    finally:
        postgresql_lab.scratch.remove(folder)


def test_a_server_that_goes_on_over_a_failed_sync_of_a_table_loses_what_it_wrote(
    postgresql_lab: Lab, postgresql: Subject, accounts: str, tmp_path: Path, seed: int
) -> None:
    lab = replace(postgresql_lab, recorder=Aimed(accounts))
    found = run(lab, postgresql.with_settings(RETRIES), Fault("fsync-eio", 1, "relation"), tmp_path, seed)
    struck = found.recording.struck
    assert struck is not None and struck.role == "relation" and struck.call == "fsync"
    assert "checkpoint request failed" in found.notes and "stopped" not in found.notes
    assert struck.checkpoints, "the next one succeeds"
    first = struck.checkpoints[0]
    for state in found.states:
        if state.planned.model == "synced":
            # Before the next checkpoint has been completed the log still brings it back.
            assert state.judgement.verdict is (BROKEN if state.planned.position > first else HELD), state
    assert found.verdict("cache") is HELD, "what is in the page cache can be read"
    assert found.verdict("synced") is BROKEN
    synced = [state for state in found.states if state.planned.model == "synced"]
    last = max(synced, key=lambda state: state.planned.position)
    assert {"lost-ack", "corrupt", "hole"} & set(last.judgement.reasons)


def test_a_server_that_stops_over_a_failed_sync_of_a_table_loses_nothing(
    postgresql_lab: Lab, postgresql: Subject, accounts: str, tmp_path: Path, seed: int
) -> None:
    lab = replace(postgresql_lab, recorder=Aimed(accounts))
    found = run(lab, postgresql, Fault("fsync-eio", 1, "relation"), tmp_path, seed)
    struck = found.recording.struck
    assert struck is not None and struck.checkpoints == (), "it does not start again"
    assert f"the engine stopped after the fault at position {struck.operation.begin}" in found.notes
    assert "PANIC" in found.notes and "could not fsync file" in found.notes
    assert found.verdict(*MODELS) is HELD
    assert found.recording.audit.acks > 0


@pytest.mark.parametrize("settings", [{}, RETRIES], ids=["default", "data_sync_retry=on"])
@pytest.mark.parametrize("fault", [Fault("fsync-eio", 30, "wal"), Fault("enospc", 30, "wal")], ids=str)
def test_a_server_never_goes_on_over_its_log(
    postgresql_lab: Lab,
    postgresql: Subject,
    fault: Fault,
    settings: dict[str, str],
    tmp_path: Path,
    seed: int,
) -> None:
    found = run(postgresql_lab, postgresql.with_settings(settings), fault, tmp_path, seed)
    assert "PANIC" in found.notes
    assert found.recording.struck is not None and found.recording.struck.role == "wal"
    assert found.verdict(*MODELS) is HELD


def test_a_table_that_cannot_grow_fails_one_transaction(
    postgresql_lab: Lab, postgresql: Subject, tmp_path: Path, seed: int
) -> None:
    found = run(postgresql_lab, postgresql, Fault("enospc", 5, "relation"), tmp_path, seed)
    assert "stopped" not in found.notes
    assert found.verdict(*MODELS) is HELD


def test_a_fault_that_no_call_reaches_is_undecided(
    postgresql_lab: Lab, postgresql: Subject, tmp_path: Path, seed: int
) -> None:
    unsynced = postgresql.with_settings({"fsync": "off"})
    with nothing_left(), pytest.raises(Undecided, match="never reached: the load made 0 syncs"):
        plan = RecordPlan(operations=200, provoke="flush@0.5", fault=Fault("fsync-eio", 1))
        postgresql_lab.record(unsynced, STRICT, plan, tmp_path / "recording", seed)


# RocksDB.


@pytest.fixture(scope="module")
def rocksdb_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("faults")) as lab:
        yield lab


@pytest.mark.parametrize(
    "fault",
    [
        Fault("fsync-eio", 40, "wal"),
        Fault("enospc", 40, "wal"),
        Fault("fsync-eio", 1, "table"),
        Fault("enospc", 1, "table"),
        Fault("fsync-eio", 1, "manifest"),
        Fault("enospc", 1, "manifest"),
    ],
    ids=str,
)
def test_rocksdb_acknowledges_nothing_over_a_failure(
    rocksdb_lab: Lab, fault: Fault, tmp_path: Path, seed: int
) -> None:
    found = run(rocksdb_lab, rocksdb_table.subject((rocksdb_table.SYNC,)), fault, tmp_path, seed)
    struck = found.recording.struck
    assert struck is not None and struck.role == fault.role
    # Of a disk that was full RocksDB may think that it has room again, and go on behind a new log.
    assert "provoking flush failed: IO error" in found.notes or fault.kind == "enospc"
    audit = found.recording.audit
    assert audit.acks == audit.covered > 0
    assert found.verdict(*MODELS) is HELD


@pytest.mark.parametrize("nth", [2, 4])
def test_an_application_that_syncs_the_log_now_and_then_loses_no_middle(
    rocksdb_lab: Lab, nth: int, tmp_path: Path, seed: int
) -> None:
    """RocksDB counts further syncs that it does not even try: the count is one of before the failure."""
    subject = rocksdb_table.subject((("Application.sync_wal_every_ms", "20"),))
    found = run(rocksdb_lab, subject, Fault("fsync-eio", nth, "wal"), tmp_path, seed, PROCESS, 30_000)
    assert found.verdict(*MODELS) is HELD


# A fault that is planted in the judgement.


def test_an_engine_that_acknowledged_over_a_failed_sync_would_be_broken(
    rocksdb_lab: Lab, tmp_path: Path, seed: int
) -> None:
    """The failed sync taken for one of the middle of a run whose engine was told nothing."""
    subject = rocksdb_table.subject((rocksdb_table.SYNC,))
    plan = RecordPlan(operations=1_500, provoke="")
    recording = rocksdb_lab.record(subject, STRICT, plan, tmp_path / "recording", seed)
    syncs = [
        each
        for each in recording.disk.syncs
        if each.begin > recording.facts.first_position and recording.role_of(each) == "wal"
    ]
    failing = syncs[len(syncs) // 2].begin
    disk = recording.disk
    file = disk.file_of(next(sync for sync in syncs if sync.begin == failing))
    assert file is not None
    (failed,) = (sync for sync in file.syncs if sync.begin == failing)
    file.syncs.remove(failed)
    disk.syncs.remove(failed)
    file.failed_syncs.append(replace(failed, result=-5))
    planned = [PlannedState("synced", recording.timeline.last_position, 1, "fault", "the end")]
    (judged,) = judge_states(recording, rocksdb_lab.recover(recording, subject, planned), STRICT)
    assert judged.judgement.verdict is BROKEN and "lost-ack" in judged.judgement.reasons
