"""How much memory PostgreSQL settings may take, as a sum whose terms are told.

Shared memory was calibrated with `postgres -C shared_memory_size` of 15.18 (a test compares them again); what
a backend needs for itself was read from /proc while pgbench ran on 15.18: 1.4 MB of private memory each.
"""

from __future__ import annotations

from knobs.postgresql.values import KIB, InForce, bytes_of, whole

MIB = KIB * KIB

# Descriptors, locks and maps of the buffer pool lie beside it: 4 % of it.
_BUFFER_OVERHEAD = 0.04
# Tables that do not depend on a setting: 6 MB.
_FIXED_BYTES = 6 * MIB
# One possible process or prepared transaction: its entries beside the locks, and one lock.
_PROCESS_BYTES = 24 * KIB
_LOCK_BYTES = 390

# What a backend has for itself beside what the settings give it: catalogue caches, plans, page tables. More
# than the 1.4 MB seen, because caches grow with the tables that a session has touched.
BACKEND_BYTES = 4 * MIB

# wal_buffers=-1: a 32nd of shared_buffers, one WAL segment at most, 64 kB at least.
_WAL_SHARE = 32
_WAL_LEAST_BYTES = 64 * KIB
_WAL_SEGMENT_BYTES = 16 * MIB


def memory_bytes(in_force: InForce, connections: int) -> tuple[int, list[str]]:
    """What the server may hold at once with this many clients, in bytes, and its terms in words.

    ``in_force`` holds every setting, normalised. One sort or hash table is counted for each client; a query
    with several takes work_mem for each of them. Temporary tables, parallel workers and the page cache come
    on top.
    """
    terms = [*_shared(in_force), *_private(in_force, connections)]
    total = sum(amount for amount, _ in terms)
    return total, [f"{text} = {_megabytes(amount)}" for amount, text in terms if amount]


def shared_memory_bytes(in_force: InForce) -> int:
    """What the server asks the operating system for at its start, with huge_pages=on in huge pages."""
    return sum(amount for amount, _ in _shared(in_force))


def _shared(s: InForce) -> list[tuple[int, str]]:
    buffers = bytes_of(s, "shared_buffers", "8kB")
    processes = _processes(s)
    locks = whole(s, "max_locks_per_transaction")
    per_process = _PROCESS_BYTES + locks * _LOCK_BYTES
    return [
        (
            int(buffers * (1 + _BUFFER_OVERHEAD)),
            f"shared_buffers {_megabytes(buffers)} and 4 % to manage them",
        ),
        (_wal_buffers(s, buffers), "wal_buffers"),
        (
            processes * per_process,
            f"{processes} possible processes x {per_process // KIB} kB for their locks",
        ),
        (_FIXED_BYTES + bytes_of(s, "min_dynamic_shared_memory", "MB"), "fixed shared tables"),
    ]


def _private(s: InForce, connections: int) -> list[tuple[int, str]]:
    work = bytes_of(s, "work_mem", "kB")
    multiplier = float(s["hash_mem_multiplier"])
    workers = whole(s, "autovacuum_max_workers")
    maintenance = bytes_of(s, "maintenance_work_mem", "kB")
    vacuum = maintenance
    if whole(s, "autovacuum_work_mem") >= 0:
        vacuum = bytes_of(s, "autovacuum_work_mem", "kB")
    each = int(work * multiplier)
    return [
        (connections * BACKEND_BYTES, f"{connections} clients x {_megabytes(BACKEND_BYTES)} of their own"),
        (
            connections * each,
            f"{connections} clients x work_mem {_megabytes(work)} x hash_mem_multiplier {multiplier:g}",
        ),
        (workers * vacuum, f"{workers} autovacuum workers x {_megabytes(vacuum)}"),
        (maintenance, "maintenance_work_mem, once"),
    ]


def _wal_buffers(s: InForce, buffers: int) -> int:
    if whole(s, "wal_buffers") >= 0:
        return bytes_of(s, "wal_buffers", "8kB")
    return max(_WAL_LEAST_BYTES, min(buffers // _WAL_SHARE, _WAL_SEGMENT_BYTES))


def _processes(s: InForce) -> int:
    slots = whole(s, "autovacuum_worker_slots", absent=whole(s, "autovacuum_max_workers"))
    names = ("max_connections", "max_worker_processes", "max_wal_senders", "max_prepared_transactions")
    return slots + sum(whole(s, name) for name in names)


def _megabytes(amount: int) -> str:
    megabytes = amount / MIB
    return f"{megabytes:.0f} MB" if megabytes >= 10 else f"{megabytes:.2g} MB"
