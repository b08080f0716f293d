"""What pgbench's tables must hold whatever a crash has cut off: balances that agree, and every loaded row.

Each transaction of the built-in scripts adds one amount to an account (and `tpcb-like` to a teller and a
branch) and writes it into the history, all or nothing (pgbench(1)). Loaded balances are zero and the
history is empty, so every balance is the sum of its history, whichever transactions survived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
_WRONG = """(select count(*)
 from (select {key}, sum(delta) as delta from pgbench_history group by {key}) h
 full join unnest(keys, balances) as b({key}, balance) using ({key})
 where coalesce(h.delta, 0) <> coalesce(b.balance, 0))"""
_SCANNED = """
with scanned as (
 select count(*) as there,
  array_agg({key}) filter (where {balance} <> 0) as keys,
  array_agg({balance}) filter (where {balance} <> 0) as balances
 from {table})
select there, {wrong} from scanned
"""
"""The table is read once: most of a state's time goes into reading the accounts."""
_UNLOGGED = """
select relname from pg_catalog.pg_class where relpersistence = 'u' and relkind = 'r' order by relname
"""


@dataclass(frozen=True)
class Kept:
    """What the tables hold: each whose balances are not the sums of their history, in words, and how many of
    the loaded rows are not there."""

    faults: Sequence[str]
    lost: int


def read(session: Session, script: str, options: PgbenchOptions) -> Kept:
    """Look through every table of a built-in script."""
    faults, lost = [], 0
    for table, (key, balance, per_scale) in _TABLES.items():
        is_changed = table in _CHANGED.get(script, ())
        wrong_sql = _WRONG.format(key=key) if is_changed else "0"
        statement = _SCANNED.format(key=key, balance=balance, table=table, wrong=wrong_sql)
        there, wrong = (int(value or 0) for value in session.query(statement)[0])
        lost += max(0, per_scale * options.scale - there)
        if wrong:
            faults.append(f"{wrong} rows of {table} have a {balance} that is not the sum of their history")
    return Kept(faults, lost)


def unlogged_tables(session: Session) -> list[str]:
    """The tables that PostgreSQL empties after a crash."""
    return [row[0] or "" for row in session.query(_UNLOGGED)]
