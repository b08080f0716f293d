"""A PostgreSQL that launches: an engine in a lab of its own, which leaves nothing behind."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from engines.identity import own_identity
from engines.postgresql import binaries, server_user, shared_memory
from engines.postgresql.engine import PostgresqlEngine
from engines.process import owned_by
from engines.scratch import MARKER_NAME, Scratch
from knobs.errors import MachineLacks


@dataclass(frozen=True)
class PostgresqlLab:
    """``folder`` lets the server's user pass; what is made in it is noted in ``scratch``."""

    engine: PostgresqlEngine
    scratch: Scratch
    folder: Path

    def place(self, name: str) -> Path:
        """A new folder for one instance."""
        return self.scratch.folder(self.folder, name)


@contextmanager
def open_postgresql(*, checksums: bool = True) -> Iterator[PostgresqlLab]:
    """Skips where there is no PostgreSQL; asserts that nothing is there afterwards."""
    try:
        found = binaries.find()
    except MachineLacks as error:
        pytest.skip(str(error))
    before = traces()
    with tempfile.TemporaryDirectory(prefix="state") as state, pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_STATE_HOME", state)
        with Scratch() as scratch:
            folder = scratch.folder(Path(tempfile.gettempdir()), "lab")
            folder.chmod(0o711)
            engine = PostgresqlEngine(found, server_user.choose(), checksums)
            yield PostgresqlLab(engine.bound(scratch, None, folder), scratch, folder)
    assert traces() <= before, "the lab left something behind"


@contextmanager
def nothing_left(*data: Path) -> Iterator[None]:
    """What goes on inside leaves no process, no scratch folder and none of these clusters' shared memory."""
    before = traces()
    yield
    assert traces() <= before
    assert [name for folder in data if folder.exists() for name in shared_memory.names(folder)] == []


def traces() -> set[str]:
    """The processes that this one has started, and the scratch folders and files that it has made.

    Clusters, sockets and ledgers all lie in scratch folders.
    """
    own = own_identity()
    mark = f"{own.pid}-{own.start_ticks}-"
    found = {f"process {process}" for process in owned_by(own)}
    for place in (Path("/dev/shm"), Path("/tmp"), Path(tempfile.gettempdir())):
        for path in place.glob("duratune-*"):
            marker = path / MARKER_NAME
            if path.name.startswith(f"duratune-{mark}") or (
                marker.is_file() and marker.read_text().startswith(mark)
            ):
                found.add(str(path))
    return found
