"""Which settings a tuner searches, and where.

Numbers are in the setting's own unit, as `postgres -C` prints it. The ranges say where improvement is usually
found, not what is allowed; the manual's text on the setting is their source unless a line says otherwise.
Nothing in RANGES changes what an acknowledged write is worth; UNSAFE_RANGES give safety away. Settings of a
session's plans are left out unless short transactions feel them. `ranges` fits them to a
host and to a server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from knobs.knob import TuningRange, choice, linear, log
from knobs.postgresql.memory import memory_bytes

if TYPE_CHECKING:  # The catalogue itself reads RANGES.
    from knobs.postgresql.catalogue import PostgresqlCatalogue

__all__ = ["RANGES", "UNSAFE_RANGES", "bounded_ranges", "memory_bytes", "ranges"]

_PAGES_PER_MB = 128
_KB_PER_MB = 1024
_MB = 1024 * 1024


def _switch(why: str) -> TuningRange:
    return choice(why, "off", "on")


RANGES: dict[str, TuningRange] = {
    # Memory.
    "shared_buffers": log(
        16 * _PAGES_PER_MB, 1024 * _PAGES_PER_MB, "pages that need no system call; 25 % to 40 % of memory"
    ),
    "work_mem": log(1 * _KB_PER_MB, 64 * _KB_PER_MB, "one sort or hash table before it goes to disk"),
    "maintenance_work_mem": log(16 * _KB_PER_MB, 512 * _KB_PER_MB, "vacuum and index builds"),
    "effective_cache_size": log(
        128 * _PAGES_PER_MB, 4096 * _PAGES_PER_MB, "what the planner expects to be cached; takes no memory"
    ),
    "huge_pages": choice("fewer page table entries", "off", "try"),
    "hash_mem_multiplier": linear(1.0, 4.0, "how much more a hash table may take"),
    # WAL.
    "wal_buffers": log(32, 128 * _PAGES_PER_MB, "WAL that waits for a flush; -1 is a 32nd of shared_buffers"),
    "wal_compression": choice("fewer WAL bytes for more CPU", "off", "on", "pglz", "lz4", "zstd"),
    "wal_init_zero": _switch("new WAL files filled with zeros, or not (copy-on-write file systems)"),
    "wal_recycle": _switch("old WAL files renamed, or new ones made (copy-on-write file systems)"),
    "wal_sync_method": choice(
        "one call or two for each flush, as pg_test_fsync compares them",
        "fdatasync",
        "fsync",
        "open_datasync",
    ),
    "commit_delay": choice(
        "microseconds a group's leader waits for others: half of one flush", "0", "10", "50", "200", "1000"
    ),
    "commit_siblings": linear(1, 20, "open transactions that commit_delay needs"),
    "wal_writer_delay": log(10, 1000, "how often the WAL writer relieves the backends"),
    "wal_writer_flush_after": choice("how much WAL it flushes at once", "0", "16", "128", "1024"),
    # Checkpoints and writeback: fewer full pages in the WAL for a longer recovery.
    "checkpoint_timeout": log(60, 3600, "fewer checkpoints, fewer full pages, a longer recovery"),
    "max_wal_size": log(512, 16 * 1024, "fewer checkpoints, fewer full pages, a longer recovery"),
    "min_wal_size": log(80, 4096, "how much WAL is kept for reuse"),
    "checkpoint_completion_target": linear(0.5, 0.95, "how evenly a checkpoint writes"),
    "checkpoint_flush_after": choice("smooths the checkpoint's writeback", "0", "16", "32", "64", "256"),
    "bgwriter_delay": log(10, 1000, "how often clean pages are made"),
    "bgwriter_lru_maxpages": linear(0, 1000, "pages written in a round"),
    "bgwriter_lru_multiplier": linear(0.0, 8.0, "how far ahead of the demand"),
    "bgwriter_flush_after": choice("smooths its writeback", "0", "32", "64", "256"),
    "backend_flush_after": choice("smooths the backends' writeback", "0", "32", "64", "256"),
    # Input and output.
    "random_page_cost": linear(1.0, 4.0, "1.1 on flash, 4 on disks (PGTune)"),
    "effective_io_concurrency": choice("reads ahead; 200 on flash (PGTune)", "0", "1", "16", "64", "200"),
    "maintenance_io_concurrency": choice("the same for vacuum", "0", "10", "16", "64", "200"),
    # Without io_uring, whose requests pass the lab's recorder by: no verdict could be given.
    "io_method": choice("asynchronous reads by workers, or none", "sync", "worker"),
    "io_workers": linear(1, 8, "processes that read for the others"),
    "io_combine_limit": choice("pages of one read", "1", "4", "16", "32"),
    # Vacuum.
    "autovacuum_naptime": log(5, 300, "how often tables are looked at"),
    "autovacuum_vacuum_scale_factor": linear(0.01, 0.4, "dead rows before a table is vacuumed"),
    "autovacuum_analyze_scale_factor": linear(0.01, 0.4, "changed rows before it is analysed"),
    "autovacuum_vacuum_cost_delay": linear(0.0, 20.0, "milliseconds of rest"),
    "autovacuum_vacuum_cost_limit": log(100, 10000, "work before a rest; -1 is vacuum_cost_limit"),
    "autovacuum_max_workers": linear(1, 4, "tables vacuumed at once"),
    # Processes, plans, bookkeeping.
    "max_parallel_workers_per_gather": linear(0, 4, "processes that share one query"),
    "jit": _switch("compiles long queries, and costs short ones"),
    "plan_cache_mode": choice("plans of prepared statements", "auto", "force_generic_plan"),
    "default_statistics_target": log(10, 500, "rows that the planner's statistics rest on"),
    "deadlock_timeout": log(100, 10000, "milliseconds of waiting before a search for deadlocks"),
    "update_process_title": _switch("one write to the process title for each command"),
    "track_activities": _switch("what each session runs, for pg_stat_activity"),
}

# What a search that looks at speed alone would vary too. Never part of a search for a configuration that
# holds its contract; only an audit of what such a search ships puts these in.
UNSAFE_RANGES: dict[str, TuningRange] = {
    "fsync": _switch("nothing is ever synced"),
    "synchronous_commit": choice("commits acknowledged before they are written", "on", "off"),
    "full_page_writes": _switch("no full pages in the WAL"),
    # It breaks no contract after a crash, and leaves nothing to archive or to send to a standby.
    "wal_level": choice(
        "no more WAL than a recovery after a crash needs",
        "replica",
        "minimal",
        needs=(("minimal", "max_wal_senders", "0"),),
    ),
}

# Share of the host's memory that the upper end of a memory-bound range may reach, in the setting's unit.
_PER_MEMORY: dict[str, tuple[float, int]] = {
    # "It is unlikely that an allocation of more than 40% of RAM to shared_buffers will work better."
    "shared_buffers": (0.4, _MB // _PAGES_PER_MB),
    # Each client may take several of these.
    "work_mem": (1 / 64, _MB // _KB_PER_MB),
    # PGTune: a 16th, 2 GB at most.
    "maintenance_work_mem": (1 / 8, _MB // _KB_PER_MB),
    # PGTune: three quarters.
    "effective_cache_size": (0.75, _MB // _PAGES_PER_MB),
}
_PER_CORE: dict[str, Callable[[int], int]] = {
    "max_parallel_workers_per_gather": lambda cores: cores,
    "autovacuum_max_workers": lambda cores: max(3, cores),
    "io_workers": lambda cores: max(3, 2 * cores),
}

# The least delay that wal_writer_delay takes, and how many of its rounds an early commit may wait.
_DELAY_LEAST_MS = 1
_ROUNDS = 3


def ranges(memory_bytes: int, cores: int, catalogue: PostgresqlCatalogue) -> dict[str, TuningRange]:
    """The ranges for a host (or container) with this much memory and this many cores.

    Only settings and choices that the ``catalogue`` has.
    """
    chosen = {name: found for name, found in RANGES.items() if catalogue.has(name)}
    for name, (share, unit_bytes) in _PER_MEMORY.items():
        base = RANGES[name]
        high = max((base.low or 1) * 2, float(int(memory_bytes * share) // unit_bytes))
        chosen[name] = TuningRange(base.low, high, base.log, (), base.why)
    for name, high_of in _PER_CORE.items():
        if name in chosen:
            base = RANGES[name]
            chosen[name] = TuningRange(
                base.low, max(high_of(cores), (base.low or 0) + 1), base.log, (), base.why
            )
    for name, found in chosen.items():
        if found.choices:
            chosen[name] = replace(found, choices=_taken(catalogue.knob(name).choices, found.choices))
    return chosen


def bounded_ranges(window_ms: float) -> dict[str, TuningRange]:
    """What a contract that allows to lose the last ``window_ms`` pays for: commits that are acknowledged
    early, with a WAL writer whose three rounds fit the window. Nothing where even the shortest do not."""
    longest = int(window_ms / _ROUNDS)
    if longest <= _DELAY_LEAST_MS:
        return {}
    return {
        "synchronous_commit": choice("a commit that waits for its flush, or not", "on", "off"),
        "wal_writer_delay": log(_DELAY_LEAST_MS, longest, "three rounds bound what is lost"),
    }


def _taken(known: Collection[str], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The choices that a version takes; all where it lists none, and no value twice."""
    if not known:
        return tuple(word for word in wanted if word not in ("pglz", "lz4", "zstd"))
    return tuple(word for word in wanted if word in known and not (word == "on" and "pglz" in known))
