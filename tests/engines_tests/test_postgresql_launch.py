"""Templates: loaded clusters of which every run has a clone."""

from __future__ import annotations

from pathlib import Path

from engines.postgresql.binaries import Binaries
from engines.postgresql.launch import LOAD_SETTINGS, NEUTRAL_SETTINGS, Servers
from engines.postgresql.server import Server
from engines.postgresql.server_user import ServerUser
from engines.postgresql.session import Session
from engines.scratch import Scratch

DEADLINE_S = 120.0


def load(server: Server) -> None:
    """What SQL of a user's may do: a database of its own, and one of PostgreSQL's fewer."""
    with Session(server.address) as session:
        session.query("CREATE DATABASE mine TEMPLATE template0")
        session.query("update pg_catalog.pg_database set datistemplate = false where datname = 'template0'")
        session.query("DROP DATABASE template0")


def test_a_template_has_no_database_to_copy(
    installed: Binaries, user: ServerUser, scratch: Scratch, tmp_path: Path
) -> None:
    servers = Servers(installed, user, scratch, None, tmp_path)
    template = servers.template("loaded", load, DEADLINE_S)
    assert servers.template("loaded", load, DEADLINE_S) is template
    folder = scratch.folder(tmp_path, "clone")
    clone = template.clone(folder)
    for settings in (LOAD_SETTINGS, NEUTRAL_SETTINGS):
        with servers.start(clone, settings) as server:
            with Session(server.address) as session:
                names = session.query("select datname from pg_catalog.pg_database order by datname")
            server.stop()
        assert names == [("mine",), ("postgres",)]
    assert len(list((clone.data / "base").iterdir())) == len(names)
