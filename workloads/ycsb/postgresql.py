"""YCSB on PostgreSQL: a server of its own for each run, and the native driver as its client.

The table, its values and its registers are those of docs/formats.md. A load is done once and cloned; a run
is a server, which is what is killed, and a driver, which ends by itself when its connections break.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import numpy as np

from engines.postgresql.launch import PostgresqlLaunch
from engines.postgresql.server import Server
from engines.postgresql.session import conninfo
from engines.process import Killed, Watcher
from knobs.errors import DuratuneError, Undecided
from workloads.ledger import Entries, Ledger
from workloads.postgresql.preparation import (
    EACH_BEFORE,
    FIRST_LOAD_DEADLINE_S,
    add_amcheck,
    settings_in_force,
)
from workloads.postgresql.sync_count import sample_syncs
from workloads.workload import EFFECTIVE_NAME, Event, Plan
from workloads.ycsb.driver import PROGRAM, DriverProcess, run_to_end, write_spec
from workloads.ycsb.properties import Properties
from workloads.ycsb.spec import run_spec

ENGINE = "postgresql"
END_DEADLINE_S = 30.0
_UPDATES_ONLY = {
    "readproportion": "0",
    "updateproportion": "1",
    "insertproportion": "0",
    "scanproportion": "0",
    "readmodifywriteproportion": "0",
    "requestdistribution": "uniform",
}
_WRITES = ("updateproportion", "insertproportion", "readmodifywriteproportion")
DATA_KEYS = (
    "recordcount",
    "insertstart",
    "insertcount",
    "insertorder",
    "zeropadding",
    "fieldcount",
    "fieldnameprefix",
    "fieldlength",
    "minfieldlength",
    "fieldlengthdistribution",
    "fieldlengthhistogram",
    "dataintegrity",
)
"""The properties that say what is loaded; the others say what is asked of it."""
_NTH_SHIFT = 32


def writes(properties: Mapping[str, str]) -> bool:
    """Whether the load writes at all, so that a crash can lose something."""
    return any(float(properties[name]) > 0 for name in _WRITES)


def load(
    properties: Properties,
    launch: PostgresqlLaunch,
    folder: Path,
    seed: int,
    threads: int,
    deadline_s: float,
    watcher: Watcher | None,
) -> Event:
    """Make the instance a clone of the cluster with these records, which is loaded when first asked for.

    Raises InvalidInput for what PostgreSQL cannot hold, MachineLacks where there is no room or no libpq.
    """
    data = {name: properties[name] for name in DATA_KEYS if name in properties}
    key = json.dumps({"workload": "ycsb", "seed": seed, **data}, sort_keys=True)

    def fill(server: Server) -> None:
        database = {"pg.conninfo": conninfo(server.address)}
        spec = run_spec(properties, Plan(threads, seed), None, database)
        path = write_spec(folder / "load.spec", spec)
        run_to_end("load", path, "loaded", deadline_s, watcher, ENGINE)
        add_amcheck(server)

    template = launch.servers.template(key, fill, deadline_s)
    launch.database.mkdir()
    template.clone(launch.database)
    return {"event": "loaded", "records": properties.record_count}


def start(
    properties: Properties,
    launch: PostgresqlLaunch,
    plan: Plan,
    folder: Path,
    ledger: Path | None,
    environment: Mapping[str, str] | None,
    watcher: Watcher | None,
) -> PostgresqlYcsbRun:
    """Start a server with the launch's settings, read back what is in force, and start the driver.

    ``environment`` is for the server alone. With a ticker in the plan the engine's count of syncs is sampled
    into the ledger behind a short first load, and each entry names its transaction. Raises what
    `server.start` raises.
    """
    recorded = dict(environment or {})
    server = launch.start(environment=lambda _: recorded, checks_memory=True)
    book: Ledger | None = None
    try:
        (folder / EFFECTIVE_NAME).write_text(settings_in_force(server), encoding="utf-8")
        is_recorded = ledger is not None and bool(recorded) and plan.ticker_ms > 0
        database = {
            "pg.conninfo": conninfo(server.address),
            "pg.transactions": str(is_recorded).lower(),
        }
        book = None if ledger is None else Ledger.open(ledger)
        before = [0] * plan.threads
        if book is not None and is_recorded and writes(properties):
            first = Plan(plan.threads, plan.seed, operations=EACH_BEFORE * plan.threads, stop_after=True)
            spec = run_spec(properties.with_values(_UPDATES_ONLY), first, ledger, database)
            path = write_spec(folder / "first.spec", spec)
            before = run_to_end("run", path, "closed", FIRST_LOAD_DEADLINE_S, watcher, ENGINE)["written"]
            _check_all_done(before, folder / "first.log")
            sample_syncs(server, book)
        path = write_spec(folder / "run.spec", run_spec(properties, plan, ledger, database))
        return PostgresqlYcsbRun(server, path, book, before, watcher)
    except BaseException:
        # Whatever it was, an interrupt included: the caller never sees this run.
        if book is not None:
            book.close()
        server.__exit__(None, None, None)
        raise


class PostgresqlYcsbRun(DriverProcess):
    """A driver whose engine is a server of its own, which is what is killed; then the driver ends."""

    def __init__(
        self,
        server: Server,
        spec: Path,
        ledger: Ledger | None,
        before: list[int],
        watcher: Watcher | None,
    ) -> None:
        """Start it on a running server. ``before`` counts each client's writes that had been answered as done
        before; ``server`` and ``ledger`` are this run's to close."""
        super().__init__("run", str(spec), spec.with_suffix(".log"), watcher=watcher, engine=ENGINE)
        self.server = server
        self._ledger = ledger
        self._before = before
        self._killed: Killed | None = None
        self._ends_amiss: list[str] = []

    @property
    def pid(self) -> int:
        """The postmaster."""
        return self.server.identity.pid

    @property
    def finished(self) -> bool:
        """Whether the postmaster has ended."""
        return not self.server.running

    def wait_for(self, event: str | tuple[str, ...], deadline_s: float) -> Event:
        """The next event of this name, or of one of these names.

        Raises ServerDied where something else than `kill` ends the server or one of its processes, else as a
        driver does.
        """
        try:
            found = super().wait_for(event, deadline_s)
        except Undecided:
            self.server.check()
            raise
        if found["event"] == "stopped":
            self.server.check()
        return found

    def kill(self, at_last: Callable[[], object] = lambda: None) -> Killed:
        """SIGKILL the server's processes, then wait for the driver to end by itself.

        ``at_last`` is called just before the first signal. Again returns what the first call did.
        """
        if self._killed is None:
            self._killed = self.server.kill(at_last)
            try:
                code = self.wait(END_DEADLINE_S)
                self.read_rest()
            except DuratuneError as error:
                self._ends_amiss.append(f"the driver did not end as it should: {error}")
            else:
                self._ends_amiss += [f"the driver ended with {code}"] if code else []
        return self._killed

    def faults(self) -> list[str]:
        """Where the driver and the ledger do not agree; asked after the kill.

        A write may be acknowledged in the ledger whose answer the kill kept from the driver, one for each
        client.
        """
        if self._ledger is None:
            return self._ends_amiss
        ends = [event for event in self.events if event["event"] in ("stopped", "closed")]
        if not ends:
            return [*self._ends_amiss, "the driver did not say how many writes were answered"]
        told = np.add(self._before, ends[-1]["written"]).tolist()
        counts = statements_acknowledged(self._ledger.entries(), len(self._before))
        return self._ends_amiss + [
            f"client {client} has {count} acknowledged writes in the ledger and {answered} by its own count"
            for client, (count, answered) in enumerate(zip(counts, told, strict=True), start=1)
            if not answered <= count <= answered + 1
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.kill()
        finally:
            super().__exit__()
            self.server.__exit__(None, None, None)
            if self._ledger is not None:
                self._ledger.close()


def statements_acknowledged(entries: Entries, clients: int) -> list[int]:
    """How many statements of each client were acknowledged; each has one entry that is its first."""
    is_first = (entries.extra >> np.uint64(_NTH_SHIFT)) == 0
    counts = np.bincount(entries.client[entries.acknowledged & is_first], minlength=clients + 1)
    return [int(count) for count in counts[1:]]


def _check_all_done(written: list[int], log: Path) -> None:
    if written != [EACH_BEFORE] * len(written):
        raise Undecided(
            f"a short first load ended with {written} of {EACH_BEFORE} writes for each client",
            where=PROGRAM,
            hint=log.read_text(errors="replace")[-500:],
        )
