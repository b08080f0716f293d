"""Recovers crashed clusters and reads them back: with the candidate's settings, then neutrally.

The candidate's server recovers, and its clients' writes are read as the application would see them; then it
is stopped cleanly, the checksums of every page are looked at, and a second server with settings that hide
nothing reads everything and holds every index against its table. What is read is the workload's own: its
`Reader`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from engines.postgresql import integrity, server_log
from engines.postgresql.launch import PostgresqlLaunch
from engines.postgresql.refusal import ServerDied, StartRefused
from engines.postgresql.server import Server
from engines.postgresql.session import ConnectionLost
from engines.process import DeadlinePassed
from knobs.errors import DuratuneError, Undecided
from workloads.postgresql.preparation import LOST_S, POLL_S
from workloads.workload import ROW, Recovered, Redo, Reopening

NEUTRAL_START_DEADLINE_S = 60.0
"""For a cluster that was stopped cleanly; what the first start took of its own deadline is no reason."""
_KILLED = re.compile(r"signal (9\b|SIGKILL)")
_OF_THE_MACHINE = ("memory", "in-use", "killed")
"""Causes of a refused start that say nothing of the state."""
ROWS = "rows as the candidate reads them"
CHECKSUMS = "page checksums"
NEUTRAL = "rows with neutral settings"
LOG = "the server's log"


@dataclass
class Reading:
    """What one server shows: rows (dtype ROW), for each the transaction that wrote it where that is known,
    and how many rows of the loaded base are gone.

    ``notes`` explain a loss; ``faults`` are the stage and the words of each; ``is_lost`` tells whether the
    server did not last.
    """

    rows: NDArray[np.void] = field(default_factory=lambda: np.empty(0, dtype=ROW))
    transactions: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    lost: int = 0
    notes: list[str] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)
    is_lost: bool = False


class Reader(Protocol):
    """Reads what a workload has left in a server. ``checks`` are what it looks at beside the rows."""

    @property
    def checks(self) -> Sequence[str]: ...

    def read(self, server: Server, stage: str, *, is_whole: bool) -> Reading:
        """Read the rows that clients have written, and with ``is_whole`` what is looked at beside them.

        What the server refuses to show is a fault of this stage.
        """

    def close(self) -> None:
        """Let go of what was kept from one server to the next."""


class PostgresqlVerifier:
    """Use it in a ``with`` statement. One that ``is_hurried`` recovers without syncs."""

    def __init__(self, reader: Reader, is_hurried: bool) -> None:
        self._reader = reader
        self._is_hurried = is_hurried

    def verify(self, launch: PostgresqlLaunch, deadline_s: float, *, is_touched: bool = True) -> Recovered:
        """Recover the cluster that ``launch`` names, which is changed by it, and read it back twice.

        Raises Undecided where it is the machine that stands in the way of a server, or of an answer of its.
        """
        # Only of the killed run it is asked how long its recovery may take later.
        images = 0 if self._is_hurried else integrity.page_image_bytes(launch.adopt())
        server = _started(launch.hurried() if self._is_hurried else launch, deadline_s)
        if isinstance(server, Recovered):
            return server
        checks = [ROWS]
        with server:
            recovery_s, redo = server.start_s, integrity.redo(server.messages())
            reading = self._reader.read(server, "scan", is_whole=False)
            _stop(server, reading)
            if reading.faults:
                _refuse_a_kill(server, LOST_S if reading.is_lost else 0.0)
            faults = [*reading.faults, *_logged(server)]
        # A server that was lost may leave torn pages, and is told of already.
        if is_touched and launch.servers.checksums and not reading.is_lost:
            checks.append(CHECKSUMS)
            faults += [("checksum", fault) for fault in integrity.wrong_checksums(launch.cluster)]
        neutral = Reading()
        try:
            # One that is slow to start after a clean stop, or to answer, is the machine's: Undecided, and so
            # are a statement and a stop that do not end in their time.
            server = launch.start_neutral(deadline_s=NEUTRAL_START_DEADLINE_S)
        except (StartRefused, ServerDied) as error:
            _refuse_the_machine(error)
            faults.insert(0, ("neutral-open", str(error)))
        else:
            with server:
                neutral = self._reader.read(server, "neutral-scan", is_whole=True)
                checks += [NEUTRAL, *self._reader.checks]
                if is_touched and not neutral.is_lost:
                    checks += _amcheck(server, neutral)
                if neutral.faults:
                    _refuse_a_kill(server, LOST_S if neutral.is_lost else 0.0)
                faults += [*neutral.faults, *_logged(server)]
        checks.append(LOG)
        # The first to fail is what is told; a server that does not come back weighs most.
        stage, words = min(faults, key=lambda fault: fault[0] != "neutral-open", default=("", ""))
        return Recovered(
            recovered=True,
            stage=stage,
            error=words,
            recovery_s=recovery_s,
            candidate=reading.rows,
            neutral=neutral.rows,
            checks=tuple(checks),
            notes=tuple(dict.fromkeys([*reading.notes, *neutral.notes])),
            base_rows_lost=neutral.lost,
            transactions=reading.transactions,
            redo=None if redo is None else Redo(*redo, images),
        )

    def reopen(
        self, launch: PostgresqlLaunch, deadline_s: float, environment: Mapping[str, str]
    ) -> Reopening:
        """Recover it with the syncs that the settings ask for, read it as the application would, and SIGKILL
        every process of it: which those are is known only while they run.

        Raises as `verify` does.
        """
        server = _started(launch, deadline_s, environment)
        if isinstance(server, Recovered):
            return Reopening(server, ())
        with server:
            reading = self._reader.read(server, "scan", is_whole=False)
            if reading.faults:
                _refuse_a_kill(server, LOST_S if reading.is_lost else 0.0)
            killed = server.kill()
        stage, words = next(iter(reading.faults), ("", ""))
        nothing = np.empty(0, dtype=ROW)
        recovered = Recovered(True, stage, words, server.start_s, reading.rows, nothing, checks=(ROWS,))
        return Reopening(recovered, tuple(process.pid for process in killed.processes))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what its reader keeps."""
        self._reader.close()


def _started(
    launch: PostgresqlLaunch, deadline_s: float, environment: Mapping[str, str] | None = None
) -> Server | Recovered:
    """The server once it has recovered, or how it did not come back.

    Raises Undecided where the machine stands in its way.
    """
    began_s = time.monotonic()
    try:
        return launch.start(deadline_s=deadline_s, environment=lambda _: environment or {})
    except DeadlinePassed:
        return _not_back(f"not back within {deadline_s:g} s", deadline_s, is_late=True)
    except (StartRefused, ServerDied) as error:
        _refuse_the_machine(error)
        words = "; ".join(error.lines) if isinstance(error, StartRefused) else f"{error.what}: {error.hint}"
        return _not_back(words, time.monotonic() - began_s)


def _stop(server: Server, reading: Reading) -> None:
    """Stop it cleanly; one that has lost a process restarts the others, and is left to be killed."""
    if reading.is_lost:
        return
    try:
        server.stop()
    except ServerDied as error:
        reading.faults.append(("stop", str(error)))
        reading.is_lost = True


def _amcheck(server: Server, reading: Reading) -> Sequence[str]:
    """What amcheck checked; what it found is put to the reading."""
    try:
        found = integrity.amcheck(server)
    except ConnectionLost as error:
        reading.faults.append(("amcheck", str(error)))
        reading.is_lost = True
        return [integrity.INDEXES]
    reading.faults += [("amcheck", fault) for fault in found.faults]
    return found.checks


def _refuse_the_machine(error: DuratuneError) -> None:
    """Raises Undecided where the machine stands in the way of a server, and not what is in its data."""
    is_refused = isinstance(error, StartRefused) and error.cause in _OF_THE_MACHINE
    if is_refused or (isinstance(error, ServerDied) and _KILLED.search(error.what)):
        raise Undecided(error.what, where=error.where, hint=error.hint) from error


def _refuse_a_kill(server: Server, wait_s: float) -> None:
    """Raises Undecided where it lost a process by SIGKILL: damage may end one, but not like that."""
    ends_s = time.monotonic() + wait_s
    while not (ended := server_log.signalled(server.messages())) and server.running:
        if time.monotonic() > ends_s:
            return
        time.sleep(POLL_S)
    killed = [line for line in ended if _KILLED.search(line)]
    if killed:
        raise Undecided(killed[0], where="verification", hint="such as by the kernel for want of memory")


def _logged(server: Server) -> Sequence[tuple[str, str]]:
    return [("log", line) for line in integrity.alarming(server.messages())]


def _not_back(words: str, recovery_s: float, is_late: bool = False) -> Recovered:
    nothing = np.empty(0, dtype=ROW)
    return Recovered(False, "recover", words, recovery_s, nothing, nothing, is_late=is_late, checks=(ROWS,))
