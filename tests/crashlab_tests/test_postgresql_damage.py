"""A killed PostgreSQL is held; each damage that is planted into it is told by the check that is for it."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from crashlab.judging.judge import judge_recovered
from crashlab.judging.oracle import Cut, History
from crashlab.judging.verdict import Judgement, Verdict
from crashlab.preload.access import opened_to
from crashlab.preload.processes import ProcessList, unreported
from crashlab.preload.recorder import PreloadRecorder
from engines.postgresql import integrity
from engines.postgresql.launch import PostgresqlLaunch
from engines.postgresql.server import Server
from engines.postgresql.session import Session
from engines.process import DeadlinePassed
from knobs.contract import Contract
from knobs.errors import Undecided
from tests.engines_tests.postgresql_engines import PostgresqlLab, nothing_left, open_postgresql
from workloads.ledger import Ledger
from workloads.pgbench import tables
from workloads.pgbench.identity import token
from workloads.pgbench.reader import BALANCES, LOADED
from workloads.pgbench.workload import PgbenchWorkload
from workloads.postgresql.verifier import CHECKSUMS, LOG, NEUTRAL, ROWS, PostgresqlVerifier, Reading
from workloads.workload import Plan, Recovered

pytestmark = pytest.mark.slow

STRICT = Contract("strict")
DEADLINE_S = 60.0
PAGE = 8192
CLIENTS = 2
# A table that nobody reads, so that only who looks at every page sees what is wrong with it.
ASIDE = "CREATE TABLE aside AS SELECT n, repeat('x', 100) AS filler FROM generate_series(1, 500) n;"
TPCB = PgbenchWorkload("pgbench:tpcb-like").with_options(init_sql=ASIDE)


@dataclass(frozen=True)
class KilledLoad:
    """A load killed in its middle, what its clients were told, and its cluster as the kill left it."""

    lab: PostgresqlLab
    launch: PostgresqlLaunch
    history: History
    cut: Cut

    def verified(
        self,
        plant: Callable[[PostgresqlLaunch], None] | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        is_touched: bool = True,
    ) -> Recovered:
        """Recover a clone under these settings, with something planted into it before."""
        launch = self.cloned(settings)
        if plant is not None:
            plant(launch)
        with nothing_left(launch.cluster.data), TPCB.verifier(launch.database.parent) as verifier:
            found = verifier.verify(launch, DEADLINE_S, is_touched=is_touched)
        self.lab.scratch.remove(launch.database.parent)
        return found

    def cloned(self, settings: Mapping[str, str] | None = None) -> PostgresqlLaunch:
        """A clone of the killed cluster, in a folder of its own."""
        launch: PostgresqlLaunch = self.lab.engine.launch(settings or {}, self.lab.place("clone"))
        launch.database.mkdir()
        self.launch.cluster.clone(launch.database)
        return launch

    def judged(self, recovered: Recovered) -> Judgement:
        return judge_recovered(self.history, recovered, self.cut, STRICT, "process-crash")


def killed_load(lab: PostgresqlLab) -> KilledLoad:
    place, shared = lab.place("killed"), lab.scratch.folder(Path("/dev/shm"), "ledger")
    launch: PostgresqlLaunch = lab.engine.launch({}, place)
    TPCB.load(launch, place, 1)
    with Ledger.create(shared / "ledger", CLIENTS, 100_000) as ledger:
        ProcessList.create(shared / "processes")
        files = (shared / "ledger", shared / "processes")
        asked = PreloadRecorder().acks_environment(*files)
        environment = opened_to(lab.engine.runs_as, shared, files, asked)
        plan = Plan(CLIENTS, 1, warmup_s=0.05, measure_s=0.3)
        with TPCB.start(launch, plan, place, shared / "ledger", environment) as run:
            run.wait_for("measured", DEADLINE_S)
            positions: list[int] = []
            killed = run.kill(lambda: positions.append(ledger.position))
            assert run.faults() == []
            assert run.figures()["operations"] > 20
        assert unreported([p.pid for p in killed.processes], ProcessList.read(files[1])) == []
        history = History(ledger.entries(), 0, register_per_write=True)
    return KilledLoad(lab, launch, history, Cut(positions[-1], killed.at_ns))


@pytest.fixture(scope="module")
def load() -> Iterator[KilledLoad]:
    with open_postgresql() as lab:
        yield killed_load(lab)


@pytest.fixture(scope="module")
def unchecked() -> Iterator[KilledLoad]:
    """The same on a cluster without checksums."""
    with open_postgresql(checksums=False) as lab:
        yield killed_load(lab)


# What is planted.


def by(*statements: str) -> Callable[[PostgresqlLaunch], None]:
    """Statements on the recovered cluster, which is stopped cleanly again."""

    def plant(launch: PostgresqlLaunch) -> None:
        with launch.start_neutral() as server:
            with Session(server.address) as session:
                for statement in statements:
                    session.query(statement)
            server.stop()

    return plant


def inserted(filler: str) -> Callable[[PostgresqlLaunch], None]:
    """A history row that changes no balance."""
    columns = "(aid, tid, bid, delta, filler)"
    return by(f"insert into pgbench_history {columns} values (1, 1, 1, 0, '{filler}')")


def flipped(relation: str, offset: int, suffix: str = "") -> Callable[[PostgresqlLaunch], None]:
    """One byte of a file flipped, ``offset`` bytes behind its begin (before its end if negative)."""

    def plant(launch: PostgresqlLaunch) -> None:
        path = file_of(launch, relation)
        path = path.with_name(path.name + suffix)
        at = offset if offset >= 0 else path.stat().st_size + offset
        with path.open("r+b") as file:
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 0x10]))

    return plant


def file_of(launch: PostgresqlLaunch, relation: str) -> Path:
    """The relation's file in a cluster that is shut down and has been recovered before."""
    found: list[str] = []
    with launch.start_neutral() as server:
        found += ask(server, f"select pg_relation_filepath('{relation}')", "checkpoint")
        server.stop()
    return launch.cluster.data / found[0]


def ask(server: Server, query: str, *before: str) -> list[str]:
    with Session(server.address) as session:
        for statement in before:
            session.query(statement)
        return [session.value(query)]


def told(load: KilledLoad, recovered: Recovered) -> tuple[Sequence[str], str]:
    judgement = load.judged(recovered)
    assert judgement.verdict is Verdict.BROKEN
    return judgement.reasons, recovered.stage


# Nothing planted.


def test_a_killed_load_is_held_and_checked_for_everything(load: KilledLoad) -> None:
    recovered = load.verified()
    judgement = load.judged(recovered)
    assert (judgement.verdict, judgement.reasons, recovered.error) == (Verdict.HELD, (), "")
    assert 20 < judgement.acks <= len(recovered.candidate) <= len(load.history)
    assert judgement.decidable == judgement.acks
    assert {ROWS, LOADED, BALANCES, CHECKSUMS, NEUTRAL, LOG} < set(recovered.checks)
    assert any("amcheck" in check for check in recovered.checks)
    assert recovered.redo is not None and recovered.redo.log_bytes > 0 and recovered.recovery_s > 0
    assert (recovered.notes, recovered.base_rows_lost) == ((), 0)
    # Whose each transaction was, for the audit.
    assert len(set(recovered.transactions.tolist())) == len(recovered.candidate)
    assert recovered.transactions.min() > 2, "no frozen or bootstrap transaction"


def test_a_state_whose_data_files_are_the_bases_is_spared_the_slow_checks(load: KilledLoad) -> None:
    recovered = load.verified(is_touched=False)
    assert load.judged(recovered).verdict is Verdict.HELD
    assert CHECKSUMS not in recovered.checks and not any("amcheck" in check for check in recovered.checks)
    assert {ROWS, LOADED, BALANCES, NEUTRAL, LOG} <= set(recovered.checks)


# Rows.


def test_a_transaction_that_is_gone_is_lost(load: KilledLoad) -> None:
    gone = token(1, 3)
    # The balances go along, so that nothing but the token is missing.
    recovered = load.verified(
        by(
            *(
                f"update pgbench_{table} t set {balance} = {balance} - h.delta from pgbench_history h "
                f"where h.filler = '{gone}' and t.{key} = h.{key}"
                for table, balance, key in (
                    ("accounts", "abalance", "aid"),
                    ("tellers", "tbalance", "tid"),
                    ("branches", "bbalance", "bid"),
                )
            ),
            f"delete from pgbench_history where filler = '{gone}'",
        )
    )
    reasons, stage = told(load, recovered)
    assert "lost-ack" in reasons and "corrupt" not in reasons and stage == ""
    judgement = load.judged(recovered)
    assert judgement.lost == 1 and judgement.first_lost is not None
    assert (judgement.first_lost.client, judgement.first_lost.sequence) == (1, 3)


def test_a_transaction_that_is_there_twice_is_corrupt(load: KilledLoad) -> None:
    recovered = load.verified(inserted(str(token(2, 1))))
    assert told(load, recovered) == (("corrupt",), "")
    assert any("twice" in line for line in load.judged(recovered).evidence)


def test_a_token_that_nobody_sent_is_a_phantom(load: KilledLoad) -> None:
    assert told(load, load.verified(inserted(str(token(1, 99_999))))) == (("phantom",), "")


def test_a_row_without_a_token_is_corrupt(load: KilledLoad) -> None:
    """Such as of a page that holds something else."""
    assert told(load, load.verified(inserted("what?"))) == (("corrupt",), "")


@pytest.mark.parametrize(
    ("table", "balance"),
    [("accounts", "abalance"), ("tellers", "tbalance"), ("branches", "bbalance")],
)
def test_a_balance_that_is_not_the_sum_of_its_history_is_corrupt(
    load: KilledLoad, table: str, balance: str
) -> None:
    key = {"accounts": "aid", "tellers": "tid", "branches": "bid"}[table]
    recovered = load.verified(by(f"update pgbench_{table} set {balance} = {balance} + 1 where {key} = 1"))
    assert told(load, recovered) == (("corrupt",), "balances")
    assert recovered.error.startswith(f"1 rows of pgbench_{table}")


def test_loaded_rows_that_are_gone_are_lost(load: KilledLoad) -> None:
    unused = "select aid from pgbench_accounts where abalance = 0 limit 3"
    recovered = load.verified(by(f"delete from pgbench_accounts where aid in ({unused})"))
    assert recovered.base_rows_lost == 3
    assert "lost-ack" in told(load, recovered)[0] and load.judged(recovered).lost == 0


def test_what_a_script_of_the_users_deletes_is_not_lost(load: KilledLoad) -> None:
    """Its own tokens are in the rider's table, which is empty here: the load was another."""
    launch = load.cloned()
    by("delete from pgbench_accounts where aid < 10", "drop table pgbench_tellers")(launch)
    custom = TPCB.with_options(script="DELETE FROM pgbench_accounts WHERE aid = 1;")
    recovered = custom.verify(launch, launch.database.parent, DEADLINE_S)
    assert (recovered.recovered, recovered.error, recovered.base_rows_lost) == (True, "", 0)
    assert LOADED not in recovered.checks and BALANCES not in recovered.checks
    assert len(recovered.candidate) == 0


# Pages.


def test_a_flipped_byte_in_a_table_that_nobody_reads_is_told_by_the_checksums(load: KilledLoad) -> None:
    recovered = load.verified(flipped("aside", PAGE + 5000))
    assert told(load, recovered) == (("corrupt",), "checksum")
    assert recovered.error.startswith("1 pages do not verify: block 1 of base/")


def test_a_flipped_byte_in_a_table_that_is_read_is_told_by_the_reading(load: KilledLoad) -> None:
    recovered = load.verified(flipped("pgbench_history", 8000))
    reasons, stage = told(load, recovered)
    assert "corrupt" in reasons and stage == "scan"
    assert "invalid page" in recovered.error


@pytest.mark.parametrize("hiding", ["zero_damaged_pages", "ignore_checksum_failure"])
@pytest.mark.parametrize("table", ["pgbench_history", "pgbench_tellers"], ids=["read by both", "by one"])
def test_a_damaged_page_is_not_hidden_by_the_candidates_own_settings(
    load: KilledLoad, table: str, hiding: str
) -> None:
    recovered = load.verified(flipped(table, 8000), {hiding: "on"})
    assert recovered.recovered
    assert "corrupt" in told(load, recovered)[0]


def test_a_flipped_byte_in_a_free_space_map_does_not_count(load: KilledLoad) -> None:
    recovered = load.verified(flipped("pgbench_accounts", 4000, "_fsm"))
    assert (load.judged(recovered).verdict, recovered.stage) == (Verdict.HELD, "")


def test_a_flipped_byte_in_an_index_without_checksums_is_told_by_amcheck(unchecked: KilledLoad) -> None:
    # Behind the special space of a leaf come its tuples, the last one first; this is in the key of one.
    recovered = unchecked.verified(flipped("pgbench_tellers_pkey", PAGE + PAGE - 16 - 8))
    assert told(unchecked, recovered) == (("corrupt",), "amcheck")
    assert CHECKSUMS not in recovered.checks
    assert "pgbench_tellers_pkey" in recovered.error


def test_without_checksums_an_honest_kill_is_held_too(unchecked: KilledLoad) -> None:
    recovered = unchecked.verified()
    assert unchecked.judged(recovered).verdict is Verdict.HELD and CHECKSUMS not in recovered.checks


def test_what_a_database_sets_hides_no_damage(unchecked: KilledLoad) -> None:
    """A page whose header is wrong (pd_special) would read as empty, and so would its index."""
    hidden = by("ALTER DATABASE postgres SET zero_damaged_pages = on")

    def plant(launch: PostgresqlLaunch) -> None:
        hidden(launch)
        flipped("aside", 17)(launch)

    recovered = unchecked.verified(plant)
    assert told(unchecked, recovered) == (("corrupt",), "amcheck")
    assert "invalid page in block 0" in recovered.error


def test_a_search_path_of_the_users_is_no_fault_of_the_data(load: KilledLoad) -> None:
    launch = load.cloned()
    by("CREATE SCHEMA app", "ALTER DATABASE postgres SET search_path = app")(launch)
    recovered = TPCB.with_options(script="DELETE FROM t;").verify(launch, launch.database.parent, DEADLINE_S)
    assert (recovered.recovered, recovered.error) == (True, "")
    assert any("amcheck" in check for check in recovered.checks)


def test_checksums_that_were_not_all_read_are_no_clean_ones(load: KilledLoad) -> None:
    """What was read has a wrong page that does not count, and then comes a file that cannot be read."""
    launch = load.cloned()
    aside = file_of(launch, "aside")
    with next((launch.cluster.data / "global").glob("*_fsm")).open("r+b") as file:
        file.seek(4000)
        file.write(b"what?")
    assert integrity.wrong_checksums(launch.cluster) == []
    aside.chmod(0)
    with pytest.raises(Undecided, match=r"pg_checksums: .*Permission denied"):
        integrity.wrong_checksums(launch.cluster)


class Slow:
    """Reads nothing of the candidate's server, and gets no answer of the neutral one in time."""

    checks: Sequence[str] = ()

    def read(self, server: Server, stage: str, *, is_whole: bool) -> Reading:
        del server
        if is_whole:
            raise DeadlinePassed(f"no answer at {stage}")
        return Reading()

    def close(self) -> None: ...


def test_a_neutral_server_that_is_slow_to_answer_says_nothing_of_the_data(load: KilledLoad) -> None:
    launch = load.cloned()
    with (
        nothing_left(launch.cluster.data),
        PostgresqlVerifier(Slow(), is_hurried=True) as verifier,
        pytest.raises(Undecided, match="no answer at neutral-scan"),
    ):
        verifier.verify(launch, DEADLINE_S)


# Not coming back.


def test_a_cluster_without_its_log_is_unrecoverable(load: KilledLoad) -> None:
    def plant(launch: PostgresqlLaunch) -> None:
        for path in (launch.cluster.data / "pg_wal").iterdir():
            if path.is_file():
                os.truncate(path, 0)

    recovered = load.verified(plant)
    assert told(load, recovered) == (("unrecoverable",), "recover")
    assert "PANIC" in recovered.error


# Killed from outside while it is verified, as the kernel does it for want of memory: that says nothing.


@pytest.mark.parametrize("at", [1, 2], ids=["candidate", "neutral"])
def test_a_postmaster_that_is_killed_as_it_starts_decides_nothing(
    load: KilledLoad, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, counted = Server.await_ready, itertools.count(1)

    def kill_first(self: Server, deadline_s: float) -> None:
        if next(counted) == at:
            os.kill(self.identity.pid, signal.SIGKILL)
        original(self, deadline_s)

    monkeypatch.setattr(Server, "await_ready", kill_first)
    with pytest.raises(Undecided, match="SIGKILL"):
        load.verified()


def test_a_recovering_process_that_is_killed_decides_nothing(
    load: KilledLoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The postmaster then ends by itself."""
    original = Server.await_ready

    def kill_first(self: Server, deadline_s: float) -> None:
        postmaster = psutil.Process(self.identity.pid)
        ends_s = time.monotonic() + DEADLINE_S
        while not (found := [each for each in postmaster.children() if is_startup(each)]):
            assert time.monotonic() < ends_s
        found[0].kill()
        original(self, deadline_s)

    monkeypatch.setattr(Server, "await_ready", kill_first)
    with pytest.raises(Undecided, match=r"startup process .* signal 9"):
        load.verified()


def is_startup(process: psutil.Process) -> bool:
    """By its title, which it has a moment after it was forked."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return "startup" in " ".join(process.cmdline())
    return False


def dying(number: signal.Signals, *, at: int) -> Callable[[Session], list[str]]:
    """Reads the list of tables as it should, but the ``at``-th time its backend gets a signal first."""
    counted = itertools.count(1)
    original = tables.unlogged_tables

    def read(session: Session) -> list[str]:
        if next(counted) == at:
            os.kill(int(session.value("select pg_backend_pid()")), number)
        return original(session)

    return read


@pytest.mark.parametrize("at", [1, 2], ids=["candidate", "neutral"])
def test_a_backend_that_is_killed_while_it_reads_decides_nothing(
    load: KilledLoad, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "unlogged_tables", dying(signal.SIGKILL, at=at))
    with pytest.raises(Undecided, match="terminated by signal 9"):
        load.verified()


@pytest.mark.parametrize(("at", "stage"), [(1, "scan"), (2, "neutral-scan")])
def test_a_backend_that_crashes_while_it_reads_is_damage(
    load: KilledLoad, at: int, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "unlogged_tables", dying(signal.SIGSEGV, at=at))
    reasons, found = told(load, load.verified())
    assert "corrupt" in reasons and found == stage


def test_what_recovery_brings_back_fits_into_the_neutral_server(load: KilledLoad) -> None:
    """A prepared transaction needs its slot in every server that meets it."""
    room = {"max_prepared_transactions": "4"}

    def prepare(launch: PostgresqlLaunch) -> None:
        with replace(launch, settings=room).start() as server, Session(server.address) as session:
            session.query("BEGIN")
            session.query("INSERT INTO pgbench_tellers VALUES (4711, 1, 0)")
            session.query("PREPARE TRANSACTION 'left'")
            server.kill()

    found = load.verified(prepare, room)
    assert (found.stage, found.error) == ("", "")
    refused = load.verified(prepare)
    assert not refused.recovered and "max_prepared_transactions" in refused.error
