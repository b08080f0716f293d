"""Recovers crash states one after another: RocksDB's in children of one warm driver process."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.postgresql.launch import PostgresqlLaunch
from engines.process import Watcher
from engines.rocksdb.launch import RocksdbLaunch
from knobs.errors import DuratuneError, Undecided
from workloads.postgresql.verifier import PostgresqlVerifier
from workloads.workload import ROW, Recovered, Reopening
from workloads.ycsb.driver import DriverProcess, lifeline, write_spec
from workloads.ycsb.postgresql_reader import PostgresqlYcsbReader
from workloads.ycsb.properties import Properties

_SEND_DEADLINE_S = 10.0
# The warm process resolves RocksDB's symbols once instead of every child some of them (ld.so(8)).
_ENVIRONMENT = {"LD_BIND_NOW": "1"}
CHECKS = ("rows as the candidate reads them", "rows with neutral settings", "table checksums")
_KEYS = ("insertorder", "zeropadding")


class Verifier:
    """Use it in a ``with`` statement.

    ``folder`` takes spec and row files, which are removed once they are read.
    """

    def __init__(
        self, properties: Properties, folder: Path, watcher: Watcher | None = None, is_hurried: bool = False
    ) -> None:
        """One that ``is_hurried`` recovers a PostgreSQL without syncs."""
        reader = PostgresqlYcsbReader(properties, folder, watcher)
        self._postgresql = PostgresqlVerifier(reader, is_hurried)
        self._properties = properties
        self._folder = folder
        self._watcher = watcher
        self._numbers = itertools.count()
        self._driver: DriverProcess | None = None
        self._environment: Mapping[str, str] = _ENVIRONMENT

    def verify(self, launch: Any, deadline_s: float, *, is_touched: bool = True) -> Recovered:
        """Recover the database that ``launch`` names and read it back twice (see ``Recovered``).

        The database is changed by it. A recovery that takes longer than the deadline is not recovered; a
        failure of the driver itself raises, and the next call starts a new driver.
        """
        if isinstance(launch, PostgresqlLaunch):
            return self._postgresql.verify(launch, deadline_s, is_touched=is_touched)
        return self._look(launch, ("candidate", "neutral"), deadline_s).recovered

    def reopen(self, launch: Any, deadline_s: float, environment: Mapping[str, str]) -> Reopening:
        """Recover it as the application would and close it cleanly, in a driver with this environment.

        Raises as `verify` does.
        """
        if isinstance(launch, PostgresqlLaunch):
            return self._postgresql.reopen(launch, deadline_s, environment)
        self.close()
        self._environment = {**_ENVIRONMENT, **environment}
        try:
            return self._look(launch, ("candidate",), deadline_s)
        finally:
            self.close()
            self._environment = _ENVIRONMENT

    def close(self) -> None:
        """End the drivers."""
        self._postgresql.close()
        if self._driver is not None:
            self._driver.__exit__()
            self._driver = None

    def __enter__(self) -> Verifier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _look(self, launch: RocksdbLaunch, views: Sequence[str], deadline_s: float) -> Reopening:
        """Recover it and read it in these views, of which the first is the candidate's."""
        number = next(self._numbers)
        rows = {name: self._folder / f"verify-{number}.{name}" for name in views}
        spec = self._folder / f"verify-{number}.spec"
        write_spec(spec, self._spec(launch, rows))
        ends_s = time.monotonic() + deadline_s
        try:
            return self._ask(spec, rows, deadline_s)
        except DuratuneError as error:
            # Its protocol may be anywhere: the next state gets a new driver.
            self.close()
            if isinstance(error, Undecided) and time.monotonic() >= ends_s:
                return Reopening(_too_late(deadline_s), ())
            raise
        finally:
            for path in (spec, *rows.values()):
                path.unlink(missing_ok=True)

    def _ask(self, spec: Path, rows: Mapping[str, Path], deadline_s: float) -> Reopening:
        if self._driver is None:
            log = self._folder / "verify.log"
            self._driver = DriverProcess("verify", "-", log, self._environment, self._watcher)
        self._driver.send(str(spec), _SEND_DEADLINE_S)
        event = self._driver.wait_for("verified", deadline_s)
        if event["spec"] != str(spec):
            raise Undecided(
                f"the verifier answered for {event['spec']} instead of {spec}", where="duratune-ycsb"
            )
        recovered = Recovered(
            recovered=event["recovered"],
            stage=event["stage"],
            error=event["error"],
            recovery_s=event["recovery_s"],
            candidate=_read_rows(rows["candidate"]),
            neutral=_read_rows(rows["neutral"]) if "neutral" in rows else _no_rows(),
            checks=CHECKS,
        )
        return Reopening(recovered, (self._driver.pid, event["pid"]))

    def _spec(self, launch: RocksdbLaunch, rows: Mapping[str, Path]) -> dict[str, str]:
        spec = {f"rows.{name}": str(path) for name, path in rows.items()}
        database = {key: value for key, value in launch.spec().items() if key.startswith("db.")}
        return {**database, **spec, **lifeline(), **{key: self._properties[key] for key in _KEYS}}


def _read_rows(path: Path) -> NDArray[np.void]:
    if not path.exists():
        return _no_rows()
    data = path.read_bytes()
    # An engine that was killed by its own signal may leave half a row; whole rows are what it had read.
    return np.frombuffer(data[: len(data) // ROW.itemsize * ROW.itemsize], dtype=ROW)


def _too_late(deadline_s: float) -> Recovered:
    error = f"not back within {deadline_s:g} s"
    return Recovered(False, "recover", error, deadline_s, _no_rows(), _no_rows(), is_late=True)


def _no_rows() -> NDArray[np.void]:
    return np.empty(0, dtype=ROW)
