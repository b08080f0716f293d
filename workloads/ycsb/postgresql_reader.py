"""What a YCSB load has left in a PostgreSQL server: every field of every record, read by the driver."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engines.postgresql.server import Server
from engines.postgresql.session import READ_DEADLINE_S, conninfo, is_of_the_machine
from engines.process import Watcher
from knobs.errors import DuratuneError, Undecided
from workloads.postgresql.verifier import Reading
from workloads.workload import ROW
from workloads.ycsb.driver import PROGRAM, DriverProcess, lifeline, write_spec
from workloads.ycsb.postgresql import DATA_KEYS, ENGINE
from workloads.ycsb.properties import Properties

_SEND_DEADLINE_S = 10.0


class PostgresqlYcsbReader:
    """Reads with one warm driver process, which `close` ends. ``folder`` takes spec and row files, which are
    removed once read."""

    checks: Sequence[str] = ()

    def __init__(self, properties: Properties, folder: Path, watcher: Watcher | None = None) -> None:
        self._properties = properties
        self._folder = folder
        self._watcher = watcher
        self._numbers = itertools.count()
        self._driver: DriverProcess | None = None

    def close(self) -> None:
        """End the driver."""
        if self._driver is not None:
            self._driver.__exit__()
            self._driver = None

    def read(self, server: Server, stage: str, *, is_whole: bool) -> Reading:
        """Every field of every record, and the transactions that are known."""
        del is_whole  # there is nothing beside them
        number = next(self._numbers)
        rows, transactions, spec = (
            self._folder / f"read-back-{number}.{suffix}" for suffix in ("rows", "xmin", "spec")
        )
        write_spec(
            spec,
            {
                **{name: self._properties[name] for name in DATA_KEYS if name in self._properties},
                **lifeline(),
                "pg.conninfo": conninfo(server.address, options=server.address.own_options),
                "rows.path": str(rows),
                "xmin.path": str(transactions),
            },
        )
        reading = Reading()
        try:
            error, sqlstate = self._ask(spec)
            reading.rows = np.fromfile(rows, dtype=ROW)
            fields = int(self._properties["fieldcount"])
            xmin = np.fromfile(transactions, dtype=np.uint64)
            reading.transactions = transactions_known(reading.rows, xmin, fields)
        except DuratuneError:
            # Its protocol may be anywhere: the next state gets a new driver.
            self.close()
            raise
        finally:
            for path in (rows, transactions, spec):
                path.unlink(missing_ok=True)
        if is_of_the_machine(sqlstate):
            raise Undecided(
                error, where=stage, hint="it was ended from outside, or the machine lacks something"
            )
        if error:
            reading.faults.append((stage, error))
            # What a server refuses has a state; what has none is a connection that was lost (libpq).
            reading.is_lost = not sqlstate
        return reading

    def _ask(self, spec: Path) -> tuple[str, str]:
        """The server's error and its SQLSTATE, both "" where there was none."""
        if self._driver is None:
            log = self._folder / "read-back.log"
            self._driver = DriverProcess("read-back", "-", log, watcher=self._watcher, engine=ENGINE)
        self._driver.send(str(spec), _SEND_DEADLINE_S)
        event = self._driver.wait_for("read-back", READ_DEADLINE_S)
        if event["spec"] != str(spec):
            raise Undecided(f"it answered for {event['spec']} instead of {spec}", where=PROGRAM)
        return str(event["error"]), str(event["sqlstate"])


def transactions_known(rows: NDArray[np.void], xmin: NDArray[np.uint64], fields: int) -> NDArray[np.uint64]:
    """For each row the transaction that wrote it, where its record's xmin tells; else 0.

    The xmin of a record is the transaction that wrote one of its fields last. So it is known whose it is
    where clients of the run have written one field only, or have inserted the record and nothing since; of
    an insert's fields it is given for the first.
    """
    client = rows["client"].reshape(-1, fields)
    sequence = rows["sequence"].reshape(-1, fields)
    is_written = client > 0
    is_inserted = (
        is_written.all(axis=1)
        & (client == client[:, :1]).all(axis=1)
        & (sequence == sequence[:, :1] + np.arange(fields, dtype=np.uint64)).all(axis=1)
    )
    is_single = is_written.sum(axis=1) == 1
    is_first = np.zeros_like(is_written)
    is_first[:, 0] = is_inserted
    is_known = (is_written & is_single[:, None]) | is_first
    return np.where(is_known.ravel(), xmin, np.uint64(0))
