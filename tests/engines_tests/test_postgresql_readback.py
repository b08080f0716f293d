from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.postgresql import cluster as cluster_module
from engines.postgresql.cluster import Cluster
from engines.postgresql.readback import Difference, Readback, compare, read
from engines.postgresql.server import Server, start
from engines.postgresql.session import Session
from engines.scratch import Scratch

pytestmark = pytest.mark.slow

PROPOSED = {
    "work_mem": "8MB",
    "synchronous_commit": "on",
    "max_connections": "40",
    "wal_buffers": "-1",
    "Random_Page_Cost": "1.5",
    "fsync": "yes",
}


@pytest.fixture
def server(cluster: Cluster) -> Iterator[Server]:
    with Scratch() as scratch, start(cluster, PROPOSED, scratch=scratch, watcher=None) as running:
        yield running


def back(server: Server, database: str = "postgres", user: str = "postgres", options: str = "") -> Readback:
    """As the load's session has it, with a superuser beside it."""
    with (
        Session(server.address, database, user=user, options=options) as load,
        Session(server.address) as superuser,
    ):
        return read(load, superuser)


def differences(server: Server, **session: str) -> dict[str, Difference]:
    found = compare(PROPOSED, back(server, **session))
    return {difference.name: difference for difference in found}


def run(server: Server, *statements: str) -> None:
    with Session(server.address) as session:
        for statement in statements:
            session.query(statement)


def test_what_is_in_force_as_proposed(server: Server) -> None:
    with Session(server.address) as session:
        alone = read(session)
    work_mem = alone.settings["work_mem"]
    assert (work_mem.value, work_mem.unit, work_mem.source) == ("8192", "kB", "configuration file")
    assert Path(work_mem.file).name == "postgresql.conf" and work_mem.line == 2
    assert alone.values()["fsync"] == "on" and alone.pending_restart == [] and alone.file_errors == []
    assert alone.settings["port"].source == "command line"
    # Other spellings of a value or a name are no difference; what the server computes itself is one.
    assert {found.name: found.why for found in compare(PROPOSED, alone)} == {
        "wal_buffers": "the server chose the value itself"
    }
    assert back(server).values().keys() == alone.values().keys()


def test_an_unknown_setting(server: Server) -> None:
    (found,) = compare({"no_such": "1"}, back(server))
    assert found.effective is None and "does not know" in found.why


ADDED = [
    ("alter role postgres", "user", "role postgres: synchronous_commit=off"),
    ("alter database postgres", "database", "ALTER DATABASE"),
    ("alter role all", "global", "everywhere"),
    ("alter role postgres in database postgres", "database user", "role postgres, database postgres"),
]


def test_what_a_role_or_a_database_adds(server: Server) -> None:
    run(server, "create database other", "create role other login superuser")
    for subject, source, why in ADDED:
        assert "synchronous_commit" not in differences(server)
        run(server, f"{subject} set synchronous_commit = off")
        found = differences(server)["synchronous_commit"]
        assert (found.effective, found.source) == ("off", source) and why in found.why
        (entry,) = back(server).role_settings
        assert (entry.name, entry.value) == ("synchronous_commit", "off")
        # Another role in another database has it only from a setting for all.
        elsewhere = differences(server, database="other", user="other")
        assert ("synchronous_commit" in elsewhere) == (source == "global")
        run(server, f"{subject} reset synchronous_commit")


def test_what_the_connection_adds(server: Server) -> None:
    found = differences(server, options="-c synchronous_commit=local")["synchronous_commit"]
    assert (found.effective, found.source, found.why) == (
        "local",
        "client",
        "an option of the connection wins",
    )


def test_alter_system(server: Server) -> None:
    run(server, "alter system set work_mem = '9MB'", "alter system set max_connections = 50")
    run(server, "select pg_reload_conf()")
    with Session(server.address) as session:
        while session.value("show work_mem") != "9MB":
            session.query("select pg_sleep(0.01)")
    found = differences(server)
    assert found["work_mem"].why == "ALTER SYSTEM wins" and found["work_mem"].effective == "9216"
    assert found["max_connections"].why == "it takes effect at the next start"
    assert back(server).pending_restart == ["max_connections"]


def test_a_line_that_the_server_refuses(server: Server) -> None:
    text = server.configuration.text.replace("'8MB'", "'8 cats'")
    cluster_module.write(server.cluster, "postgresql.conf", text)
    readback = back(server)
    (error,) = readback.file_errors
    assert (error.name, error.value, error.line) == ("work_mem", "8 cats", 2)
    (found,) = compare({"work_mem": "8 cats"}, readback)
    assert "line 2 of postgresql.conf is refused" in found.why


def test_what_a_role_may_not_see(server: Server) -> None:
    """A role that is no superuser is not shown all settings, nor where they come from."""
    run(server, "create role plain login")
    readback = back(server, user="plain")
    assert "data_directory" in readback.hidden and readback.role == "plain"
    assert readback.settings["work_mem"].line == 2
    assert differences(server, user="plain").keys() == {"wal_buffers"}


def test_the_same_value_from_elsewhere_is_no_difference(server: Server) -> None:
    run(server, "alter role postgres set synchronous_commit = on")
    assert "synchronous_commit" in differences(server)
    base = {"synchronous_commit": "on"}
    assert compare(base, back(server), normalise=lambda _, value: value) == []
    assert compare({"synchronous_commit": "off"}, back(server), normalise=lambda _, value: value)
