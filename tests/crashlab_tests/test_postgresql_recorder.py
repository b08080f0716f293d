"""A recorder that is not in every process of PostgreSQL, or misses a call, decides nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from crashlab.judging.evidence import CrashEvidence
from crashlab.judging.judge import judge_states
from crashlab.judging.verdict import Verdict
from crashlab.kill import MeasurePlan
from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.record import RecordPlan
from crashlab.recording.recorded import Recording, load_owners
from crashlab.states.plan import PlannedState
from crashlab.subject import Subject
from crashlab.validate import Lab, plan_all
from engines.postgresql.integrity import INDEXES
from engines.postgresql.launch import PostgresqlLaunch
from engines.postgresql.session import ConnectionLost, Session
from knobs.contract import Contract
from knobs.errors import MachineLacks, Undecided
from tests.crashlab_tests import postgresql_table
from tests.crashlab_tests.labs import open_lab
from tests.crashlab_tests.preload_tests.programs import SOURCES, build_recorder, compile_c
from tests.crashlab_tests.runs import RIGHT
from tests.crashlab_tests.test_validation import DroppingRecorder
from tests.engines_tests.postgresql_engines import nothing_left
from workloads.pgbench.run import PgbenchRun
from workloads.pgbench.workload import PgbenchWorkload
from workloads.workload import Plan

pytestmark = pytest.mark.slow

STRICT = Contract("strict")
UNKNOWN, HELD = Verdict.UNKNOWN, Verdict.HELD
MEASURE = MeasurePlan(warmup_s=0.1, measure_s=0.3)
RECORD = RecordPlan(operations=200, log_bytes=128 << 20, provoke="flush@0.5")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("recorder"), needs_reach=True) as lab:
        yield lab


@pytest.fixture(scope="module")
def honest(lab: Lab) -> Subject:
    try:
        return postgresql_table.TABLE.subject(lab)
    except MachineLacks as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def dropping(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("dropping")
    canary = compile_c(folder / "duratune-canary", [SOURCES / "canary.c"])
    return build_recorder(folder / "libduratune_record.so", "-DDURATUNE_TEST_DROP"), canary


# Without a write log.


def test_a_measured_and_killed_run_is_held(lab: Lab, honest: Subject) -> None:
    with nothing_left():
        killed = lab.measure(honest, MEASURE, 1)
    judgement = killed.judge(STRICT)
    assert (judgement.verdict, killed.faults) == (HELD, ())
    measured = killed.measured
    assert measured["operations"] == measured["per_operation"]["TRANSACTION"]["count"] > 0
    assert killed.throughput == pytest.approx(measured["operations"] / measured["seconds"])
    # More was acknowledged than was measured: before the window, and behind it until the kill.
    assert judgement.acks > measured["operations"] and judgement.decidable == judgement.acks
    assert honest.engine.in_force(killed.effective)["synchronous_commit"] == "on"
    replay = killed.replay
    # Right after a checkpoint every page comes whole.
    assert replay is not None and 0 < replay.image_bytes < replay.log_bytes < 2 * replay.image_bytes
    longest = honest.engine.longest_replay(killed.effective, replay)
    assert longest is not None and replay.log_bytes < longest.log_bytes <= 1 << 30
    assert replay.redo_s <= longest.redo_s and replay.written_s > MEASURE.measure_s


@dataclass(frozen=True)
class Strange(PgbenchWorkload):
    """pgbench with a process beside it, of the server's own making, that the library was kept out of."""

    def start(
        self,
        launch: PostgresqlLaunch,
        plan: Plan,
        folder: Path,
        ledger: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> PgbenchRun:
        run = super().start(launch, plan, folder, ledger, environment)
        try:
            begin_strange_process(run, launch)
        except BaseException:
            # The caller never sees this run.
            run.__exit__(None, None, None)
            raise
        return run


def begin_strange_process(run: PgbenchRun, launch: PostgresqlLaunch) -> None:
    """A forked process reports as its parent does, so it needs a parent that does not."""
    # A backend's folder is the cluster's data.
    command = "env -u LD_PRELOAD sh -c ''sleep 60 & touch begun; wait''"
    threading.Thread(target=hold, args=(run, f"COPY (SELECT 1) TO PROGRAM '{command}'"), daemon=True).start()
    ends_s = time.monotonic() + 30.0
    while not (launch.cluster.data / "begun").exists():
        assert time.monotonic() < ends_s, "the process does not begin"
        time.sleep(0.01)


def hold(run: PgbenchRun, statement: str) -> None:
    """The statement does not end before its server does."""
    with pytest.raises(ConnectionLost), Session(run.server.address) as session:
        session.query(statement, deadline_s=60.0)


def test_a_process_without_the_library_makes_a_kill_unknown(lab: Lab, honest: Subject) -> None:
    assert isinstance(honest.workload, PgbenchWorkload)
    strange = replace(honest, workload=Strange(honest.workload.name, honest.workload.options))
    with nothing_left():
        killed = lab.measure(strange, MEASURE, 1)
    assert killed.faults
    assert all(fault.startswith("the recorder did not report in from process") for fault in killed.faults)
    judgement = killed.judge(STRICT)
    assert judgement.verdict is UNKNOWN and "did not report in" in judgement.unknown_why
    assert killed.throughput > 0, "what was measured stands"


class Absent(PreloadRecorder):
    """A recorder whose library the loader does not find, which it only mentions."""

    def acks_environment(self, ledger: Path, processes: Path) -> dict[str, str]:
        known = super().acks_environment(ledger, processes)
        return {name: value for name, value in known.items() if name != "DURATUNE_RECORD_PROCESSES"}


def test_a_recorder_that_reports_nowhere_makes_a_kill_unknown(lab: Lab, honest: Subject) -> None:
    killed = replace(lab, recorder=Absent()).measure(honest, MEASURE, 1)
    assert len(killed.faults) > 5, "every process of the server"
    assert killed.judge(STRICT).verdict is UNKNOWN


class Deaf(PreloadRecorder):
    """A recorder that reports, but stamps nothing."""

    def acks_environment(self, ledger: Path, processes: Path) -> dict[str, str]:
        return {**super().acks_environment(ledger, processes), "DURATUNE_TEST_DROP": "recv"}


def test_a_ledger_without_stamps_disagrees_with_pgbench(
    lab: Lab, honest: Subject, dropping: tuple[Path, Path]
) -> None:
    killed = replace(lab, recorder=Deaf(*dropping)).measure(honest, MEASURE, 1)
    assert len(killed.faults) == honest.threads
    assert all("0 acknowledged transactions in the ledger" in fault for fault in killed.faults)
    assert killed.judge(STRICT).verdict is UNKNOWN


# With a write log.


def recorded(lab: Lab, tested: Subject, folder: Path) -> Recording:
    with nothing_left():
        return lab.record(tested, STRICT, RECORD, folder / "recording", 1)


def test_an_honest_recording_is_believed_and_its_states_are_held(
    lab: Lab, honest: Subject, tmp_path: Path
) -> None:
    recording = recorded(lab, honest, tmp_path)
    assert (recording.facts.faults, recording.facts.notes) == ((), ())
    assert recording.facts.register_per_write and recording.facts.initial_records == 0
    audit = recording.audit
    assert audit.acks >= 200 and (audit.covered, audit.exposed, audit.unlocated) == (audit.acks, 0, 0)
    assert len(load_owners(recording.folder)) >= audit.acks
    middle = (recording.facts.first_position + recording.timeline.last_position) // 2
    planned = [PlannedState(model, middle, 1, "uniform", "a test") for model in ("cache", "synced", "torn")]
    states = list(judge_states(recording, lab.recover(recording, honest, planned), STRICT))
    assert [state.judgement.verdict for state in states] == [HELD] * 3
    assert all(state.judgement.acks > 50 and state.checks for state in states)
    # From what is on the disk alone: the same recording, opened again.
    again = Recording(recording.folder, honest.engine.log_reader)
    assert (again.audit.acks, again.audit.covered) == (audit.acks, audit.covered)


@pytest.mark.parametrize(
    ("call", "fault"), [("fdatasync", "syncs: the engine counted "), ("pwrite", "writes: ")]
)
def test_a_recorder_that_misses_a_call_of_the_servers_is_not_believed(
    lab: Lab, honest: Subject, dropping: tuple[Path, Path], call: str, fault: str, tmp_path: Path
) -> None:
    """The canary's own calls are not missed, so it is the checks of the log that tell."""
    blind = replace(lab, recorder=DroppingRecorder(*dropping, call, spares_canary=True))
    recording = recorded(blind, honest, tmp_path)
    assert [each for each in recording.facts.faults if each.startswith(fault)]
    assert not any(each.startswith("canary") for each in recording.facts.faults)
    assert plan_all(recording, {"synced": 3}, 1) == []
    found = CrashEvidence(None, recording, [], RIGHT).under(STRICT)
    assert (found.verdict, found.power_cut.verdict) == (UNKNOWN, UNKNOWN)
    assert "not believed" in found.power_cut.unknown_why


# Loads of every kind.

WRITER_SQL = """
CREATE TABLE t (a numeric);
CREATE FUNCTION place(v int) RETURNS void LANGUAGE sql AS 'INSERT INTO t VALUES (v)';
CREATE ROLE writer; GRANT ALL ON t TO writer;
"""


def of_script(honest: Subject, script: str) -> Subject:
    assert isinstance(honest.workload, PgbenchWorkload)
    return replace(honest, workload=honest.workload.with_options(script=script, init_sql=WRITER_SQL))


def test_what_fails_is_no_acknowledgement_and_spoils_no_run(
    lab: Lab, honest: Subject, tmp_path: Path
) -> None:
    """Clients that get into each other's way, in the short first load too."""
    settings = {"default_transaction_isolation": "serializable"}
    recording = recorded(lab, replace(honest, settings=settings, threads=8), tmp_path)
    assert recording.facts.faults == ()
    audit = recording.audit
    assert (audit.covered, audit.unlocated) == (audit.acks, 0) and audit.acks > 100
    assert len(recording.history) > audit.acks + 8, "more failed than were under way at the kill"


@pytest.mark.parametrize(
    "script",
    [
        "\\set n random(1, 3)\nBEGIN;\nSELECT 1;\n\\if :n = 1\nROLLBACK;\n\\else\n"
        "INSERT INTO t VALUES (1);\nCOMMIT;\n\\endif\n",
        "SELECT 1 AS n \\gset\nBEGIN; INSERT INTO t VALUES (:n); SELECT 1 \\; SELECT 2; COMMIT;",
        "SELECT place(1);",
        "SET ROLE writer; INSERT INTO t VALUES (1); RESET ROLE;",
    ],
    ids=["conditional", "gset", "by a function", "as another role"],
)
def test_scripts_of_every_kind_are_recorded(lab: Lab, honest: Subject, tmp_path: Path, script: str) -> None:
    recording = recorded(lab, of_script(honest, script), tmp_path)
    assert recording.facts.faults == ()
    assert recording.audit.covered == recording.audit.acks > 50


def test_numbers_of_the_scripts_that_look_like_tokens_are_told(
    lab: Lab, honest: Subject, tmp_path: Path
) -> None:
    script = (
        "\\set n random(1000, 2000)\nINSERT INTO t VALUES (7000001000000000000 + :n), (7000001000000000999);"
    )
    with pytest.raises(Undecided, match="look like duratune's tokens"):
        recorded(lab, of_script(honest, script), tmp_path)


# amcheck computes each index entry again: here that takes longer than the time limit, and spills.
LONG_LOOK_SQL = """
CREATE TABLE t (a numeric);
CREATE FUNCTION long_look(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
PERFORM pg_sleep(0.5); PERFORM n FROM generate_series(1, 1000000) AS n; RETURN v; END $$;
CREATE TABLE looked_at AS SELECT 1 AS v;
CREATE INDEX ON looked_at (long_look(v));
"""


@pytest.mark.parametrize(
    ("limit", "value", "lifted"), [("statement_timeout", "100ms", "0"), ("temp_file_limit", "0", "-1")]
)
def test_a_limit_of_the_candidates_ends_no_look_at_its_data(
    lab: Lab, honest: Subject, limit: str, value: str, lifted: str
) -> None:
    """A role's limit is in force in the server with neutral settings too. The clients lift theirs themselves.

    Each single limit, in a session: tests/engines_tests/test_postgresql_session.py.
    """
    assert isinstance(honest.workload, PgbenchWorkload)
    load = honest.workload.with_options(
        script=f"SET {limit} = {lifted}; INSERT INTO t VALUES (1);",
        init_sql=f"{LONG_LOOK_SQL}ALTER ROLE postgres SET {limit} = '{value}';",
    )
    killed = lab.measure(replace(honest, workload=load), MEASURE, 1)
    assert killed.recovered is not None and INDEXES in killed.recovered.checks
    assert (killed.recovered.stage, killed.recovered.error) == ("", "")
