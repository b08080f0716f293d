"""Loading for pgbench: a template for each way of loading, cloned for each instance; what goes wrong."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engines.postgresql.launch import PostgresqlLaunch
from engines.postgresql.readback import read
from engines.postgresql.refusal import ServerDied
from engines.postgresql.server import Server
from engines.postgresql.session import Session
from engines.process import Child
from knobs.errors import InvalidInput, MachineLacks, Undecided
from tests.engines_tests.postgresql_engines import PostgresqlLab, nothing_left, open_postgresql
from workloads.pgbench.options import PgbenchOptions
from workloads.pgbench.workload import PgbenchWorkload
from workloads.workload import Plan

pytestmark = pytest.mark.slow

TPCB = PgbenchWorkload("pgbench:tpcb-like")


@pytest.fixture(scope="module")
def lab() -> Iterator[PostgresqlLab]:
    with open_postgresql() as lab:
        yield lab


def loaded(lab: PostgresqlLab, workload: PgbenchWorkload, **settings: str) -> PostgresqlLaunch:
    """A new instance with its data; its folder is closed again when the lab is."""
    place = lab.place("loaded")
    launch: PostgresqlLaunch = lab.engine.launch(settings, place)
    workload.load(launch, place, 1)
    return launch


def values(server: Server, *queries: str) -> list[str]:
    with Session(server.address) as session:
        return [session.value(query) for query in queries]


def templates(lab: PostgresqlLab) -> list[Path]:
    return sorted(lab.folder.glob("duratune-template-*"))


COUNTS = [f"select count(*) from pgbench_{table}" for table in ("accounts", "tellers", "branches", "history")]


def test_every_instance_is_a_clone_and_is_its_own(lab: PostgresqlLab) -> None:
    first = loaded(lab, TPCB)
    made = templates(lab)
    second = loaded(lab, TPCB)
    assert templates(lab) == made, "the second is a clone of the same template"
    with first.start() as server:
        assert values(server, *COUNTS) == ["100000", "10", "1", "0"]
        assert values(server, "select count(*) from duratune_rider") == ["0"]
        assert values(server, "select count(*) from pg_extension where extname = 'amcheck'") == ["1"]
        values(server, "delete from pgbench_branches returning bid")
        server.stop()
    with second.start() as server:
        assert values(server, *COUNTS) == ["100000", "10", "1", "0"]
        assert "not properly shut down" not in str(server.messages()), "a template was stopped cleanly"


def test_another_scale_is_another_template(lab: PostgresqlLab) -> None:
    loaded(lab, TPCB)
    before = len(templates(lab))
    double = TPCB.with_options(scale=2)
    with loaded(lab, double).start() as server:
        assert values(server, *COUNTS) == ["200000", "20", "2", "0"]
    assert len(templates(lab)) == before + 1
    assert double.data_bytes == 2 * TPCB.data_bytes


INIT = """\
ALTER ROLE postgres SET synchronous_commit = off;
CREATE INDEX beside ON pgbench_history (aid);
"""


def test_unlogged_tables_and_sql_behind_the_load(lab: PostgresqlLab) -> None:
    with loaded(lab, TPCB.with_options(unlogged_tables=True, init_sql=INIT)).start() as server:
        unlogged = "select string_agg(relname, ' ' order by relname) from pg_class"
        assert values(server, f"{unlogged} where relpersistence = 'u' and relkind = 'r'") == [
            "duratune_rider pgbench_accounts pgbench_branches pgbench_history pgbench_tellers"
        ]
        assert values(server, "select count(*) from pg_indexes where indexname = 'beside'") == ["1"]
        with Session(server.address) as session:
            (added,) = read(session).role_settings
        assert (added.role, added.name, added.value) == ("postgres", "synchronous_commit", "off")


@pytest.mark.parametrize(
    ("script", "fate"),
    [
        ("INSERT INTO gone VALUES (1);", "u"),
        ("INSERT INTO kept VALUES (1);", "p"),
        ("SELECT a FROM gone; INSERT INTO kept VALUES (1);", "p"),
        ("INSERT INTO seen VALUES (1);", "u"),
        ("INSERT INTO parent VALUES (1);", "u"),
        ("INSERT INTO watched VALUES (1);", "u"),
        ("SELECT place(1);", "u"),
        # It fails in the trial, so what it names counts.
        ("INSERT INTO gone VALUES (1 / 0);", "u"),
    ],
)
def test_the_rider_shares_the_fate_of_what_the_script_writes(
    lab: PostgresqlLab, script: str, fate: str
) -> None:
    sql = """
    CREATE UNLOGGED TABLE gone (a int); CREATE TABLE kept (a int); CREATE VIEW seen AS SELECT a FROM gone;
    CREATE TABLE parent (a int) PARTITION BY LIST (a); CREATE UNLOGGED TABLE part PARTITION OF parent DEFAULT;
    CREATE FUNCTION place(v int) RETURNS void LANGUAGE sql AS 'INSERT INTO gone VALUES (v)';
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO gone VALUES (NEW.a); RETURN NEW; END $$;
    CREATE TABLE watched (a int);
    CREATE TRIGGER noted AFTER INSERT ON watched FOR EACH ROW EXECUTE FUNCTION note();
    """
    with loaded(lab, TPCB.with_options(init_sql=sql, script=script)).start() as server:
        rider = "select relpersistence from pg_class where relname = 'duratune_rider'"
        assert values(server, rider) == [fate]
        for table in ("gone", "kept", "part", "duratune_rider"):
            assert values(server, f"select count(*) from {table}") == ["0"], "the trial left nothing"
        assert values(server, "select count(*) from pg_database where datname ~ 'duratune'") == ["0"]


BY_DATABASE = """
CREATE SCHEMA app; CREATE UNLOGGED TABLE app.gone (a int); CREATE VIEW app.seen AS SELECT a FROM app.gone;
ALTER DATABASE postgres SET search_path = app;
"""


def test_the_trial_has_what_the_database_sets(lab: PostgresqlLab) -> None:
    script = "INSERT INTO seen VALUES (1);"
    with loaded(lab, TPCB.with_options(init_sql=BY_DATABASE, script=script)).start() as server:
        rider = "select relpersistence from pg_class where relname = 'duratune_rider'"
        assert values(server, rider) == ["u"]


def test_the_trial_counts_although_the_database_does_not(lab: PostgresqlLab) -> None:
    sql = "CREATE UNLOGGED TABLE gone (a int); ALTER DATABASE postgres SET track_counts = off;"
    with loaded(
        lab, TPCB.with_options(init_sql=sql, script="INSERT INTO gone VALUES (1);")
    ).start() as server:
        rider = "select relpersistence from pg_class where relname = 'duratune_rider'"
        assert values(server, rider) == ["u"]


def test_a_branch_that_may_write_to_an_unlogged_table_later_is_undecided(lab: PostgresqlLab) -> None:
    sql = "CREATE UNLOGGED TABLE gone (a int); CREATE TABLE kept (a int);"
    script = "\\if false\nINSERT INTO gone VALUES (1);\n\\endif\nINSERT INTO kept VALUES (1);"
    place = lab.place("refused")
    with nothing_left(), pytest.raises(Undecided, match="names gone, an unlogged table, and wrote nothing"):
        TPCB.with_options(init_sql=sql, script=script).load(lab.engine.launch({}, place), place, 1)


def test_a_trial_that_fails_decides_nothing(lab: PostgresqlLab) -> None:
    """Nor is it held that such a script writes to logged tables alone."""
    place = lab.place("refused")
    workload = TPCB.with_options(init_sql=BY_DATABASE, script="INSERT INTO nowhere VALUES (1);")
    with nothing_left(), pytest.raises(Undecided, match="whether it writes to gone, an unlogged table"):
        workload.load(lab.engine.launch({}, place), place, 1)


@pytest.mark.parametrize("behind", ["ALTER TABLE pgbench_history SET TABLESPACE ts;", "SELECT 1 / 0;"])
def test_a_tablespace_outside_is_refused_and_nothing_stays_in_it(lab: PostgresqlLab, behind: str) -> None:
    place, outside = lab.place("refused"), lab.place("outside")
    lab.engine.user.give(outside)
    sql = f"CREATE TABLESPACE ts LOCATION '{outside}'; {behind}"
    with nothing_left(), pytest.raises(InvalidInput, match="tablespace ts lies outside") as caught:
        TPCB.with_options(init_sql=sql).load(lab.engine.launch({}, place), place, 1)
    assert caught.value.where == "--init-sql"
    assert list(outside.glob("PG_*")) == []


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("CREATE INDEX x ON nowhere (a);", 'relation "nowhere" does not exist'),
        ("ALTER ROLE postgres SET no_such_setting = 1;", "no_such_setting"),
        ("SELEKT 1;\nCREATE TABLE never ();", "syntax error"),
    ],
)
def test_sql_that_fails_is_told_in_its_own_words_and_leaves_nothing(
    lab: PostgresqlLab, sql: str, words: str
) -> None:
    before = templates(lab)
    place = lab.place("refused")
    with nothing_left(), pytest.raises(InvalidInput, match=words) as caught:
        TPCB.with_options(init_sql=sql).load(lab.engine.launch({}, place), place, 1)
    assert caught.value.where == "--init-sql"
    assert templates(lab) == before and not (place / "db").exists()


def test_a_server_that_is_killed_during_the_load_is_not_the_loads_fault(
    lab: PostgresqlLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel does it at the end of its memory: one backend, while the load is under way."""
    before, place = templates(lab), lab.place("died")
    original = PgbenchWorkload._to_end

    def killed_meanwhile(self: PgbenchWorkload, server: Server, program: str, *rest: object) -> None:
        killer = threading.Thread(target=kill_a_backend, args=(server,))
        killer.start()
        try:
            original(self, server, program, *rest)  # type: ignore[arg-type]  # what it was called with
        finally:
            killer.join()

    monkeypatch.setattr(PgbenchWorkload, "_to_end", killed_meanwhile)
    with nothing_left(), pytest.raises(ServerDied, match="terminated by signal 9"):
        TPCB.with_options(scale=3).load(lab.engine.launch({}, place), place, 1)
    assert templates(lab) == before


def kill_a_backend(server: Server) -> None:
    busy = "select min(pid)::text from pg_stat_activity where application_name = 'pgbench' and query <> ''"
    with Session(server.address) as session:
        while not (found := session.query(busy)[0][0]):
            session.query("select pg_sleep(0.01)")
    os.kill(int(found), signal.SIGKILL)


def test_a_disk_that_is_full_during_the_load_is_the_machines(
    lab: PostgresqlLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words are planted: what pgbench says then ends with those of the system."""
    full = "error: PQputline failed: could not extend file: No space left on device"
    monkeypatch.setattr(Child, "log_tail", lambda _: full)
    place = lab.place("full")
    with nothing_left(), pytest.raises(MachineLacks, match="No space left"):
        TPCB.with_options(init_sql="SELECT 1/0;").load(lab.engine.launch({}, place), place, 1)


def test_a_built_in_script_that_there_is_not(lab: PostgresqlLab) -> None:
    launch, folder = loaded(lab, TPCB), lab.place("unknown")
    with nothing_left(launch.cluster.data), pytest.raises(InvalidInput, match="no script of pgbench's own"):
        replace(TPCB, name="pgbench:tpcb", options=PgbenchOptions()).start(launch, Plan(1, 1), folder)
