from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.postgresql import session as session_module
from engines.postgresql.cluster import Cluster
from engines.postgresql.server import Address, Server, start
from engines.postgresql.session import ConnectionLost, Session, StatementFailed
from engines.process import DeadlinePassed
from engines.scratch import Scratch
from knobs.errors import MachineLacks, Undecided

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(template: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all of this file; its state folder is not a test's own, so it has one here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        clone = template.clone(tmp_path_factory.mktemp("session"))
        with Scratch() as scratch, start(clone, {}, scratch=scratch, watcher=None) as running:
            yield running


def test_rows_are_text(server: Server) -> None:
    with Session(server.address) as session:
        rows = session.query("select 1, null, true, $1::text, $2::text", ["ü'\\", None])
        assert rows == [("1", None, "t", "ü'\\", None)]
        assert session.query("create temporary table t (n int)") == []
        assert session.query("select * from t") == []


def test_one_value(server: Server) -> None:
    with Session(server.address) as session:
        assert session.value("select $1::int + 1", ["41"]) == "42"
        for statement in ("select null", "select 1, 2", "select 1 where false", "values (1), (2)"):
            with pytest.raises(Undecided, match="one value was expected"):
                session.value(statement)


def test_who_connects_and_how(server: Server) -> None:
    with Session(server.address, "template1", options="-c work_mem=9MB") as session:
        assert session.query("select current_database(), current_user, current_setting('work_mem')") == [
            ("template1", "postgres", "9MB")
        ]


def test_no_limit_of_the_servers_ends_duratunes_own_statements(server: Server) -> None:
    """A client of the load has them."""
    names = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "temp_file_limit"]
    version = server.cluster.binaries.version.major
    names += ["idle_session_timeout"] if version >= 14 else []
    names += ["transaction_timeout"] if version >= 17 else []
    with Session(server.address) as session:
        for name in names:
            session.query(f"alter role postgres set {name} = 1000")
        session.query("alter role postgres set default_transaction_read_only = on")
    shown = ", ".join(f"current_setting('{name}')" for name in [*names, "default_transaction_read_only"])
    try:
        with Session(server.address, is_clients=True) as session:
            assert set(session.query(f"select {shown}")[0]) == {"1s", "1000kB", "on"}
        with Session(server.address) as session:
            assert set(session.query(f"select {shown}")[0]) == {"0", "-1", "off"}
    finally:
        with Session(server.address) as session:
            session.query("alter role postgres reset all")


def test_a_refused_statement_leaves_the_connection(server: Server) -> None:
    with Session(server.address) as session:
        with pytest.raises(StatementFailed, match="division by zero") as caught:
            session.query("select 1 / 0")
        assert caught.value.sqlstate == "22012" and caught.value.where == "select 1 / 0"
        assert session.value("select 1") == "1"


def test_a_refused_connection(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ConnectionLost, match='database "absent" does not exist'):
        Session(server.address, "absent")
    with pytest.raises(ConnectionLost, match="No such file or directory"):
        Session(Address(tmp_path))


def test_a_statement_that_takes_too_long(server: Server) -> None:
    with Session(server.address) as session:
        with pytest.raises(DeadlinePassed, match="does not answer in time"):
            session.query("select pg_sleep(60)", deadline_s=0.2)
        with pytest.raises(ConnectionLost):
            session.query("select 1")


def test_a_server_that_answers_nothing(server: Server) -> None:
    """Stopped, it takes the connection (the kernel does) and then says nothing for ever."""
    os.kill(server.identity.pid, signal.SIGSTOP)
    try:
        with pytest.raises(DeadlinePassed) as caught:
            Session(server.address, deadline_s=0.2)
        assert caught.value.where == "connection"
    finally:
        os.kill(server.identity.pid, signal.SIGCONT)
    with Session(server.address) as session:
        assert session.value("select 1") == "1"


def test_without_libpq(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg.pq", None)
    with pytest.raises(MachineLacks) as caught:
        Session(server.address)
    assert "libpq5" in caught.value.hint and session_module.CONNECT_DEADLINE_S > 0
