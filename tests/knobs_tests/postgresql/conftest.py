"""The servers of this machine, for the tests that compare the catalogue with a real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from knobs.postgresql import catalogue, server
from tests.knobs_tests.postgresql import clusters


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bindir" in metafunc.fixturenames:
        found = clusters.bindirs()
        none = pytest.param(None, marks=pytest.mark.skip(reason="no PostgreSQL server is installed"))
        metafunc.parametrize("bindir", found or [none], ids=str, scope="session")


@pytest.fixture(scope="session")
def data(bindir: Path) -> Iterator[Path]:
    """A data directory made by that server; a test that starts it writes its postgresql.conf anew."""
    with clusters.cluster(bindir) as folder:
        yield folder


@pytest.fixture
def own(bindir: Path) -> catalogue.PostgresqlCatalogue:
    """The catalogue of that server's version."""
    return catalogue.load(server.version_text(bindir))
