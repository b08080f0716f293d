"""The native driver as a process: its spec files, its events, its errors.

The protocol: one JSON object a line on stdout, ``{"event": ..., ...}``; an ``error`` event carries code,
what and hint. The driver's stdin is its lifeline: when duratune dies, the driver kills itself.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from engines.process import LIFELINE_FD, Child, Killed, LaunchSpec, Watcher
from knobs.errors import DuratuneError, InvalidInput, MachineLacks, Undecided
from knobs.native import find
from workloads.workload import Event

PROGRAM = "duratune-ycsb"
END_DEADLINE_S = 30.0

_ERRORS: Mapping[str, type[DuratuneError]] = {
    "invalid-input": InvalidInput,
    "no-space": MachineLacks,
    "machine-lacks": MachineLacks,
}


def write_spec(path: Path, values: Mapping[str, str]) -> Path:
    """Write a spec file. Raises InvalidInput where a value would not be read back as it is."""
    for key, value in values.items():
        if value != value.strip() or "\n" in value or "\r" in value:
            raise InvalidInput(f"{key} has blanks at an end or a line break", where=str(path))
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
    return path


class DriverProcess:
    """One driver process; the Run of a YCSB workload.

    Use it in a ``with`` statement: it is killed at the end.
    """

    def __init__(
        self,
        subcommand: str,
        argument: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
        watcher: Watcher | None = None,
        engine: str = "rocksdb",
    ) -> None:
        """Start it; ``log`` receives its stderr. Raises MachineLacks where it is not built.

        Of duratune's own environment it gets all but what libpq reads (PGOPTIONS and the like): that would
        be settings of the load's sessions that no candidate names.
        """
        command = [str(find(PROGRAM)), subcommand, argument]
        own = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        spec = LaunchSpec(command, log, environment={**own, **(environment or {})}, inherits=False)
        self._child = Child(spec, watcher)
        self._engine = engine
        self.events: list[Event] = []

    @property
    def pid(self) -> int:
        """The process that a SIGKILL is for."""
        return self._child.identity.pid

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return not self._child.identity.alive()

    def wait_for(self, event: str | tuple[str, ...], deadline_s: float) -> Event:
        """The next event of this name, or of one of these names; those before it are in ``events`` too.

        Raises what the driver's error event says (InvalidInput, MachineLacks, else Undecided); Undecided if
        the driver ends, stops its load (unless ``stopped`` is waited for) or stays silent until the deadline.
        """
        wanted = (event,) if isinstance(event, str) else event
        ends_s = time.monotonic() + deadline_s
        while True:
            found = self._next(" or ".join(wanted), ends_s)
            if found["event"] in wanted:
                return found
            if found["event"] == "stopped":
                raise Undecided(f"the load stopped first: {found['why']}", where=PROGRAM)

    def send(self, line: str, deadline_s: float) -> None:
        """Write one line to its stdin (`verify -` reads spec paths there)."""
        self._child.write_line(line, deadline_s, "handing over a spec")

    def kill(self, at_last: Callable[[], object] = lambda: None) -> Killed:
        """SIGKILL it and its descendants, and reap them; ``at_last`` is called just before the signal."""
        return self._child.kill(at_last)

    def figures(self) -> Event:
        """What its measured phase came to. Raises Undecided where it never came to an end."""
        found = [event for event in self.events if event["event"] == "measured"]
        if not found:
            raise Undecided("nothing was measured", where=PROGRAM)
        return found[-1]

    def faults(self) -> list[str]:
        """None: the driver stamps the ledger itself."""
        return []

    def wait(self, deadline_s: float = END_DEADLINE_S) -> int:
        """The exit code of a driver that ends by itself."""
        return self._child.wait(deadline_s, "ending")

    def read_rest(self) -> None:
        """Take what a driver that has ended still said into ``events``. Raises as `wait_for` does."""
        reason = "waiting for the end of its events"
        while line := self._child.read_line(END_DEADLINE_S, reason):
            self._take(line, reason)

    def __enter__(self) -> DriverProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.__exit__(None, None, None)

    def _next(self, wanted: str, ends_s: float) -> Event:
        reason = f"waiting for '{wanted}'"
        line = self._child.read_line(max(0.0, ends_s - time.monotonic()), reason)
        if line is None:
            raise Undecided(f"{reason}: the driver ended", where=PROGRAM, hint=self._child.log_tail())
        return self._take(line, reason)

    def _take(self, line: str, reason: str) -> Event:
        try:
            event: Event = json.loads(line)
        except ValueError as error:
            raise Undecided(f"{reason}: the driver wrote {line[:200]!r}", where=PROGRAM) from error
        self.events.append(event)
        if event["event"] == "error":
            raise _error_of(event, self._engine)
        return event


def run_to_end(
    subcommand: str,
    spec: Path,
    event: str,
    deadline_s: float,
    watcher: Watcher | None,
    engine: str = "rocksdb",
) -> Event:
    """Run a subcommand that ends by itself and return its result event."""
    log = spec.with_suffix(".log")
    with DriverProcess(subcommand, str(spec), log, watcher=watcher, engine=engine) as driver:
        found = driver.wait_for(event, deadline_s)
        code = driver.wait()
    if code != 0:
        raise Undecided(f"{subcommand} ended with {code} after '{event}'", where=PROGRAM)
    return found


def lifeline() -> dict[str, str]:
    """The spec key that ties the driver to this process."""
    return {"lifeline.fd": str(LIFELINE_FD)}


def _error_of(event: Event, engine: str) -> DuratuneError:
    kind = _ERRORS.get(event["code"], Undecided)
    return kind(event["what"], where=PROGRAM if kind is Undecided else engine, hint=event["hint"])
