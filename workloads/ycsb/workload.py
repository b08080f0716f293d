"""YCSB's core workload on RocksDB or PostgreSQL, as one that duratune can load, run, kill and verify."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from engines.postgresql.launch import PostgresqlLaunch
from engines.process import Watcher
from engines.rocksdb.launch import RocksdbLaunch
from knobs.errors import InvalidInput
from workloads.workload import EFFECTIVE_NAME, Event, Plan, Recovered
from workloads.ycsb import postgresql
from workloads.ycsb.driver import DriverProcess, lifeline, run_to_end, write_spec
from workloads.ycsb.keys import ENGINE
from workloads.ycsb.properties import Properties
from workloads.ycsb.spec import run_spec
from workloads.ycsb.verifier import Verifier

Engine = Literal["rocksdb", "postgresql"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
Launch = Any
"""An engine's launch, RocksdbLaunch or PostgresqlLaunch; which it is decides what is done."""
LOAD_DEADLINE_S = 3600.0


@dataclass(frozen=True)
class YcsbWorkload:
    """One set of YCSB properties under a name. ``watcher`` ends the drivers should duratune be killed.

    What is to be done on which engine, its launch says; ``engine`` says what a register is: a record of
    RocksDB, a field of a record of PostgreSQL.
    """

    name: str
    properties: Properties
    watcher: Watcher | None = None
    engine: Engine = dataclasses.field(default="rocksdb", kw_only=True)

    register_per_write: ClassVar[bool] = False

    def on(self, engine: str) -> Self:
        """The same on this engine. Raises InvalidInput for one that it does not know."""
        for known in ENGINES:
            if engine == known:
                return dataclasses.replace(self, engine=known)
        hint = f"use {' or '.join(ENGINES)}"
        raise InvalidInput(f"there is no YCSB for '{engine}'", where=self.name, hint=hint)

    def with_values(self, values: Mapping[str, str]) -> Self:
        """The same with other properties; raises InvalidInput with every fault."""
        return dataclasses.replace(self, properties=self.properties.with_values(values))

    @property
    def parameters(self) -> Mapping[str, str]:
        """Every property, stated or by default, and the engine where that is not RocksDB."""
        return self.properties if self.engine == "rocksdb" else {**self.properties, ENGINE: self.engine}

    @staticmethod
    def of_parameters(
        name: str, parameters: Mapping[str, str], where: str, watcher: Watcher | None
    ) -> YcsbWorkload:
        """The workload that has these. Raises InvalidInput for anything else."""
        properties = {key: value for key, value in parameters.items() if key != ENGINE}
        whole = YcsbWorkload(name, Properties(properties, where), watcher)
        return whole.on(parameters.get(ENGINE, "rocksdb"))

    @property
    def initial_records(self) -> int:
        """The registers that `load` gives a version."""
        fields = int(self.properties["fieldcount"]) if self.engine == "postgresql" else 1
        return self.properties.record_count * fields

    def at_most(self, records: int) -> Self:
        """The same on a data set of at most so many records."""
        return self.with_values({"recordcount": str(min(self.properties.record_count, records))})

    def load(
        self,
        launch: Launch,
        folder: Path,
        seed: int,
        *,
        threads: int = 2,
        deadline_s: float = LOAD_DEADLINE_S,
    ) -> Event:
        """Create the database with every record's initial version, closed and synced; the ``loaded`` event.

        The content depends on properties and seed only. Raises InvalidInput where the database folder
        exists or RocksDB rejects the settings, MachineLacks where the disk is full.
        """
        if isinstance(launch, PostgresqlLaunch):
            return postgresql.load(self.properties, launch, folder, seed, threads, deadline_s, self.watcher)
        spec = write_spec(folder / "load.spec", self._spec(launch, Plan(threads, seed), ledger=None))
        return run_to_end("load", spec, "loaded", deadline_s, self.watcher)

    def start(
        self,
        launch: Launch,
        plan: Plan,
        folder: Path,
        ledger: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> DriverProcess:
        """Open the loaded database and start the load. ``folder`` takes spec, log and the settings in force.

        Its events, in order: ``opened``, ``warming``, ``measuring``, ``measured``, ``reached`` (bounded
        runs), ``closed`` (with ``stop_after``); between them one ``provoked`` for each item of ``provoke``,
        when it has ended and with its ``error`` ("" if none), and ``stopped`` where the load has ended before
        the kill. What is provoked may end long after ``reached``: the load goes on meanwhile.
        """
        if isinstance(launch, PostgresqlLaunch):
            return postgresql.start(self.properties, launch, plan, folder, ledger, environment, self.watcher)
        spec = self._spec(launch, plan, ledger) | {"effective.path": str(folder / EFFECTIVE_NAME)}
        path = write_spec(folder / "run.spec", spec)
        return DriverProcess("run", str(path), folder / "run.log", environment, self.watcher)

    def verify(self, launch: Launch, folder: Path, deadline_s: float) -> Recovered:
        """Recover the database that ``launch`` names, which is changed by it, and read it back."""
        with Verifier(self.properties, folder, self.watcher) as verifier:
            return verifier.verify(launch, deadline_s)

    def verifier(self, folder: Path) -> Verifier:
        """For many states: one warm process that verifies them one after another."""
        return Verifier(self.properties, folder, self.watcher, is_hurried=True)

    def _spec(self, launch: RocksdbLaunch, plan: Plan, ledger: Path | None) -> dict[str, str]:
        return run_spec(self.properties, plan, ledger, launch.spec())


def effective(
    launch: RocksdbLaunch, folder: Path, watcher: Watcher | None = None, deadline_s: float = 60.0
) -> str:
    """The settings that RocksDB makes of the launch's, as the text of an OPTIONS file.

    Creates an empty database where the launch says, which the caller removes. Raises InvalidInput where
    RocksDB rejects the settings.
    """
    path = folder / EFFECTIVE_NAME
    database = {key: value for key, value in launch.spec().items() if not key.startswith("application.")}
    spec = write_spec(folder / "effective.spec", {**database, **lifeline(), "effective.path": str(path)})
    run_to_end("effective", spec, "effective", deadline_s, watcher)
    return path.read_text(encoding="utf-8")
