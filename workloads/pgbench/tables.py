"""What pgbench's tables must hold whatever a crash has cut off: balances that agree, and every loaded row.

Each transaction of the built-in scripts adds one amount to an account (and `tpcb-like` to a teller and a
branch) and writes it into the history, all or nothing (pgbench(1)). Loaded balances are zero and the
history is empty, so every balance is the sum of its history, whichever transactions survived.
"""

from __future__ import annotations

from collections.abc import Iterator

from engines.postgresql.session import Session
from workloads.pgbench.options import (
    ACCOUNTS_PER_SCALE,
    BRANCHES_PER_SCALE,
    TELLERS_PER_SCALE,
    PgbenchOptions,
)

_TABLES = {
    "pgbench_accounts": ("aid", "abalance", ACCOUNTS_PER_SCALE),
    "pgbench_tellers": ("tid", "tbalance", TELLERS_PER_SCALE),
    "pgbench_branches": ("bid", "bbalance", BRANCHES_PER_SCALE),
}
_CHANGED = {
    "tpcb-like": tuple(_TABLES),
    "simple-update": ("pgbench_accounts",),
    "select-only": (),
}
_WRONG = """
select count(*) from (select {key}, sum(delta) as delta from pgbench_history group by {key}) h
full join (select {key}, {balance} as balance from {table} where {balance} <> 0) b using ({key})
where coalesce(h.delta, 0) <> coalesce(b.balance, 0)
"""
_UNLOGGED = """
select relname from pg_catalog.pg_class where relpersistence = 'u' and relkind = 'r' order by relname
"""


def wrong_balances(session: Session, script: str) -> Iterator[str]:
    """Every table whose balances are not the sums of their history, for a built-in script."""
    for table in _CHANGED.get(script, ()):
        key, balance, _ = _TABLES[table]
        wrong = int(session.value(_WRONG.format(key=key, balance=balance, table=table)))
        if wrong:
            yield f"{wrong} rows of {table} have a {balance} that is not the sum of their history"


def rows_lost(session: Session, options: PgbenchOptions) -> int:
    """How many of the loaded rows are not there."""
    lost = 0
    for table, (_, _, per_scale) in _TABLES.items():
        there = int(session.value(f"select count(*) from {table}"))
        lost += max(0, per_scale * options.scale - there)
    return lost


def unlogged_tables(session: Session) -> list[str]:
    """The tables that PostgreSQL empties after a crash."""
    return [row[0] or "" for row in session.query(_UNLOGGED)]
