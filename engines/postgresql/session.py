"""duratune's own statements: one connection over the private socket, every wait with a deadline.

It speaks through psycopg's binding of libpq (psycopg.pq) without blocking, because a server that was
stopped, or hangs on its disk, answers nothing at all, and no timeout of the server's ends that wait.
Values go out and come back as text, as PostgreSQL prints them.
"""

from __future__ import annotations

import importlib
import select
import textwrap
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from engines.process import DeadlinePassed
from knobs.errors import MachineLacks, Undecided

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

    from engines.postgresql.server import Address

_UNBOUNDED = (
    "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 "
    "-c default_transaction_read_only=off -c temp_file_limit=-1"
)
_TOLD = "-c log_min_messages=warning -c lc_messages=C"
_LATER = ((14, "idle_session_timeout"), (17, "transaction_timeout"))
"""More limits, by the version that has each first."""
_CANCELED = ("57014", "57P05", "25P04")
"""SQLSTATEs query_canceled, idle_session_timeout and transaction_timeout."""
_RESOURCES = "53"
"""The class of SQLSTATEs of insufficient resources: no disk, no memory, no connection, a limit."""
CONNECT_DEADLINE_S = 30.0
STATEMENT_DEADLINE_S = 60.0
READ_DEADLINE_S = 600.0
"""For a statement that reads whole tables."""
STATEMENT_SHOWN = 60

Row = tuple[str | None, ...]


def own_options(major: int) -> str:
    """Options of a connection of duratune's own to a server of this version.

    What a candidate sets to end its clients' statements must not end a look at what they have left, nor what
    is done to provoke the server (manual, 20.11 and 20.4); and what a database or role sets must not keep
    from the log what goes wrong in that look (20.8), or in other words: a connection's options come before
    both (src/include/utils/guc.h, GucSource).
    """
    later = [f"-c {name}=0" for since, name in _LATER if major >= since]
    return " ".join([_UNBOUNDED, _TOLD, *later])


def conninfo(address: Address, database: str = "postgres", **more: str) -> str:
    """How libpq finds a server, and what else it is told (manual, "Keyword/Value Connection Strings")."""
    values = {
        "host": str(address.sockets),
        "port": str(address.port),
        "user": address.user,
        "dbname": database,
        **more,
    }
    return " ".join(f"{name}={_quoted(value)}" for name, value in values.items())


def is_of_the_machine(sqlstate: str) -> bool:
    """Whether an error with this SQLSTATE says nothing of the data (manual, Appendix A)."""
    return sqlstate in _CANCELED or sqlstate.startswith(_RESOURCES)


class StatementFailed(Undecided):
    """The server refused a statement; ``sqlstate`` is its five-character code, "" if it gave none."""

    def __init__(self, message: str, sqlstate: str, statement: str) -> None:
        super().__init__(message, where=_shown(statement))
        self.sqlstate = sqlstate

    @property
    def is_of_the_machine(self) -> bool:
        """Whether it says nothing of the data: it was ended from outside, or something was lacking."""
        return is_of_the_machine(self.sqlstate)


class ConnectionLost(Undecided):
    """The connection could not be made, or ended before the answer came."""


class Session:
    """One connection. Use as a context manager."""

    def __init__(
        self,
        address: Address,
        database: str = "postgres",
        *,
        user: str | None = None,
        options: str = "",
        is_clients: bool = False,
        deadline_s: float = CONNECT_DEADLINE_S,
    ) -> None:
        """Connect; ``options`` are the connection's own, as in PGOPTIONS.

        One that ``is_clients``, or of another ``user`` than the superuser, has what a client of the load has
        in force; else no timeout and no limit of the server's ends its statements.

        Raises ConnectionLost if the server refuses, DeadlinePassed if it does not answer in time,
        MachineLacks without libpq.
        """
        self._pq, self._error = _libpq()
        is_own = user is None and not is_clients
        text = conninfo(
            address,
            database,
            user=user or address.user,
            options=f"{address.own_options} {options}" if is_own else options,
            application_name="duratune",
            client_encoding="UTF8",
        )
        self._connection: PGconn = self._pq.PGconn.connect_start(text.encode())
        try:
            self._connect(time.monotonic() + deadline_s)
        except BaseException:
            # An interrupt included: the caller never sees this session, so nobody else would close it.
            self.close()
            raise

    def query(
        self,
        statement: str,
        parameters: Sequence[str | None] = (),
        deadline_s: float = STATEMENT_DEADLINE_S,
    ) -> list[Row]:
        """The rows of one statement; $1, $2 stand for ``parameters``. It commits by itself.

        Raises StatementFailed, ConnectionLost, or DeadlinePassed; after the last the connection is closed.
        """
        ends_s = time.monotonic() + deadline_s
        values = [None if value is None else value.encode() for value in parameters]
        try:
            self._connection.send_query_params(statement.encode(), values)
            results = self._results(ends_s, statement)
        except self._error as error:
            raise ConnectionLost(str(error).strip(), where=_shown(statement)) from error
        except DeadlinePassed:
            self.close()
            raise
        return self._rows(results[-1], statement) if results else []

    def value(self, statement: str, parameters: Sequence[str | None] = ()) -> str:
        """The only value of a statement that has one. Raises Undecided if it has none or another number."""
        rows = self.query(statement, parameters)
        if len(rows) != 1 or len(rows[0]) != 1 or rows[0][0] is None:
            raise Undecided(f"one value was expected, not {rows[:3]}", where=_shown(statement))
        return rows[0][0]

    def close(self) -> None:
        """End the connection."""
        self._connection.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self, ends_s: float) -> None:
        state = self._pq.PollingStatus.WRITING
        while state != self._pq.PollingStatus.OK:
            if state == self._pq.PollingStatus.FAILED or self._connection.status == self._pq.ConnStatus.BAD:
                raise ConnectionLost(self._said(), where="connection")
            self._wait(state == self._pq.PollingStatus.WRITING, ends_s, "connection")
            state = self._connection.connect_poll()
        self._connection.nonblocking = 1

    def _results(self, ends_s: float, statement: str) -> list[PGresult]:
        while self._connection.flush():
            self._wait(True, ends_s, statement)
        results: list[PGresult] = []
        while True:
            while self._connection.is_busy():
                self._wait(False, ends_s, statement)
                self._connection.consume_input()
            result = self._connection.get_result()
            if result is None:
                return results
            results.append(result)

    def _rows(self, result: PGresult, statement: str) -> list[Row]:
        status = self._pq.ExecStatus(result.status)
        if status == self._pq.ExecStatus.FATAL_ERROR:
            state = result.error_field(self._pq.DiagnosticField.SQLSTATE)
            message = result.get_error_message().strip()
            if self._connection.status == self._pq.ConnStatus.BAD:
                raise ConnectionLost(message, where=_shown(statement))
            raise StatementFailed(message, (state or b"").decode(), statement)
        return [
            tuple(_text(result.get_value(row, column)) for column in range(result.nfields))
            for row in range(result.ntuples)
        ]

    def _wait(self, is_writing: bool, ends_s: float, what: str) -> None:
        socket = [self._connection.socket]
        left_s = max(0.0, ends_s - time.monotonic())
        ready = select.select([] if is_writing else socket, socket if is_writing else [], [], left_s)
        if not (ready[0] or ready[1]):
            raise DeadlinePassed("the server does not answer in time", where=_shown(what))

    def _said(self) -> str:
        return self._connection.get_error_message().strip()


def _libpq() -> tuple[Any, type[Exception]]:
    """psycopg.pq and the class of what it raises; imported late, for it looks for libpq at once."""
    try:
        binding = importlib.import_module("psycopg.pq")
        return binding, importlib.import_module("psycopg").Error
    except ImportError as error:
        raise MachineLacks(
            f"psycopg finds no libpq: {error}", where="libpq", hint="install the Debian package libpq5"
        ) from error


def _shown(statement: str) -> str:
    """A statement in an error: on one line, and as much of it as tells which one it is."""
    return textwrap.shorten(statement, STATEMENT_SHOWN, placeholder=" ...")


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", errors="surrogateescape")


def _quoted(value: str) -> str:
    """A value in a connection string (manual, libpq, "Keyword/Value Connection Strings")."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
