"""Every version of PostgreSQL that is here is created, started, killed, recovered and stopped.

They are the distribution's and the newest one that `make test` sets up.
DURATUNE_TEST_BINDIRS names further folders of programs, parted by colons; they must be readable for the
server's user.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engines.postgresql import binaries, shared_memory
from engines.postgresql.binaries import DEBIAN_FOLDER, Binaries
from engines.postgresql.cluster import create
from engines.postgresql.memory import ask
from engines.postgresql.readback import compare, read
from engines.postgresql.refusal import StartRefused
from engines.postgresql.server import start
from engines.postgresql.server_user import ServerUser
from engines.postgresql.session import Session
from engines.scratch import Scratch
from tests.engines_tests import newest_postgresql

NAMED = [Path(name) for name in os.environ.get("DURATUNE_TEST_BINDIRS", "").split(":") if name]
FOLDERS = [*sorted(DEBIAN_FOLDER.glob("*/bin")), *NAMED]


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder", FOLDERS or [pytest.param(None, marks=pytest.mark.skip("no PostgreSQL is installed"))], ids=str
)
@pytest.mark.parametrize("checksums", [True, False])
def test_a_version(folder: Path, checksums: bool, user: ServerUser, tmp_path: Path) -> None:
    _is_created_started_killed_recovered_and_stopped(binaries.find(folder), user, tmp_path, checksums)


@pytest.mark.slow
@pytest.mark.parametrize("checksums", [True, False])
def test_the_newest(checksums: bool, user: ServerUser, tmp_path: Path) -> None:
    with newest_postgresql.unpacked() as found:
        _is_created_started_killed_recovered_and_stopped(found, user, tmp_path, checksums)


def _is_created_started_killed_recovered_and_stopped(
    found: Binaries, user: ServerUser, folder: Path, checksums: bool
) -> None:
    made = create(found, user, folder, checksums=checksums)
    with Scratch() as scratch:
        with (
            start(made, {"work_mem": "8MB"}, scratch=scratch, watcher=None) as server,
            Session(server.address) as session,
        ):
            assert session.value("show data_checksums") == ("on" if checksums else "off")
            assert session.value("show server_version").startswith(str(made.binaries.version))
            assert compare(server.configuration.proposed, read(session)) == []
            session.query("create extension amcheck")
            session.query("create table t as select generate_series(1, 100) as n")
            segments = shared_memory.names(made.data)
            assert len(segments) >= 2
            with made.seen() as seen:
                assert ask(made, server.configuration, seen) is None  # In use: it would not start.
            assert len(server.kill().processes) >= 5
        assert not [name for name in segments if name.startswith("/") and Path(name).exists()]
        with start(made, {}, scratch=scratch, watcher=None) as server, Session(server.address) as session:
            assert session.value("select count(*) from t") == "100"
            session.close()
            with made.seen() as seen:
                server.stop()
                wanted = ask(made, server.configuration, seen)
            assert wanted is not None and wanted.shared_buffers_bytes == 128 << 20
        with pytest.raises(StartRefused) as caught:
            start(made, {"no_such_setting": "1"}, scratch=scratch, watcher=None)
        assert caught.value.cause == "settings"
    made.sync()
