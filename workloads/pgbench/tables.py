"""What pgbench's tables must hold whatever a crash has cut off: balances that agree, and every loaded row.

Each transaction of the built-in scripts adds one amount to an account (and `tpcb-like` to a teller and a
branch) and writes it into the history, all or nothing (pgbench(1)). Loaded balances are zero and the
history is empty, so every balance is the sum of its history, whichever transactions survived.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engines.postgresql.session import READ_DEADLINE_S, Session
from knobs.errors import InvalidInput, MachineLacks, Undecided
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
_TABLESPACES = """
select spcname, pg_tablespace_location(oid), 'PG_' || (current_setting('server_version_num')::int / 10000)
    || '_' || (select catalog_version_no from pg_control_system())
from pg_catalog.pg_tablespace where pg_tablespace_location(oid) like '/%'
"""
_UNLOGGED = """
select relname from pg_catalog.pg_class where relpersistence = 'u' and relkind = 'r' order by relname
"""
_CHANGED_UNLOGGED = """
select c.relname from pg_catalog.pg_stat_user_tables s join pg_catalog.pg_class c on c.oid = s.relid
where relpersistence = 'u' and n_tup_ins + n_tup_upd + n_tup_del > 0 order by c.relname
"""
_OTHERS = """
select count(*) from pg_catalog.pg_stat_activity
where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
"""
COUNTED_S = 1.0
"""Up to PostgreSQL 14 counts may be half a second old (PGSTAT_STAT_INTERVAL of pgstat.c)."""
SHARED_COUNTS_SINCE = 15
"""From here on counts lie in shared memory, and are there at once (release notes of 15)."""
ENDED_DEADLINE_S, POLL_S = 30.0, 0.05


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
        row = session.query(statement, deadline_s=READ_DEADLINE_S)[0]
        there, wrong = (int(value or 0) for value in row)
        lost += max(0, per_scale * options.scale - there)
        if wrong:
            faults.append(f"{wrong} rows of {table} have a {balance} that is not the sum of their history")
    return Kept(faults, lost)


def unlogged_tables(session: Session) -> list[str]:
    """The tables that PostgreSQL empties after a crash."""
    return [row[0] or "" for row in session.query(_UNLOGGED)]


def unlogged_changed(session: Session, major: int) -> list[str]:
    """The unlogged tables of which the other sessions of this database have changed rows, once these ended.

    A session hands over its counts before it has ended. Raises Undecided where one does not end.
    """
    ends_s = time.monotonic() + ENDED_DEADLINE_S
    while session.value(_OTHERS) != "0":
        if time.monotonic() > ends_s:
            raise Undecided(
                f"a session of the script's has not ended within {ENDED_DEADLINE_S:g} s, so nobody can tell "
                "what it writes",
                where="pgbench",
            )
        time.sleep(POLL_S)
    ends_s = time.monotonic() + (COUNTED_S if major < SHARED_COUNTS_SINCE else 0.0)
    while True:
        found = [row[0] or "" for row in session.query(_CHANGED_UNLOGGED)]
        if found or time.monotonic() > ends_s:
            return found
        time.sleep(POLL_S)


def named_in(script: str, names: Sequence[str]) -> list[str]:
    """Which of these tables a script names, whatever it does with them."""
    return [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", script, re.IGNORECASE)]


def refuse_tablespaces(session: Session) -> None:
    """Raises InvalidInput where the cluster was given a tablespace, once what lies there is removed: it is
    outside of the cluster's own folder, where no crash state and no clone would have it."""
    found = session.query(_TABLESPACES)
    if not found:
        return
    for _, location, version in found:
        # Made by this very cluster: PostgreSQL refuses one that is there already.
        place = Path(location or "") / (version or "")
        try:
            shutil.rmtree(place)
        except OSError as error:
            raise MachineLacks(
                f"a tablespace of --init-sql cannot be removed: {error.strerror}",
                where=str(place),
                hint="remove it by hand",
            ) from error
    raise InvalidInput(
        f"tablespace {found[0][0]} lies outside of the private cluster, at {found[0][1]}",
        where="--init-sql",
        hint="leave out CREATE TABLESPACE, and TABLESPACE behind tables and indexes",
    )
