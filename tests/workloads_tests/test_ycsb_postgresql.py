"""Real runs on real PostgreSQL servers: what was acknowledged survives a kill, what failed never was."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crashlab.judging.oracle import Cut, History, judge
from crashlab.judging.verdict import Judgement, Verdict
from engines.postgresql.launch import PostgresqlLaunch
from engines.postgresql.refusal import ServerDied
from engines.postgresql.session import Session, conninfo
from engines.rocksdb.launch import RocksdbLaunch
from knobs.contract import Contract
from knobs.errors import InvalidInput, Undecided
from tests.workloads_tests.ycsb_lab import DEADLINE_S, NO_SERVER, Lab, bindirs, lab, ycsb
from workloads.ledger import (
    ACKNOWLEDGED,
    FAILED,
    KIND_INSERT,
    KIND_READ_MODIFY_WRITE,
    KIND_UPDATE,
    STOP_LEDGER_FULL,
    Entries,
    Ledger,
)
from workloads.workload import CHECKSUM_RIGHT, EFFECTIVE_NAME, HEADER_READABLE, Plan, Recovered
from workloads.ycsb.driver import DriverProcess, write_spec
from workloads.ycsb.keys import field_name, key_name
from workloads.ycsb.postgresql import statements_acknowledged
from workloads.ycsb.postgresql_reader import PostgresqlYcsbReader
from workloads.ycsb.spec import run_spec
from workloads.ycsb.workload import YcsbWorkload

pytestmark = pytest.mark.slow

FIELDS = 10
SOUND = 7  # header readable, checksum right, key matches


def bare(threads: int, seed: int, **more: Any) -> Plan:
    """A plan without the short load that a recorded run begins with."""
    return Plan(threads, seed, ticker_ms=0, **more)


@pytest.fixture(scope="module", params=[*bindirs(), *NO_SERVER], ids=str)
def servers(request: pytest.FixtureRequest, program: Path) -> Iterator[Lab]:
    assert program.is_file()
    with lab(request.param) as made:
        yield made


def judged(entries: Entries, recovered: Recovered, workload: YcsbWorkload, cut: int, ns: int) -> Judgement:
    history = History(entries, workload.initial_records)
    return judge(history, recovered.neutral, Cut(cut, ns), Contract("strict"), "process-crash")


def killed(
    servers: Lab,
    workload: YcsbWorkload,
    settings: dict[str, str],
    plan: Plan,
    launch: PostgresqlLaunch | None = None,
) -> tuple[Entries, Recovered, Judgement, dict[str, Any]]:
    """A run that is killed once its operations are done, its clone recovered and judged."""
    launch = launch or servers.loaded(workload, settings)
    positions: list[int] = []
    with servers.running(workload, launch, plan) as (run, ledger):
        measured = run.wait_for("measured", DEADLINE_S)
        run.wait_for("reached", DEADLINE_S)
        at_ns = run.kill(lambda: positions.append(ledger.position)).at_ns
        assert run.finished and run.faults() == []
        assert run.events[-1]["event"] == "stopped" and run.events[-1]["why"] == "connection-lost"
        assert run.wait() == 0
        entries = ledger.entries()
    recovered = workload.verify(servers.clone(launch), launch.database.parent, DEADLINE_S)
    assert (launch.database.parent / EFFECTIVE_NAME).read_text().startswith("{")
    return entries, recovered, judged(entries, recovered, workload, positions[0], at_ns), measured


@pytest.mark.parametrize("letter", "abcdef")
def test_killed_in_the_middle_every_acknowledged_write_is_there(servers: Lab, letter: str) -> None:
    workload = ycsb(letter)
    plan = bare(3, 1, operations=1_500)
    entries, recovered, judgement, measured = killed(servers, workload, {}, plan)
    assert (recovered.recovered, recovered.stage, recovered.error) == (True, "", "")
    assert set(recovered.neutral["flags"].tolist()) == {SOUND}
    assert np.array_equal(recovered.candidate, recovered.neutral)
    assert judgement.verdict is Verdict.HELD, judgement
    assert judgement.lost == judgement.lost_initial == 0
    assert set(range(300 * FIELDS)) <= set(recovered.neutral["key"].tolist())
    kinds = {"d": {KIND_INSERT}, "e": {KIND_INSERT}, "f": {KIND_READ_MODIFY_WRITE}, "c": set[int]()}
    assert set(entries.kind.tolist()) == kinds.get(letter, {KIND_UPDATE})
    assert (judgement.acks > 0) == (letter != "c")
    for numbers in measured["per_operation"].values():
        assert numbers["errors"] == numbers["returns"]["NOT_FOUND"] == 0 < numbers["count"]


def test_what_is_lost_is_seen(servers: Lab) -> None:
    """The control of the test above: PostgreSQL empties an unlogged table after a crash."""
    workload = ycsb("a")
    launch = servers.loaded(workload)
    with servers.serving(launch) as server, Session(server.address) as session:
        session.query("alter table usertable set unlogged")
        session.close()
        server.stop()
    plan = bare(2, 1, operations=600)
    _, recovered, judgement, _ = killed(servers, workload, {}, plan, launch)
    assert recovered.recovered and len(recovered.neutral) == 0
    assert judgement.verdict is Verdict.BROKEN and judgement.reasons == ("lost-ack",)
    assert judgement.lost == judgement.acks > 200
    assert judgement.lost_initial == 300 * FIELDS


def test_an_insert_has_an_entry_for_each_field(servers: Lab) -> None:
    workload = ycsb("d", insertproportion=0.5)
    launch = servers.loaded(workload)
    plan = bare(2, 3, operations=200, stop_after=True)
    with servers.running(workload, launch, plan) as (run, ledger):
        closed = run.wait_for("closed", DEADLINE_S)
        entries = ledger.entries()
        assert ledger.operations == closed["operations"] == 200
    assert len(entries) == FIELDS * sum(closed["written"]) > 0
    nth = (entries.extra >> np.uint64(32)).astype(int)
    assert nth.tolist() == list(range(FIELDS)) * sum(closed["written"])
    assert (entries.register.astype(int) % FIELDS == nth).all()
    assert statements_acknowledged(entries, 2) == closed["written"]
    keys = entries.register[nth == 0] // FIELDS
    assert sorted(keys.tolist()) == list(range(300, 300 + len(keys)))
    # All fields of one insert share its fate: each has begun before any is acknowledged.
    begins, ends = (column.reshape(-1, FIELDS) for column in (entries.begin, entries.end))
    assert (begins.max(axis=1) <= ends.min(axis=1)).all()


@pytest.mark.parametrize("letter", "adf")
def test_the_same_seed_asks_the_same_of_both_engines(servers: Lab, letter: str, tmp_path: Path) -> None:
    plan = bare(1, 7, operations=300, stop_after=True)
    workload = ycsb(letter)
    launch = servers.loaded(workload)
    with servers.running(workload, launch, plan) as (run, ledger):
        run.wait_for("closed", DEADLINE_S)
        here = ledger.entries()
    plain = workload.on("rocksdb")
    rocksdb = RocksdbLaunch(tmp_path / "db")
    plain.load(rocksdb, tmp_path, seed=1)
    with Ledger.create(tmp_path / "ledger", 1, 1_000) as other:
        with plain.start(rocksdb, plan, tmp_path, tmp_path / "ledger") as there_run:
            there_run.wait_for("closed", DEADLINE_S)
        there = other.entries()
    first = (here.extra >> np.uint64(32)) == 0
    assert len(there) > 10
    assert (here.register[first] // FIELDS).tolist() == there.register.tolist()
    assert here.kind[first].tolist() == there.kind.tolist()


def test_a_key_that_is_there_already_fails_and_is_never_acknowledged(servers: Lab) -> None:
    workload = ycsb("d", insertproportion=0.5)
    launch = servers.loaded(workload)
    plan = bare(2, 1, operations=100, stop_after=True)
    with servers.running(workload, launch, plan) as (run, _):
        inserted = sum(run.wait_for("closed", DEADLINE_S)["written"])
    with servers.running(workload, launch, plan) as (run, ledger):
        measured = run.wait_for("measured", DEADLINE_S)
        closed = run.wait_for("closed", DEADLINE_S)
        entries = ledger.entries()
        assert ledger.operations == 100
    numbers = measured["per_operation"]["INSERT"]["returns"]
    assert inserted > 10 and numbers["ERROR"] == inserted == numbers["ERROR"] + numbers["OK"]
    assert "duplicate key" in measured["last_error"]
    assert closed["written"] == [0, 0]
    assert set(entries.status.tolist()) == {FAILED} and len(entries) == FIELDS * inserted


def test_what_cannot_be_serialized_fails(servers: Lab) -> None:
    workload = ycsb("a", records=1, requestdistribution="uniform", readproportion=0, updateproportion=1)
    launch = servers.loaded(workload, {"default_transaction_isolation": "repeatable read"})
    plan = bare(4, 1, operations=2_000, stop_after=True)
    with servers.running(workload, launch, plan) as (run, ledger):
        returns = run.wait_for("measured", DEADLINE_S)["per_operation"]["UPDATE"]["returns"]
        closed = run.wait_for("closed", DEADLINE_S)
        entries = ledger.entries()
        assert ledger.operations == len(entries) == 2_000
        assert statements_acknowledged(entries, 4) == closed["written"]
    assert returns["ERROR"] > 0
    assert int((entries.status == FAILED).sum()) + sum(closed["written"]) == 2_000
    assert int((entries.status == FAILED).sum()) >= returns["ERROR"]


def test_a_record_that_is_not_there_is_neither_read_nor_written(servers: Lab) -> None:
    workload = ycsb("a")
    launch = servers.loaded(workload)
    with servers.serving(launch) as server, Session(server.address) as session:
        session.query("delete from usertable")
        server.stop("immediate")
    plan = bare(2, 1, operations=200, stop_after=True)
    with servers.running(workload, launch, plan) as (run, ledger):
        measured = run.wait_for("measured", DEADLINE_S)
        assert run.wait_for("closed", DEADLINE_S)["written"] == [0, 0]
        entries = ledger.entries()
    for numbers in measured["per_operation"].values():
        assert numbers["returns"]["NOT_FOUND"] == numbers["count"] > 50
    assert set(entries.status.tolist()) == {FAILED}


def test_without_the_recorder_nothing_counts_as_written(servers: Lab) -> None:
    workload = ycsb("a")
    launch = servers.loaded(workload)
    plan = bare(1, 1, operations=50, stop_after=True)
    with servers.running(workload, launch, plan, is_stamped=False) as (run, ledger):
        measured = run.wait_for("measured", DEADLINE_S)
        assert run.wait_for("closed", DEADLINE_S)["written"] == [0]
        assert len(ledger.entries()) == 0 and ledger.operations == 50
    assert measured["acknowledged_writes"] == 0
    assert measured["last_error"] == "the server did not stamp the ledger: the recorder is not in it"


def test_a_full_ledger_ends_the_load(servers: Lab) -> None:
    workload = ycsb("d", insertproportion=1, readproportion=0)
    launch = servers.loaded(workload)
    with servers.running(workload, launch, bare(2, 1, operations=10_000), capacity=105) as (run, ledger):
        stopped = run.wait_for("stopped", DEADLINE_S)
        assert stopped["why"] == "ledger-full" and ledger.stop == STOP_LEDGER_FULL
        assert run.wait() == 0 and not run.finished
        assert len(ledger.entries()) <= 200
        assert run.faults() == []
        run.kill()
        assert run.finished


def test_a_load_that_is_asked_to_stop_ends(servers: Lab) -> None:
    workload = ycsb("a")
    launch = servers.loaded(workload)
    with servers.running(workload, launch, bare(2, 1)) as (run, ledger):
        run.wait_for("measuring", DEADLINE_S)
        ledger.ask_stop()
        assert run.wait_for("stopped", DEADLINE_S)["why"] == "asked"
        assert run.wait() == 0 and run.faults() == []


@pytest.mark.parametrize("more", [-2, 1])
def test_a_count_that_the_ledger_does_not_bear_out_is_told(servers: Lab, more: int) -> None:
    """One more in the ledger is what a kill may keep from the driver; two more, or one less, are not."""
    workload = ycsb("a")
    launch = servers.loaded(workload)
    with servers.running(workload, launch, bare(2, 1, operations=200)) as (run, _):
        run.wait_for("reached", DEADLINE_S)
        run.kill()
        assert run.faults() == []
        last = run.events[-1]
        acknowledged = statements_acknowledged(run._ledger.entries(), 2)[1] if run._ledger else 0
        last["written"][1] = acknowledged + more
        assert run.faults() == [
            f"client 2 has {acknowledged} acknowledged writes in the ledger and {acknowledged + more} "
            "by its own count"
        ]


def test_a_server_that_hangs_does_not_keep_a_load_from_ending(servers: Lab) -> None:
    """As where its write log is full: the backends wait for the kill, and answer nobody."""
    workload = ycsb("a")
    launch = servers.loaded(workload)
    with servers.running(workload, launch, bare(3, 1)) as (run, ledger):
        run.wait_for("measuring", DEADLINE_S)
        with Session(run.server.address) as session:
            pids = session.query(
                "select pid::text from pg_stat_activity where application_name = 'duratune-ycsb' "
                "and (query like 'UPDATE%' or query like 'SELECT *%')"
            )
            for (pid,) in pids:
                assert pid is not None
                os.kill(int(pid), signal.SIGSTOP)
        assert len(pids) == 3
        ledger.ask_stop()
        assert run.wait_for("stopped", DEADLINE_S)["why"] == "asked"
        assert run.wait() == 0 and run.faults() == []


def test_a_backend_that_crashes_ends_the_load_and_is_told(servers: Lab) -> None:
    workload = ycsb("a")
    launch = servers.loaded(workload)
    with servers.running(workload, launch, bare(3, 1)) as (run, _):
        run.wait_for("measuring", DEADLINE_S)
        with Session(run.server.address) as session:
            pid = session.value(
                "select min(pid)::text from pg_stat_activity "
                "where application_name = 'duratune-ycsb' and query like 'UPDATE%'"
            )
        os.kill(int(pid), signal.SIGKILL)
        with pytest.raises((ServerDied, Undecided)):
            run.wait_for("reached", DEADLINE_S)
        assert run.wait() == 0


def test_what_is_provoked_is_done_by_the_server(servers: Lab) -> None:
    workload = ycsb("a")
    launch = servers.loaded(workload)
    plan = bare(2, 1, operations=600, provoke="flush@0.1,compact@0.5")
    with servers.running(workload, launch, plan) as (run, _):
        run.wait_for("opened", DEADLINE_S)
        with Session(run.server.address) as session:
            # What is inserted next, for what is written ends at the old segment's end just after a switch.
            asked = (
                "select checkpoint_lsn::text, pg_walfile_name(pg_current_wal_insert_lsn()), "
                "vacuum_count::text "
                "from pg_control_checkpoint(), pg_stat_user_tables where relname = 'usertable'"
            )
            before = session.query(asked)[0]
            events = [run.wait_for("provoked", DEADLINE_S) for _ in range(2)]
            after = session.query(asked)[0]
    assert [(event["what"], event["error"]) for event in events] == [("flush", ""), ("compact", "")]
    assert all(old != new for old, new in zip(before, after, strict=True)), (before, after)


def test_a_recorded_run_knows_each_transaction(servers: Lab) -> None:
    """By the server's own number, which the table shows too; and the server's syncs are sampled before."""
    workload = ycsb("d", updateproportion=0.4, readproportion=0.4, insertproportion=0.2, records=60)
    launch = servers.loaded(workload)
    with servers.running(workload, launch, Plan(2, 1, operations=400)) as (run, ledger):
        run.wait_for("reached", DEADLINE_S)
        assert ledger.sync_sample() is not None or servers.servers.binaries.version.major < 14
        run.kill()
        assert run.faults() == []
        entries, operations = ledger.entries(), ledger.operations
    assert operations >= 400 + 2 * 25
    number = (entries.extra & np.uint64(0xFFFFFFFF)).astype(np.int64)
    acked = entries.status == ACKNOWLEDGED
    # Those of the last moment had no time to be told.
    assert int((acked & (number == 0)).sum()) <= 2 * FIELDS
    firsts = acked & (number > 0) & ((entries.extra >> np.uint64(32)) == 0)
    assert len(set(number[firsts].tolist())) == int(firsts.sum()) > 100
    recovered = workload.verify(servers.clone(launch), launch.database.parent, DEADLINE_S)
    owner = {
        (int(client), int(sequence)): int(transaction)
        for client, sequence, transaction in zip(entries.client, entries.sequence, number, strict=True)
    }
    found = [
        (owner[int(row["client"]), int(row["sequence"])], int(transaction))
        for row, transaction in zip(recovered.candidate, recovered.transactions, strict=True)
        if transaction
    ]
    assert len(found) > 10
    assert [(told, xmin) for told, xmin in found if told not in (0, xmin)] == []


def test_damaged_values_are_seen(servers: Lab) -> None:
    workload = ycsb("a", records=20)
    launch = servers.loaded(workload)
    names = [key_name(number, workload.parameters) for number in range(20)]
    damage = {
        0: "update usertable set field1 = null where ycsb_key = $1",
        1: "update usertable set field2 = 'nothing' where ycsb_key = $1",
        2: "update usertable set field3 = field3 || 'x' where ycsb_key = $1",
        3: "update usertable set field4 = field5 where ycsb_key = $1",
        4: "update usertable set field6 = (select field6 from usertable where ycsb_key = '" + names[9] + "') "
        "where ycsb_key = $1",
        5: "delete from usertable where ycsb_key = $1",
        6: "update usertable set ycsb_key = 'user1' where ycsb_key = $1",
    }
    with servers.serving(launch) as server, Session(server.address) as session:
        for number, statement in damage.items():
            session.query(statement, [names[number]])
        with closing(PostgresqlYcsbReader(workload.properties, launch.database.parent)) as reader:
            rows = reader.read(server, "scan", is_whole=True).rows
        server.stop()
    assert len(rows) == 19 * FIELDS
    unreadable = rows[rows["flags"] == 0]
    assert len(unreadable) == 2 and set(unreadable["key"].tolist()) == {2**64 - 1}
    wrong = {int(row["key"]): int(row["flags"]) for row in rows if row["flags"] not in (0, SOUND)}
    elsewhere = HEADER_READABLE | CHECKSUM_RIGHT
    assert wrong == {
        2 * FIELDS + 3: SOUND - CHECKSUM_RIGHT,
        3 * FIELDS + 5: elsewhere,
        9 * FIELDS + 6: elsewhere,
        **{6 * FIELDS + field: elsewhere for field in range(FIELDS)},
    }
    # The copies are where they do not belong; what they were copied from is sound.
    sound = rows[rows["flags"] == SOUND]
    assert {3 * FIELDS + 5, 9 * FIELDS + 6} <= set(sound["key"].tolist())
    assert len(sound) == 19 * FIELDS - 2 - 3 - FIELDS


def test_the_stored_value_is_as_documented(servers: Lab) -> None:
    """docs/formats.md, "The stored value of a field": read here by its words alone."""
    workload = ycsb("a", records=30)
    launch = servers.loaded(workload)
    with servers.running(workload, launch, bare(2, 1, operations=200)) as (run, ledger):
        run.wait_for("reached", DEADLINE_S)
        with Session(run.server.address) as session:
            records = session.query("select * from usertable")
        run.kill()
        entries = ledger.entries()
    written = {
        (int(client), int(sequence)): (int(register), int(checksum))
        for client, sequence, register, checksum in zip(
            entries.client, entries.sequence, entries.register, entries.checksum, strict=True
        )
    }
    fresh = 0
    for key, *values in records:
        for field, value in enumerate(values):
            assert value is not None
            found = re.fullmatch(r":7(\d{6})(\d{12})([;-z]{8})([;-z]{11})([ -\x7f]{100})", value)
            assert found is not None, value
            client, sequence = int(found[1]), int(found[2])
            register, checksum = number_of(found[3]), number_of(found[4])
            assert field_name(register, workload.parameters) == f"{key}.field{field}"
            if client == 0:
                assert sequence == register + 1
            else:
                assert written[client, sequence] == (register, checksum)
                fresh += 1
    assert len(records) == 30 and fresh > 50


def number_of(digits: str) -> int:
    number = 0
    for digit in digits:
        number = number * 64 + ord(digit) - ord(";")
    return number


@pytest.mark.parametrize("lengths", ["uniform", "zipfian"])
def test_fields_of_any_length(servers: Lab, lengths: str) -> None:
    workload = ycsb(
        "f", records=60, fieldlengthdistribution=lengths, writeallfields="true", readallfields="false"
    )
    _, recovered, judgement, _ = killed(servers, workload, {}, bare(2, 1, operations=200))
    assert judgement.verdict is Verdict.HELD
    assert set(recovered.neutral["flags"].tolist()) == {SOUND}


def test_dataintegrity_is_checked_by_every_read(servers: Lab) -> None:
    workload = ycsb("b", records=50, dataintegrity="true", requestdistribution="uniform")
    launch = servers.loaded(workload)
    plan = bare(2, 1, operations=300, stop_after=True)
    with servers.running(workload, launch, plan) as (run, _):
        assert run.wait_for("measured", DEADLINE_S)["per_operation"]["READ"]["errors"] == 0
    with servers.serving(launch) as server, Session(server.address) as session:
        session.query("update usertable set field9 = overlay(field9 placing '?' from 60 for 1)")
        server.stop()
    with servers.running(workload, launch, plan) as (run, _):
        measured = run.wait_for("measured", DEADLINE_S)
    numbers = measured["per_operation"]["READ"]
    # A few are written anew meanwhile, and right.
    assert 0.9 * numbers["count"] < numbers["errors"] <= numbers["count"] != 0
    assert measured["last_error"].startswith("dataintegrity")


def test_settings_of_the_environment_do_not_reach_the_sessions(
    servers: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c nothing_of_the_kind=1")
    workload = ycsb("a", records=10)
    launch = servers.loaded(workload)
    with servers.running(workload, launch, bare(1, 1, operations=10, stop_after=True)) as (run, _):
        assert sum(run.wait_for("closed", DEADLINE_S)["written"]) > 0


@pytest.mark.parametrize(
    ("subcommand", "changes", "error"),
    [
        ("load", {}, "the table usertable already exists"),
        ("load", {"pg.conninfo": "host='"}, "pg.conninfo: unterminated quoted string"),
        ("load", {"fieldcount": "1001"}, "fieldcount is above 1000"),
        ("load", {"recordcount": "999999999999"}, "recordcount times fieldcount is above"),
        ("run", {"fieldnameprefix": "other"}, "does not hold this workload's data"),
        ("run", {"db.path": "/tmp/none"}, "names both db.path and pg.conninfo"),
        ("run", {"application.sync_wal_every_ms": "5"}, "application"),
        ("run", {"write.sync": "true"}, "unknown keys in the spec: write.sync"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    servers: Lab, tmp_path: Path, subcommand: str, changes: dict[str, str], error: str
) -> None:
    launch = servers.loaded(ycsb("a", records=10))
    with servers.serving(launch) as server:
        database = {"pg.conninfo": conninfo(server.address)}
        spec = run_spec(ycsb("a", records=10).properties, bare(1, 1, operations=5), None, database) | changes
        path = write_spec(tmp_path / "spec", spec)
        with DriverProcess(subcommand, str(path), tmp_path / "log", engine="postgresql") as driver:
            with pytest.raises(InvalidInput, match=re.escape(error)) as caught:
                driver.wait_for(("loaded", "reached"), DEADLINE_S)
            assert caught.value.where == "postgresql"
            assert driver.wait() == 2
