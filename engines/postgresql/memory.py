"""Refuses, before the start, the shared memory that this machine or its control group cannot hold.

The server itself says how much it would take (`postgres -C shared_memory_size`, PostgreSQL 15 and newer;
older ones are counted as shared_buffers + wal_buffers). What sessions may take on top of it (work_mem and
the like) is the knobs' own rule. The limit is the memory of the machine or of its control group, not what
is free just now, so that the same candidate is refused every time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engines import host
from engines.postgresql import server_log
from engines.postgresql.cluster import Cluster, Seen
from engines.postgresql.configuration import Configuration
from engines.postgresql.refusal import StartRefused

ASK_DEADLINE_S = 30.0
_MIB = 1 << 20
_BLOCK_BYTES = 8192
_TOTAL_KNOWN_MAJOR_MIN = 15

# What PostgreSQL's shared memory grows with (manual, "Managing Kernel Resources").
_SIZING = {
    "shared_buffers",
    "wal_buffers",
    "huge_pages",
    "huge_page_size",
    "min_dynamic_shared_memory",
    "max_connections",
    "autovacuum_max_workers",
    "autovacuum_worker_slots",
    "max_worker_processes",
    "max_wal_senders",
    "max_replication_slots",
    "max_prepared_transactions",
    "max_locks_per_transaction",
    "max_pred_locks_per_transaction",
    "track_activity_query_size",
    "commit_timestamp_buffers",
    "multixact_member_buffers",
    "multixact_offset_buffers",
    "notify_buffers",
    "serializable_buffers",
    "subtransaction_buffers",
    "transaction_buffers",
    "io_max_concurrency",
    "max_active_replication_origins",
}


@dataclass(frozen=True)
class SharedMemory:
    """What a server would take when it starts. ``huge_pages`` is their number where it insists on them."""

    total_bytes: int
    shared_buffers_bytes: int
    wal_buffers_bytes: int
    huge_pages: int | None = None

    def __str__(self) -> str:
        """The sum in MiB, part by part."""
        rest = self.total_bytes - self.shared_buffers_bytes - self.wal_buffers_bytes
        parts = (
            f"shared_buffers {_mib(self.shared_buffers_bytes)}",
            f"wal_buffers {_mib(self.wal_buffers_bytes)}",
            f"the rest {_mib(rest)}",
        )
        return f"{' + '.join(parts)} = {_mib(self.total_bytes)} MiB of shared memory"


@dataclass(frozen=True)
class Room:
    """What there is: bytes of memory, whose limit that is, and free huge pages of the default size."""

    limit_bytes: int
    whose: str
    huge_pages_free: int
    huge_page_bytes: int


def refuse_what_does_not_fit(cluster: Cluster, configuration: Configuration, seen: Seen) -> None:
    """Raises StartRefused with the arithmetic; silent where the server cannot say, for it says why when it
    is started.

    Each question costs a short start of the server, so there are none where nothing that is proposed has
    to do with shared memory.
    """
    if not {name.lower() for name in configuration.proposed} & _SIZING:
        return
    wanted = ask(cluster, configuration, seen)
    if wanted is not None:
        refuse(wanted, room())


def refuse(wanted: SharedMemory, there: Room) -> None:
    """Raises StartRefused, the arithmetic shown, if it does not fit."""
    if wanted.total_bytes > there.limit_bytes:
        line = f"{wanted}; {there.whose} has {_mib(there.limit_bytes)} MiB"
        raise StartRefused("memory", [line], "shared_buffers", "lower shared_buffers")
    if wanted.huge_pages is not None and wanted.huge_pages > there.huge_pages_free:
        line = (
            f"huge_pages=on: {wanted} = {wanted.huge_pages} pages of {there.huge_page_bytes >> 10} KiB; "
            f"{there.huge_pages_free} are free"
        )
        hint = f"reserve them (sysctl vm.nr_hugepages={wanted.huge_pages}), or set huge_pages=try"
        raise StartRefused("memory", [line], "huge_pages", hint)


def ask(cluster: Cluster, configuration: Configuration, seen: Seen) -> SharedMemory | None:
    """What a server with this configuration would take; None if it would not start anyway."""
    known = cluster.binaries.version.major >= _TOTAL_KNOWN_MAJOR_MIN
    names = ["shared_buffers", "wal_buffers", "huge_pages", *(["shared_memory_size"] if known else [])]
    values = {name: _ask(cluster, configuration, seen, name) for name in names}
    if None in values.values():
        return None
    buffers, wal = (int(values[name] or 0) * _BLOCK_BYTES for name in ("shared_buffers", "wal_buffers"))
    if wal < 0:
        # Its default: a 32nd of shared_buffers, at least 64 kB, at most one segment (manual, wal_buffers).
        wal = min(max(buffers // 32, 64 << 10), 16 * _MIB)
    total = max(buffers + wal, int(values.get("shared_memory_size") or 0) * _MIB)
    pages = -(-total // _huge_pages()[1]) if values["huge_pages"] == "on" else None
    return SharedMemory(total, buffers, wal, pages)


def room() -> Room:
    """What this machine and its control group have."""
    machine = host.describe()
    free, size = _huge_pages()
    limit = machine.limits.memory_bytes
    if limit is not None and limit < machine.memory_bytes:
        return Room(limit, "its control group", free, size)
    return Room(machine.memory_bytes, "this machine", free, size)


def _ask(cluster: Cluster, configuration: Configuration, seen: Seen, name: str) -> str | None:
    arguments = ["-D", seen.path, *configuration.arguments(), "-C", name]
    done = cluster.run("postgres", arguments, seen, ASK_DEADLINE_S)
    if done.returncode != 0 or server_log.faults(server_log.parse(done.stderr)):
        return None
    return done.stdout.strip()


def _huge_pages(meminfo: Path = Path("/proc/meminfo")) -> tuple[int, int]:
    """Free huge pages that nobody has reserved, and their size in bytes (proc(5), /proc/meminfo)."""
    values = {}
    for line in meminfo.read_text().splitlines():
        name, _, value = line.partition(":")
        values[name] = int(value.split()[0])
    free = values.get("HugePages_Free", 0) - values.get("HugePages_Rsvd", 0)
    return max(0, free), values.get("Hugepagesize", 2048) << 10


def _mib(size: int) -> str:
    return f"{size / _MIB:.0f}"
