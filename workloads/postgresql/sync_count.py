"""How often the server says that it has synced its log, to be held against what was recorded.

A session adds what it has counted to the shared statistics at most once a second and when it ends, so the
count is read when the load's sessions have ended and two looks agree. Where each write of the log is a sync
by itself (wal_sync_method=open_datasync, open_sync) the server counts no syncs, and its writes are taken.
"""

from __future__ import annotations

import time

from engines.postgresql.server import Server
from engines.postgresql.session import Session
from knobs.errors import Undecided
from workloads.ledger import Ledger, SyncSample

APART_S, LOOKS_MAX = 0.5, 20

# pg_stat_wal's columns moved to pg_stat_io in PostgreSQL 18 (release notes, "Monitoring").
_OLD = "SELECT wal_sync, wal_write FROM pg_stat_wal"
_NEW = (
    "SELECT sum(fsyncs)::bigint, sum(writes)::bigint FROM pg_stat_io "
    "WHERE object = 'wal' AND context = 'normal'"
)
COUNTS_SINCE, _NEW_MAJOR_MIN = 14, 18
"""PostgreSQL 13 has no such count."""


def sample_syncs(server: Server, ledger: Ledger) -> None:
    """Read the count, and the positions before and after, into the ledger; nothing where there is none.

    Raises Undecided if it never comes to rest.
    """
    major = server.cluster.binaries.version.major
    if major < COUNTS_SINCE:
        return
    query = _NEW if major >= _NEW_MAJOR_MIN else _OLD
    with Session(server.address) as session:
        method = session.value("SHOW wal_sync_method")
        is_on = session.value("SHOW fsync") == "on"
        last = -1
        for _ in range(LOOKS_MAX):
            before = ledger.position
            syncs, writes = (int(value or 0) for value in session.query(query)[0])
            after = ledger.position
            count = writes if is_on and method.startswith("open_") else syncs
            if count == last:
                ledger.put_sync_sample(SyncSample(before, count, after))
                return
            last = count
            time.sleep(APART_S)
    raise Undecided("the server's count of log syncs does not come to rest", where="pg_stat_wal")
