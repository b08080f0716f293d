"""YCSB's core workload on RocksDB, as a workload that duratune can load, run, kill and verify."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from engines.process import Watcher
from engines.rocksdb.launch import RocksdbLaunch
from workloads.workload import EFFECTIVE_NAME, Event, Plan, Recovered
from workloads.ycsb.driver import DriverProcess, lifeline, run_to_end, write_spec
from workloads.ycsb.properties import Properties
from workloads.ycsb.verifier import Verifier

LOAD_DEADLINE_S = 3600.0


@dataclass(frozen=True)
class YcsbWorkload:
    """One set of YCSB properties under a name. ``watcher`` ends the drivers should duratune be killed."""

    name: str
    properties: Properties
    watcher: Watcher | None = None

    register_per_write: ClassVar[bool] = False

    def with_values(self, values: Mapping[str, str]) -> Self:
        """The same with other properties; raises InvalidInput with every fault."""
        return dataclasses.replace(self, properties=self.properties.with_values(values))

    @property
    def parameters(self) -> Mapping[str, str]:
        """Every property, stated or by default."""
        return self.properties

    @property
    def initial_records(self) -> int:
        """The records that `load` inserts."""
        return self.properties.record_count

    def at_most(self, records: int) -> Self:
        """The same on a data set of at most so many records."""
        return self.with_values({"recordcount": str(min(self.initial_records, records))})

    def load(
        self,
        launch: RocksdbLaunch,
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
        spec = write_spec(folder / "load.spec", self._spec(launch, Plan(threads, seed), ledger=None))
        return run_to_end("load", spec, "loaded", deadline_s, self.watcher)

    def start(
        self,
        launch: RocksdbLaunch,
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
        spec = self._spec(launch, plan, ledger) | {"effective.path": str(folder / EFFECTIVE_NAME)}
        path = write_spec(folder / "run.spec", spec)
        return DriverProcess("run", str(path), folder / "run.log", environment, self.watcher)

    def verify(self, launch: RocksdbLaunch, folder: Path, deadline_s: float) -> Recovered:
        """Recover the database that ``launch`` names, which is changed by it, and read it back."""
        with self.verifier(folder) as verifier:
            return verifier.verify(launch, deadline_s)

    def verifier(self, folder: Path) -> Verifier:
        """For many states: one warm process that verifies them one after another."""
        return Verifier(self.properties, folder, self.watcher)

    def _spec(self, launch: RocksdbLaunch, plan: Plan, ledger: Path | None) -> dict[str, str]:
        spec = {**launch.spec(), **self.properties, **_plan_spec(plan), **lifeline()}
        return spec | ({"ledger": "off"} if ledger is None else {"ledger.path": str(ledger)})


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


def _plan_spec(plan: Plan) -> dict[str, str]:
    names = {"target_per_s": "target"}
    spec = {names.get(key, key): str(value) for key, value in vars(plan).items()}
    return spec | {"stop_after": str(plan.stop_after).lower()}
