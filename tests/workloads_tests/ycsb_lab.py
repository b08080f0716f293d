"""Real PostgreSQL servers for the tests of YCSB: loaded clusters, stamping recorders, ledgers."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from crashlab.copying import clone_folder
from crashlab.preload.access import opened_to
from crashlab.preload.processes import ProcessList
from crashlab.preload.recorder import PreloadRecorder
from engines.postgresql import binaries, server_user
from engines.postgresql import cluster as clusters
from engines.postgresql.binaries import DEBIAN_FOLDER
from engines.postgresql.launch import PostgresqlLaunch, Servers
from engines.postgresql.log_reader import PostgresqlLogReader
from engines.postgresql.server import Server
from engines.scratch import Scratch
from tests.crashlab_tests.preload_tests.programs import build_recorder
from workloads.ledger import Ledger
from workloads.workload import Plan
from workloads.ycsb.postgresql import PostgresqlYcsbRun
from workloads.ycsb.properties import core
from workloads.ycsb.workload import YcsbWorkload

DEADLINE_S = 60.0
CAPACITY = 200_000


def bindirs() -> list[Path]:
    """The newest installed server's programs, and those of the folders in DURATUNE_TEST_BINDIRS."""
    named = [Path(name) for name in os.environ.get("DURATUNE_TEST_BINDIRS", "").split(":") if name]
    return [*sorted(DEBIAN_FOLDER.glob("*/bin"))[-1:], *named]


def ycsb(letter: str, records: int = 300, **properties: object) -> YcsbWorkload:
    values = {"recordcount": str(records), **{name: str(value) for name, value in properties.items()}}
    return YcsbWorkload(f"ycsb:{letter}", core(letter)).with_values(values).on("postgresql")


@dataclass
class Lab:
    """One installation and what it has loaded; every instance is a clone."""

    servers: Servers
    recorder: PreloadRecorder
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def place(self) -> Path:
        """A new folder, which the server's user may pass."""
        place = self.servers.folder / f"place-{next(self._numbers)}"
        place.mkdir(mode=0o711)
        return place

    def loaded(self, workload: YcsbWorkload, settings: Mapping[str, str] | None = None) -> PostgresqlLaunch:
        place = self.place()
        launch = PostgresqlLaunch(self.servers, place / "db", dict(settings or {}))
        workload.load(launch, place, seed=1)
        return launch

    @contextmanager
    def running(
        self,
        workload: YcsbWorkload,
        launch: PostgresqlLaunch,
        plan: Plan,
        capacity: int = CAPACITY,
        is_stamped: bool = True,
    ) -> Iterator[tuple[PostgresqlYcsbRun, Ledger]]:
        """A run whose server stamps a ledger of its own."""
        shared = self.servers.scratch.folder(Path("/dev/shm"), "ycsb-test")
        path, processes = shared / "ledger", shared / "processes"
        ProcessList.create(processes)
        try:
            with Ledger.create(path, plan.threads, capacity) as ledger:
                engine = self.servers.user
                runs_as = (engine.uid, engine.gid) if engine.is_other else None
                environment = self.recorder.acks_environment(path, processes)
                opened = opened_to(runs_as, shared, (path, processes), environment)
                started = workload.start(
                    launch, plan, launch.database.parent, path, opened if is_stamped else {}
                )
                assert isinstance(started, PostgresqlYcsbRun)
                with started as run:
                    yield run, ledger
        finally:
            self.servers.scratch.remove(shared)

    def clone(self, launch: PostgresqlLaunch) -> PostgresqlLaunch:
        """The cluster as it lies there, for somebody who changes it."""
        target = self.place() / "db"
        clone_folder(launch.database, target, PostgresqlLogReader())
        return launch.at(target)

    @contextmanager
    def serving(self, launch: PostgresqlLaunch) -> Iterator[Server]:
        with launch.start() as server:
            yield server


@contextmanager
def lab(folder: Path) -> Iterator[Lab]:
    """Raises MachineLacks without such a PostgreSQL."""
    user = server_user.choose()
    with Scratch() as scratch:
        work = scratch.folder(Path("/tmp"), "ycsb-lab")
        clusters.let_pass(work, user)
        built = work / "libduratune_record.so"
        build_recorder(built)
        try:
            yield Lab(Servers(binaries.find(folder), user, scratch, None, work), PreloadRecorder(built))
        finally:
            shutil.rmtree(work, ignore_errors=True)


NO_SERVER = [] if bindirs() else [pytest.param(None, marks=pytest.mark.skip("no PostgreSQL is installed"))]
