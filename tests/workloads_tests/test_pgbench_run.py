"""A load of pgbench and its server as one run: its events and figures, and everything that may end it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import psutil
import pytest

from engines.postgresql.launch import PostgresqlLaunch
from engines.postgresql.refusal import ServerDied
from engines.process import DeadlinePassed
from knobs.errors import InvalidInput, Undecided
from tests.engines_tests.postgresql_engines import PostgresqlLab, nothing_left, open_postgresql
from workloads.ledger import ACKNOWLEDGED, BEGUN, FAILED, STOP_LEDGER_FULL, STOP_NONE, STOP_WRITE_LOG_FULL
from workloads.pgbench.run import FIRST, RUN, PgbenchRun, log_prefix
from workloads.pgbench.transaction_log import NAME, read
from workloads.pgbench.workload import PgbenchWorkload
from workloads.workload import EFFECTIVE_NAME, Event, Plan

DEADLINE_S = 60.0


class Ledgered:
    """A ledger whose content is given: each client's statuses, the operations done so far, why to stop."""

    position = 7

    def __init__(self, *statuses: Sequence[int], operations: int = 0, stop: int = STOP_NONE) -> None:
        self.statuses, self.operations, self.stop = statuses, operations, stop

    @property
    def clients(self) -> int:
        return len(self.statuses)

    def entries(self) -> Any:
        flat = [
            (client, sequence, status)
            for client, of in enumerate(self.statuses, 1)
            for sequence, status in enumerate(of, 1)
        ]
        client, sequence, status = np.array(flat, dtype=np.int64).reshape(-1, 3).T
        return SimpleNamespace(
            client=client, sequence=sequence, status=status, acknowledged=status == ACKNOWLEDGED
        )


class Idle:
    """A server and a pgbench that are well, and do nothing."""

    def __init__(self) -> None:
        self.identity = SimpleNamespace(pid=4711, alive=lambda: True)
        self.address, self.running = None, True

    def check(self) -> None: ...

    def log_tail(self) -> str:
        return ""


def run_of(
    ledger: Ledgered | None,
    folder: Path,
    plan: Plan | None = None,
    *,
    writes: bool = True,
    before: int = 0,
    conditional: bool = False,
) -> PgbenchRun:
    return PgbenchRun(
        cast(Any, Idle()),
        cast(Any, Idle()),
        plan or Plan(2, 1, measure_s=0.01),
        log_prefix(folder, RUN),
        cast(Any, ledger),
        writes,
        before,
        is_conditional=conditional,
    )


def log(
    folder: Path, *clients: int, skipped: Sequence[int] = (), failed: Sequence[int] = (), name: str = RUN
) -> None:
    """pgbench's own log: one line for each of these clients' transactions."""
    lines = [(client, "1000") for client in clients]
    lines += [(client, "skipped") for client in skipped] + [(client, "failed") for client in failed]
    text = "".join(f"{client} 1 {elapsed} 0 1700000000 0\n" for client, elapsed in lines)
    log_prefix(folder, name).with_suffix(".1").write_text(text)


# pgbench's own log is held against the ledger.


A, F, B = ACKNOWLEDGED, FAILED, BEGUN


@pytest.mark.parametrize(
    "ledger",
    [
        Ledgered([A, A], [A]),
        Ledgered([A, A, B], [A, B]),
        # The kill may keep one answer of each client from pgbench.
        Ledgered([A, A, A], [A, A]),
        Ledgered([A, F, A], [A, F, F]),
    ],
)
def test_a_ledger_that_agrees_with_the_log(ledger: Ledgered, tmp_path: Path) -> None:
    log(tmp_path, 0, 0, 1)
    assert run_of(ledger, tmp_path).faults() == []


@pytest.mark.parametrize(
    ("ledger", "client", "acknowledged", "logged"),
    [
        (Ledgered([A], [A]), 1, 1, 2),
        (Ledgered([A, B], [A]), 1, 1, 2),
        (Ledgered([A, F], [A]), 1, 1, 2),
        (Ledgered([A, A], [A, A, A]), 2, 3, 1),
        (Ledgered([A, A], []), 2, 0, 1),
    ],
)
def test_a_ledger_that_disagrees_is_told_with_its_client(
    ledger: Ledgered, client: int, acknowledged: int, logged: int, tmp_path: Path
) -> None:
    log(tmp_path, 0, 0, 1)
    assert run_of(ledger, tmp_path).faults() == [
        f"client {client} has {acknowledged} acknowledged transactions in the ledger and {logged} in "
        "pgbench's own log"
    ]


def test_what_is_skipped_is_in_no_ledger_and_what_failed_is_never_acknowledged(tmp_path: Path) -> None:
    log(tmp_path, 0, skipped=[0, 0, 1], failed=[1, 1])
    assert run_of(Ledgered([A], [F, F]), tmp_path).faults() == []
    assert len(run_of(Ledgered([A, A, A], [F]), tmp_path).faults()) == 1
    assert len(run_of(Ledgered([A], [A, A]), tmp_path).faults()) == 1, "pgbench was told that both failed"


def test_a_script_that_writes_only_sometimes_succeeds_without_an_acknowledgement(tmp_path: Path) -> None:
    log(tmp_path, 0, 0, 0, 1)
    few = Ledgered([A, F], [A])
    assert run_of(few, tmp_path, conditional=True).faults() == []
    assert len(run_of(few, tmp_path).faults()) == 1
    assert len(run_of(Ledgered([A], [A, A, A]), tmp_path, conditional=True).faults()) == 1


def test_transactions_of_the_short_first_load_are_held_against_its_log_too(tmp_path: Path) -> None:
    log(tmp_path, *[0, 1] * 5, name=FIRST)
    log(tmp_path, 0, 1)
    assert run_of(Ledgered([A] * 6, [A] * 6), tmp_path, before=5).faults() == []
    assert len(run_of(Ledgered([A] * 6, [A] * 5), tmp_path, before=5).faults()) == 1
    assert len(run_of(Ledgered([A, F, F, A, F, A], [A] * 6), tmp_path, before=5).faults()) == 1
    log(tmp_path, *[1] * 5, 0, 0, failed=[0, 0, 0], name=FIRST)
    assert run_of(Ledgered([A, F, F, A, F, A], [A] * 6), tmp_path, before=5).faults() == []


def test_without_tokens_or_a_ledger_there_is_nothing_to_compare(tmp_path: Path) -> None:
    log(tmp_path, 0, 0)
    assert run_of(Ledgered([], []), tmp_path, writes=False).faults() == []
    assert run_of(None, tmp_path).faults() == []
    assert len(run_of(Ledgered([], []), tmp_path).faults()) == 1


# Events.


def next_event(run: PgbenchRun, *names: str) -> Event:
    return run.wait_for(names, DEADLINE_S)


def test_phases_of_a_measured_run(tmp_path: Path) -> None:
    run = run_of(None, tmp_path, Plan(2, 1, warmup_s=0.01, measure_s=0.02))
    names = [next_event(run, "opened", "warming", "measuring", "measured")["event"] for _ in range(4)]
    assert names == ["opened", "warming", "measuring", "measured"]
    with pytest.raises(DeadlinePassed, match="waiting for 'measured'"):
        run.wait_for("measured", 0.05)


def test_operations_that_are_done_are_told_once(tmp_path: Path) -> None:
    ledger = Ledgered([], [], operations=109)
    run = run_of(ledger, tmp_path, Plan(2, 1, operations=100), before=5)
    with pytest.raises(DeadlinePassed):
        run.wait_for("reached", 0.02)
    ledger.operations = 110
    assert next_event(run, "reached") == {"event": "reached", "operations": 100, "position": 7}
    with pytest.raises(DeadlinePassed):
        run.wait_for("reached", 0.02)


@pytest.mark.parametrize(
    ("stop", "why"),
    [(STOP_WRITE_LOG_FULL, "the write log is full"), (STOP_LEDGER_FULL, "the ledger is full")],
)
def test_what_is_full_stops_the_load_and_says_so(stop: int, why: str, tmp_path: Path) -> None:
    run = run_of(Ledgered([], [], stop=stop), tmp_path, Plan(2, 1, operations=100))
    assert next_event(run, "reached", "stopped")["why"] == why
    again = run_of(Ledgered([], [], stop=stop), tmp_path, Plan(2, 1, operations=100))
    with pytest.raises(Undecided, match=f"stopped first: {why}"):
        again.wait_for("reached", DEADLINE_S)


# The real one.


@pytest.fixture(scope="module")
def lab() -> Iterator[PostgresqlLab]:
    with open_postgresql() as lab:
        yield lab


@contextmanager
def started(
    lab: PostgresqlLab, plan: Plan, script: str = "", settings: dict[str, str] | None = None, **options: Any
) -> Iterator[tuple[PgbenchRun, Path]]:
    """A running load in a folder of its own; nothing of it is left afterwards, whatever ends it."""
    workload = PgbenchWorkload("pgbench:mine.sql" if script else "pgbench:simple-update")
    workload = workload.with_options(script=script, **options)
    place = lab.place("run")
    launch: PostgresqlLaunch = lab.engine.launch(settings or {}, place)
    workload.load(launch, place, 1)
    try:
        with nothing_left(launch.cluster.data):
            with workload.start(launch, plan, place) as run:
                yield run, place
            assert run.finished
    finally:
        lab.scratch.remove(place)


MEASURED = Plan(2, 1, warmup_s=0.1, measure_s=1.0)
LONG = Plan(2, 1, warmup_s=DEADLINE_S, measure_s=DEADLINE_S)


@pytest.mark.slow
def test_a_load_is_measured_and_its_server_killed(lab: PostgresqlLab) -> None:
    with started(lab, MEASURED, protocol="prepared") as (run, place):
        assert '"synchronous_commit": "on"' in (place / EFFECTIVE_NAME).read_text()
        run.wait_for("measured", DEADLINE_S)
        at_last: list[bool] = []
        killed = run.kill(lambda: at_last.append(run.server.running))
        assert at_last == [True] and killed.processes[0].pid == run.pid
        assert run.kill() == killed
        begin_us, end_us = ((ns + run._wall_less_monotonic_ns) // 1000 for ns in run._window_ns)
        lines = read(log_prefix(place, RUN))
        inside = [line for line in lines if begin_us <= line.ended_us < end_us]
        measured = run.figures()
        assert measured["operations"] == len(inside) > 0
        assert len(lines) > len(inside), "it went on before and behind the window"
        assert measured["seconds"] >= 1.0 and {line.client for line in inside} == {0, 1}
        assert measured["throughput_per_s"] == pytest.approx(len(inside) / measured["seconds"])
        operation = measured["per_operation"][NAME]
        assert operation["errors"] == 0 and operation["min_us"] <= operation["p50_us"] <= operation["max_us"]


@pytest.mark.slow
def test_a_rate_with_a_limit_skips_what_comes_too_late(lab: PostgresqlLab) -> None:
    """A transaction takes longer than the limit, so those that are due meanwhile are skipped."""
    script = "INSERT INTO pgbench_history (tid) VALUES (1);\n\\sleep 30 ms\n"
    with started(lab, MEASURED, script, rate_per_s=400.0, latency_limit_ms=5.0) as (run, _):
        run.wait_for("measured", DEADLINE_S)
        run.kill()
        measured = run.figures()
        assert measured["skipped"] > 0 and measured["operations"] > 0
        assert "intended_p50_us" in measured["per_operation"][NAME]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words", "hint"),
    [
        ("INSERT INTO nowhere VALUES (1);", 'relation "nowhere" does not exist', "by hand"),
        ("BEGIN; UPDATE pgbench_tellers SET tbalance = 1 / 0; END;", "division by zero", "by hand"),
        ("SET statement_timeout = 1; SELECT pg_sleep(1);", "statement timeout", "statement_timeout is what"),
    ],
)
def test_a_script_that_fails_at_once_is_told_in_pgbenchs_words(
    lab: PostgresqlLab, script: str, words: str, hint: str
) -> None:
    with (
        pytest.raises(InvalidInput, match="pgbench ended") as caught,
        started(lab, LONG, script) as (run, _),
    ):
        run.wait_for("measured", DEADLINE_S)
    assert words in caught.value.what and "wrapped" not in caught.value.what
    assert hint in caught.value.hint


@pytest.mark.slow
def test_settings_that_end_the_look_at_them_are_told(lab: PostgresqlLab) -> None:
    """The view of the settings takes more than the smallest work_mem, and then a file."""
    ends = {"temp_file_limit": "0", "work_mem": "64"}
    with (
        pytest.raises(InvalidInput, match="no session can tell what is in force") as caught,
        started(lab, MEASURED, settings=ends),
    ):
        pytest.fail("it was started")
    assert caught.value.hint.startswith("temp_file_limit is what ends it")


COMMITS_ITSELF = """
CREATE TABLE t (a int);
CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t VALUES (1); COMMIT; END $$;
"""


@pytest.mark.slow
@pytest.mark.parametrize("alone", ["CALL p();", "INSERT INTO t VALUES (1); VACUUM t;"])
def test_what_takes_no_transaction_is_told_that_it_was_wrapped(lab: PostgresqlLab, alone: str) -> None:
    """And with the transaction that the hint asks for it runs, of one client: a VACUUM tries for five seconds
    to get the lock under which it cuts off a table's empty end, as long as another client waits for it."""
    with (
        pytest.raises(
            InvalidInput, match="no BEGIN of its own, so it was wrapped in BEGIN and END"
        ) as caught,
        started(lab, LONG, alone, init_sql=COMMITS_ITSELF) as (run, _),
    ):
        run.wait_for("measured", DEADLINE_S)
    wanted = "BEGIN; SELECT 1; COMMIT;"
    assert wanted in caught.value.hint
    alone_on_it = Plan(1, 1, measure_s=1.0)
    with started(lab, alone_on_it, f"{alone} {wanted}", init_sql=COMMITS_ITSELF) as (run, _):
        run.wait_for("measured", DEADLINE_S)
        run.kill()
        assert run.figures()["operations"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_a_pgbench_that_is_killed_from_outside_is_not_the_scripts_fault(
    lab: PostgresqlLab, number: signal.Signals
) -> None:
    with (
        pytest.raises(Undecided, match=f"pgbench was ended by signal {number.name}"),
        started(lab, LONG) as (run, _),
    ):
        run.wait_for("warming", DEADLINE_S)
        os.kill(run.client.identity.pid, number)
        run.wait_for("measured", DEADLINE_S)


def killing(what: str) -> Callable[[PgbenchRun], None]:
    """Kills the postmaster, or the first of its processes with these words in its title."""

    def kill(run: PgbenchRun) -> None:
        children = psutil.Process(run.pid).children()
        titles = {child.pid: " ".join(child.cmdline()) for child in children} if what else {run.pid: ""}
        os.kill(next(pid for pid, title in titles.items() if what in title), signal.SIGKILL)

    return kill


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kill", "clients"),
    [(killing(""), 1), (killing("postgres postgres [local]"), 1), (killing("checkpointer"), 4)],
    ids=["postmaster", "backend", "checkpointer"],
)
def test_a_server_that_something_else_ends_is_not_the_settings_fault(
    lab: PostgresqlLab, kill: Callable[[PgbenchRun], None], clients: int
) -> None:
    plan = Plan(clients, 1, warmup_s=DEADLINE_S, measure_s=DEADLINE_S)
    with (
        pytest.raises(ServerDied, match=r"signal (9|SIGKILL)"),
        started(lab, plan) as (run, place),
    ):
        run.wait_for("warming", DEADLINE_S)
        while not any(place.glob("run-log.*")):
            with pytest.raises(DeadlinePassed):
                run.wait_for("measured", 0.05)
        kill(run)
        run.wait_for("measured", DEADLINE_S)
