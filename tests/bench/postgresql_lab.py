"""A lab with PostgreSQL for commands that measure it, and where a page says that its figures come from."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crashlab.preload.recorder import PreloadRecorder
from crashlab.subject import Subject
from crashlab.validate import Lab
from engines import host
from engines.postgresql import binaries, server_user
from engines.postgresql.engine import PostgresqlEngine
from engines.provenance import version
from engines.scratch import Scratch
from engines.supervisor import Supervisor
from tests.crashlab_tests.proof_journal import Journal
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


def command_line(target: str, module: str, arguments: Sequence[str]) -> str:
    """How a page was made: the target of make, or the module where it was given arguments."""
    return shlex.join(["python", "-m", module, *arguments]) if arguments else f"make {target}"


def with_load(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result to be noted, with how busy the machine was when it was made."""
    return {**result, "load_average": os.getloadavg()[0]}


def origin(command: str, place: PostgresqlLab, journal: Journal) -> list[str]:
    """The list at the top of a page: where the figures in the journal come from."""
    machine = host.describe()
    loads = [line["load_average"] for line in journal.results.values() if "load_average" in line]
    load = f"{min(loads):.1f} to {max(loads):.1f} when they were measured" if loads else "not noted"
    return [
        f"- command: `{command}`",
        f"- date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"- duratune: {version()}, commit {', '.join(journal.commits)}",
        f"- host: {machine.cpus} x {machine.cpu_model}, {machine.memory_bytes / 2**30:.0f} GiB, "
        f"Linux {machine.kernel}, {host.file_system(place.lab.data).type}",
        f"- engine: PostgreSQL {place.engine.version()}",
        f"- load average: {load}; its own share is about the number of cores",
    ]
