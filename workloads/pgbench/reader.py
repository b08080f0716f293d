"""What a pgbench load has left in a server: its tokens, its balances, and the loaded rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engines.postgresql.server import Server
from engines.postgresql.session import ConnectionLost, Session, StatementFailed
from workloads.pgbench import tables
from workloads.pgbench.identity import client_and_sequence
from workloads.pgbench.options import PgbenchOptions
from workloads.postgresql.verifier import Reading
from workloads.workload import CHECKSUM_RIGHT, HEADER_READABLE, KEY_MATCHES, ROW

LOADED, BALANCES = "loaded rows", "balances against the history"
_SOUND = HEADER_READABLE | CHECKSUM_RIGHT | KEY_MATCHES


class PgbenchReader:
    """Reads one load's tables. ``script`` is the built-in one, "" for the user's, whose loaded rows and
    balances nobody can judge; ``table`` and ``column`` hold the tokens."""

    def __init__(self, options: PgbenchOptions, script: str, table: str, column: str) -> None:
        self._options = options
        self._script = script
        self._table = table
        self._column = column

    @property
    def checks(self) -> Sequence[str]:
        """What is looked at beside the rows."""
        return [LOADED, BALANCES] if self._script else []

    def close(self) -> None:
        """Nothing is kept from one server to the next."""

    def read(self, server: Server, stage: str) -> Reading:
        """Every token, the balances, and how many of the loaded rows are gone."""
        reading = Reading()
        try:
            with Session(server.address) as session:
                if self._table:
                    reading.rows, reading.transactions = self._tokens(session)
                if self._script:
                    reading.faults += [
                        ("balances", fault) for fault in tables.wrong_balances(session, self._script)
                    ]
                    # What a script of the user's does to the loaded rows, nobody can say.
                    reading.lost = tables.rows_lost(session, self._options)
                reading.notes += [
                    f"{table} is an unlogged table, which PostgreSQL empties after a crash"
                    for table in tables.unlogged_tables(session)
                ]
        except (StatementFailed, ConnectionLost) as error:
            reading.faults.append((stage, str(error)))
            reading.is_lost = isinstance(error, ConnectionLost)
        return reading

    def _tokens(self, session: Session) -> tuple[NDArray[np.void], NDArray[np.uint64]]:
        """Every token, and the transaction that wrote it."""
        answer = session.query(f"SELECT {self._column}::text, xmin::text FROM {self._table}")
        rows = np.zeros(len(answer), dtype=ROW)
        transactions = np.zeros(len(answer), dtype=np.uint64)
        for number, (token, xmin) in enumerate(answer):
            client, sequence, flags = _owner(token)
            rows[number] = (number, sequence, client, flags, 0)
            transactions[number] = int(xmin or 0)
        return rows, transactions


def _owner(token: str | None) -> tuple[int, int, int]:
    """Client, sequence and flags of a token; what is none is a row that nobody can read."""
    try:
        client, sequence = client_and_sequence(int(token or ""))
        return client, sequence, _SOUND
    except ValueError:
        return 0, 0, 0
