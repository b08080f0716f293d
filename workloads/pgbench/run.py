"""A load of pgbench on a server of its own, as one run: started together, and the server is what is killed.

pgbench is never signalled while its work counts: the server is killed, and pgbench ends by itself, for only
then is its transaction log whole.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from engines.postgresql.server import Server
from engines.postgresql.session import Session
from engines.process import Child, DeadlinePassed, Killed
from knobs.errors import DuratuneError, InvalidInput, Undecided
from workloads.ledger import STOP_NONE, STOP_WRITE_LOG_FULL, Ledger
from workloads.pgbench import transaction_log
from workloads.postgresql.preparation import check_behind, setting_to_blame
from workloads.workload import Event, Plan

POLL_S = 0.005
CHECK_S = 0.25
"""How often the server is asked whether it still is well; its log is read for that."""
END_DEADLINE_S = 30.0
PROVOKE_DEADLINE_S = 120.0
FIRST, RUN = "first", "run"
"""The short load by which a recorded run begins, and the run."""
PROVOCATIONS: dict[str, Sequence[str]] = {
    "flush": ("CHECKPOINT",),
    "compact": ("VACUUM", "SELECT pg_switch_wal()"),
}
"""What each word of a plan makes the server do."""

# SQLSTATE 2D000 and 25001, of which pgbench prints the words alone.
_NO_TRANSACTION = re.compile(r"invalid transaction termination|cannot run inside a transaction block")
_BY_HAND = "try the script by hand, in a database with the same settings"
_WRAPPED = (
    "the script has no BEGIN of its own, so it was wrapped in BEGIN and END, inside of which no procedure "
    "may COMMIT and nothing may run that takes no transaction"
)
_OWN_TRANSACTION = (
    "leave the COMMIT out of the procedure, and all of it is judged; or end the script with a transaction of "
    "its own, at the least BEGIN; SELECT 1; COMMIT; - then nothing is wrapped, but that one alone is judged: "
    "of what commits before it no loss can be seen"
)


@dataclass
class _Provocation:
    what: str
    at_operations: int
    is_begun: bool = False


def log_prefix(folder: Path, name: str) -> Path:
    """How the files begin into which a load of this name logs its transactions."""
    return folder / f"{name}-log"


@dataclass
class PgbenchRun:
    """One running load; ``client`` is pgbench, ``log_prefix`` names its transaction log.

    ``leaves_tokens`` tells whether its script writes at all; ``each_before`` transactions of every client
    are in the ledger already; ``is_wrapped`` tells that the script's BEGIN and END are duratune's own,
    ``is_conditional`` that a transaction may leave no token.
    """

    server: Server
    client: Child
    plan: Plan
    log_prefix: Path
    ledger: Ledger | None
    leaves_tokens: bool
    each_before: int = 0
    is_wrapped: bool = False
    is_conditional: bool = False
    _events: deque[Event] = field(default_factory=deque)
    _threads: list[threading.Thread] = field(default_factory=list)
    _killed: Killed | None = None
    _began_s: float = field(default_factory=time.monotonic)
    _checked_s: float = 0.0
    _window_ns: list[int] = field(default_factory=list)
    _wall_less_monotonic_ns: int = field(default_factory=lambda: time.time_ns() - time.monotonic_ns())
    _said: set[str] = field(default_factory=set)
    _provocations: list[_Provocation] = field(default_factory=list)

    def __post_init__(self) -> None:
        for item in filter(None, self.plan.provoke.split(",")):
            what, _, fraction = item.partition("@")
            self._provocations.append(_Provocation(what, int(float(fraction) * self.plan.operations)))
        self._say("opened")
        self._say("warming", seconds=self.plan.warmup_s)

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

        They are ``opened``, ``warming``, ``measuring``, ``measured`` (whose figures `figures` tells after the
        kill), ``reached``, ``provoked`` and ``stopped``. Raises InvalidInput where pgbench ends by itself,
        ServerDied where something else ends the server, Undecided where something else ends pgbench, or the
        load stops before.
        """
        wanted = (event,) if isinstance(event, str) else event
        ends_s = time.monotonic() + deadline_s
        while True:
            while self._events:
                found = self._events.popleft()
                if found["event"] in wanted:
                    return found
                if found["event"] == "stopped":
                    raise Undecided(f"the load stopped first: {found['why']}", where="pgbench")
            if time.monotonic() > ends_s:
                raise DeadlinePassed(
                    f"waiting for '{' or '.join(wanted)}': nothing within {deadline_s:g} s", where="pgbench"
                )
            self._look()
            if not self._events:
                time.sleep(POLL_S)

    def kill(self, at_last: Callable[[], object] = lambda: None) -> Killed:
        """SIGKILL the server's processes, then wait for pgbench to end by itself.

        ``at_last`` is called just before the first signal. Again returns what the first call did.
        """
        if self._killed is None:
            self._killed = self.server.kill(at_last)
            self.client.wait(END_DEADLINE_S, "ending after its server")
            for thread in self._threads:
                thread.join(END_DEADLINE_S)
        return self._killed

    def figures(self) -> Event:
        """What the measured phase came to, by pgbench's own log, which is whole after the kill."""
        begin_us, end_us = ((moment + self._wall_less_monotonic_ns) // 1000 for moment in self._window_ns)
        return transaction_log.figures(transaction_log.read(self.log_prefix), begin_us, end_us)

    def faults(self) -> list[str]:
        """Where pgbench's own log and the ledger do not agree; asked after the kill.

        An acknowledgement may be in the ledger whose answer the kill kept from pgbench, one for each client.
        A script that writes only sometimes succeeds without one. What failed or was skipped is in neither.
        """
        if self.ledger is None or not self.leaves_tokens:
            return []
        entries = self.ledger.entries()
        prefixes = [log_prefix(self.log_prefix.parent, name) for name in (FIRST, RUN)]
        lines = [line for prefix in prefixes for line in transaction_log.read(prefix)]
        done = transaction_log.done_by_client(lines)
        found = []
        for client in range(self.ledger.clients):
            acknowledged = int((entries.acknowledged & (entries.client == client + 1)).sum())
            logged = done.get(client, 0)
            if acknowledged > logged + 1 or (logged > acknowledged and not self.is_conditional):
                found.append(
                    f"client {client + 1} has {acknowledged} acknowledged transactions in the ledger and "
                    f"{logged} in pgbench's own log"
                )
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.kill()
        finally:
            self.client.__exit__(None, None, None)
            self.server.__exit__(None, None, None)
            if self.ledger is not None:
                self.ledger.close()

    # ---- looking ----

    def _say(self, event: str, **more: object) -> None:
        self._events.append({"event": event, **more})

    def _once(self, event: str, **more: object) -> None:
        if event not in self._said:
            self._said.add(event)
            self._say(event, **more)

    def _look(self) -> None:
        now_s = time.monotonic()
        if now_s - self._checked_s > CHECK_S:
            self._checked_s = now_s
            self.server.check()
        self._measure(now_s - self._began_s)
        self._count()
        if not self.client.identity.alive():
            self._client_ended()

    def _measure(self, since_s: float) -> None:
        """Begin and end of the measured window; a window of no length is never begun."""
        if not self.plan.measure_s:
            return
        if since_s >= self.plan.warmup_s and not self._window_ns:
            self._window_ns.append(time.monotonic_ns())
            self._once("measuring", ns=self._window_ns[0])
        elif len(self._window_ns) == 1:
            now_ns = time.monotonic_ns()
            if now_ns - self._window_ns[0] >= self.plan.measure_s * 1e9:
                self._window_ns.append(now_ns)
                self._once("measured")

    def _count(self) -> None:
        if self.ledger is None:
            return
        if self.ledger.stop != STOP_NONE:
            full = (
                "the write log is full" if self.ledger.stop == STOP_WRITE_LOG_FULL else "the ledger is full"
            )
            self._once("stopped", why=full, last_error="")
            return
        operations = self.ledger.operations - self.each_before * self.ledger.clients
        if self.plan.operations and operations >= self.plan.operations:
            self._once("reached", operations=operations, position=self.ledger.position)
        for provocation in self._provocations:
            if not provocation.is_begun and operations >= provocation.at_operations:
                provocation.is_begun = True
                thread = threading.Thread(target=self._provoke, args=(provocation.what,), daemon=True)
                self._threads.append(thread)
                thread.start()
                break

    def _provoke(self, what: str) -> None:
        """Have the server do it, in a session of its own; the kill may end that in its middle."""
        assert self.ledger is not None
        begin, error = self.ledger.position, ""
        try:
            with Session(self.server.address) as session:
                for statement in PROVOCATIONS[what]:
                    session.query(statement, deadline_s=PROVOKE_DEADLINE_S)
        except DuratuneError as failure:
            error = str(failure)
        if self._killed is None:
            self._say(
                "provoked", what=what, begin_position=begin, end_position=self.ledger.position, error=error
            )

    def _client_ended(self) -> None:
        """pgbench runs until its server is killed, so an end before that is a failure: the server's, somebody
        else's, or its own. Raises ServerDied, Undecided or InvalidInput."""
        code = self.client.wait(END_DEADLINE_S, "its end")
        said = self.client.log_tail()
        check_behind(self.server, said)
        if code < 0:
            raise Undecided(
                f"pgbench was ended by signal {signal.Signals(-code).name}",
                where="pgbench",
                hint="something outside ended it, such as the kernel for want of memory",
            )
        lines = [line for line in said.splitlines() if "error" in line.lower()] or said.splitlines()
        what, hint = f"pgbench ended: {' / '.join(lines[-3:])}", setting_to_blame(said) or _BY_HAND
        if self.is_wrapped and _NO_TRANSACTION.search(said):
            what, hint = f"{_WRAPPED}; {what}", _OWN_TRANSACTION
        raise InvalidInput(what, where="pgbench", hint=hint)
