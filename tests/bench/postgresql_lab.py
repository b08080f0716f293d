"""A lab with PostgreSQL for commands that measure it, and where a page says that its figures come from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from crashlab.preload.recorder import PreloadRecorder
from crashlab.subject import Subject
from crashlab.validate import Lab
from engines import host
from engines.postgresql import binaries, server_user
from engines.postgresql.engine import PostgresqlEngine
from engines.provenance import commit, version
from engines.scratch import Scratch
from engines.supervisor import Supervisor
from workloads.pgbench.workload import PgbenchWorkload

CHECKOUT = Path(__file__).resolve().parents[2]
RESULTS = CHECKOUT / "results"
WORKLOAD = "pgbench:tpcb-like"
DATA = Path("/var/tmp")
"""Where the clusters lie unless told otherwise: a disk, for /tmp may be memory."""


@dataclass(frozen=True)
class PostgresqlLab:
    """A lab and the newest PostgreSQL of this machine in it, under pgbench's tpcb-like script."""

    lab: Lab
    engine: PostgresqlEngine
    supervisor: Supervisor

    def subject(self, settings: dict[str, str], clients: int, scale: int = 1) -> Subject:
        """These settings over the defaults."""
        workload = PgbenchWorkload(WORKLOAD, watcher=self.supervisor).with_options(scale=scale)
        return Subject(self.engine, workload, settings, clients)


@contextmanager
def postgresql_lab(data: Path = DATA) -> Iterator[PostgresqlLab]:
    """A lab whose processes and paths below ``data`` are gone afterwards."""
    with Supervisor() as supervisor, Scratch() as scratch:
        engine = PostgresqlEngine(binaries.find(), server_user.choose())
        folder = scratch.folder(data, "measure")
        bound = engine.bound(scratch, supervisor, folder)
        yield PostgresqlLab(Lab(PreloadRecorder(), scratch, folder), bound, supervisor)


@dataclass(frozen=True)
class Origin:
    """What a page says of where its figures come from; taken when the work begins."""

    command: str
    engine: str
    file_system: str
    load_before: float

    @staticmethod
    def now(command: str, place: PostgresqlLab) -> Origin:
        """Of figures that are measured from now on."""
        version = f"PostgreSQL {place.engine.version()}"
        return Origin(command, version, host.file_system(place.lab.data).type, os.getloadavg()[0])

    def lines(self) -> list[str]:
        """The list at the top of the page."""
        machine = host.describe()
        return [
            f"- command: `{self.command}`",
            f"- date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            f"- duratune: {version()}, commit {commit() or 'unknown'}",
            f"- host: {machine.cpus} x {machine.cpu_model}, {machine.memory_bytes / 2**30:.0f} GiB, "
            f"Linux {machine.kernel}, {self.file_system}",
            f"- engine: {self.engine}",
            f"- load average: {self.load_before:.1f} before, {os.getloadavg()[0]:.1f} after; "
            "its own share is about the number of cores",
        ]
