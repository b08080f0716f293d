"""What the tests of the engines share: one empty PostgreSQL cluster, made once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.postgresql import binaries, server_user
from engines.postgresql.binaries import Binaries
from engines.postgresql.cluster import Cluster, create
from engines.postgresql.server_user import ServerUser
from engines.scratch import Scratch
from knobs.errors import MachineLacks


@pytest.fixture(scope="session")
def installed() -> Binaries:
    """The PostgreSQL of this machine; the tests that need one are skipped where there is none."""
    try:
        return binaries.find()
    except MachineLacks as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def user() -> ServerUser:
    return server_user.choose()


@pytest.fixture(scope="session")
def template(installed: Binaries, user: ServerUser, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """An empty cluster that no test starts. pytest's folder is closed to others, so where root runs the
    tests the server's user cannot pass the folders above it."""
    return create(installed, user, tmp_path_factory.mktemp("template"))


@pytest.fixture
def cluster(template: Cluster, tmp_path: Path) -> Cluster:
    """A clone of it, this test's own."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    return template.clone(folder)


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    with Scratch() as opened:
        yield opened


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run the server as somebody else")
