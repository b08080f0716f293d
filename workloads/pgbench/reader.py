"""What a pgbench load has left in a server: its tokens, its balances, and the loaded rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engines.postgresql.server import Server
from engines.postgresql.session import READ_DEADLINE_S, ConnectionLost, Session, StatementFailed
from workloads.pgbench import tables
from workloads.pgbench.identity import CLIENT_STEP, TOKEN_BASE, TOKENS
from workloads.pgbench.options import PgbenchOptions
from workloads.postgresql.verifier import Reading
from workloads.workload import CHECKSUM_RIGHT, HEADER_READABLE, KEY_MATCHES, ROW

LOADED, BALANCES = "loaded rows", "balances against the history"
ALONE = "-c max_parallel_workers_per_gather=0 -c jit=off"
"""The connection's own settings: helpers and compiled code take longer to make than they save, with as many
servers at work as there are cores."""
_TOKENS = """
select string_agg(case when {column}::text ~ '^[0-9]{{19}} *$' then {column}::text else '0' end, ' '),
 string_agg(xmin::text, ' ') from {table}
"""
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

    def read(self, server: Server, stage: str, *, is_whole: bool) -> Reading:
        """Every token; the whole is also the balances, and how many of the loaded rows are gone."""
        reading = Reading()
        try:
            with Session(server.address, options=ALONE) as session:
                if self._table:
                    reading.rows, reading.transactions = self._tokens(session)
                if self._script and is_whole:
                    kept = tables.read(session, self._script, self._options)
                    reading.faults += [("balances", fault) for fault in kept.faults]
                    # What a script of the user's does to the loaded rows, nobody can say.
                    reading.lost = kept.lost
                reading.notes += [
                    f"{table} is an unlogged table, which PostgreSQL empties after a crash"
                    for table in tables.unlogged_tables(session)
                ]
        except (StatementFailed, ConnectionLost) as error:
            if isinstance(error, StatementFailed) and error.is_of_the_machine:
                raise
            reading.faults.append((stage, str(error)))
            reading.is_lost = isinstance(error, ConnectionLost)
        return reading

    def _tokens(self, session: Session) -> tuple[NDArray[np.void], NDArray[np.uint64]]:
        """Every token, and the transaction that wrote it."""
        # An answer of two values takes a tenth of the time of one of so many rows.
        statement = _TOKENS.format(column=self._column, table=self._table)
        tokens, xmins = (value or "" for value in session.query(statement, deadline_s=READ_DEADLINE_S)[0])
        numbers = np.array(tokens.split(), dtype=np.uint64)
        rows = np.zeros(len(numbers), dtype=ROW)
        rows["key"] = np.arange(len(numbers))
        # What is no token is a row that nobody can read.
        sound = (numbers > TOKEN_BASE) & (numbers < TOKEN_BASE + TOKENS)
        client, sequence = np.divmod(numbers[sound] - TOKEN_BASE, CLIENT_STEP)
        rows["client"][sound], rows["sequence"][sound], rows["flags"][sound] = client, sequence, _SOUND
        return rows, np.array(xmins.split(), dtype=np.uint64)
