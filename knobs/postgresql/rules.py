"""What PostgreSQL refuses as a combination, and what it changes without a word.

Each was tried on 15.18 and 18.6, and the tests try them again on every server at hand. What depends on the
host (huge pages that are not there, memory that it does not have) is in memory.py. Every predicate looks at
all settings under their names, normalised (`in_force` of the catalogue); a setting that a version does not
have is absent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from knobs.postgresql.values import InForce, is_on, whole
from knobs.rule import Rule

# The segment size is chosen by initdb; this is what it chooses by itself (wal_segment_size, 16 MB).
WAL_SEGMENT_MB = 16

# MAX_BACKENDS of src/include/postmaster/postmaster.h, 2^18 - 1.
BACKENDS_MAX = 2**18 - 1

_SEEN = "PostgreSQL 15.18 at start: "


@dataclass(frozen=True, slots=True)
class Change:
    """A value that the server replaces; ``becomes`` gives the new one, None where it keeps it."""

    name: str
    becomes: Callable[[InForce], str | None]
    why: str
    source: str


def broken(in_force: InForce) -> list[Rule]:
    """Every rule that these values break, in the order of the list."""
    return [rule for rule in RULES if rule.is_broken(in_force)]


def changed(in_force: InForce) -> dict[str, str]:
    """The values that the server replaces, with what it makes of them."""
    found = ((change.name, change.becomes(in_force)) for change in CHANGES if change.name in in_force)
    return {name: new for name, new in found if new is not None and new != in_force[name]}


def backends(in_force: InForce) -> int:
    """How many server processes may run at once: what MAX_BACKENDS limits."""
    slots = whole(in_force, "autovacuum_worker_slots", absent=whole(in_force, "autovacuum_max_workers"))
    others = ("max_connections", "max_worker_processes", "max_wal_senders")
    return slots + sum(whole(in_force, name) for name in others) + 1


def _is_minimal(s: InForce) -> bool:
    return s.get("wal_level") == "minimal"


def _reserved(s: InForce) -> int:
    return whole(s, "superuser_reserved_connections") + whole(s, "reserved_connections")


def _below_two_segments(name: str) -> Callable[[InForce], bool]:
    def is_broken(s: InForce) -> bool:
        # wal_segment_size is told in bytes, and only by the catalogue of a server with a cluster.
        segment_mb = whole(s, "wal_segment_size", absent=WAL_SEGMENT_MB << 20) >> 20
        return whole(s, name) < 2 * segment_mb

    return is_broken


def _mixes_statistics(s: InForce) -> bool:
    parts = ("log_parser_stats", "log_planner_stats", "log_executor_stats")
    return is_on(s, "log_statement_stats") and any(is_on(s, name) for name in parts)


RULES: tuple[Rule, ...] = (
    Rule(
        "minimal-streaming",
        ("wal_level", "max_wal_senders"),
        lambda s: _is_minimal(s) and whole(s, "max_wal_senders") > 0,
        "wal_level=minimal needs max_wal_senders=0 (its default is 10)",
        _SEEN + 'WAL streaming (max_wal_senders > 0) requires wal_level "replica" or "logical"',
    ),
    Rule(
        "minimal-archive",
        ("wal_level", "archive_mode"),
        lambda s: _is_minimal(s) and s.get("archive_mode") in ("on", "always"),
        "wal_level=minimal needs archive_mode=off",
        _SEEN + 'WAL archival cannot be enabled when wal_level is "minimal"',
    ),
    Rule(
        "minimal-summaries",
        ("wal_level", "summarize_wal"),
        lambda s: _is_minimal(s) and is_on(s, "summarize_wal"),
        "wal_level=minimal needs summarize_wal=off",
        'PostgreSQL 18.6 at start: WAL cannot be summarized when "wal_level" is "minimal"',
    ),
    Rule(
        "all-connections-reserved",
        ("superuser_reserved_connections", "reserved_connections", "max_connections"),
        lambda s: _reserved(s) >= whole(s, "max_connections"),
        "superuser_reserved_connections plus reserved_connections must be less than max_connections",
        _SEEN + "superuser_reserved_connections (3) must be less than max_connections (3)",
    ),
    Rule(
        "too-many-processes",
        ("max_connections", "max_worker_processes", "max_wal_senders", "autovacuum_max_workers"),
        lambda s: backends(s) > BACKENDS_MAX,
        "max_connections, max_worker_processes, max_wal_senders and the autovacuum workers are more than "
        f"{BACKENDS_MAX - 1} processes together",
        'PostgreSQL 18.6 at start: too many server processes configured; 15.18: invalid value for parameter "'
        'max_connections"',
    ),
    Rule(
        "min-wal-below-segments",
        ("min_wal_size",),
        _below_two_segments("min_wal_size"),
        "min_wal_size must be at least twice wal_segment_size (32MB where initdb chose it)",
        _SEEN + '"min_wal_size" must be at least twice "wal_segment_size"',
    ),
    Rule(
        "max-wal-below-segments",
        ("max_wal_size",),
        _below_two_segments("max_wal_size"),
        "max_wal_size must be at least twice wal_segment_size (32MB where initdb chose it)",
        _SEEN + '"max_wal_size" must be at least twice "wal_segment_size"',
    ),
    Rule(
        "huge-pages-sysv",
        ("huge_pages", "shared_memory_type"),
        lambda s: s.get("huge_pages") == "on" and s.get("shared_memory_type") == "sysv",
        "huge_pages=on needs shared_memory_type=mmap",
        _SEEN + "huge pages not supported with the current shared_memory_type setting",
    ),
    Rule(
        "statistics-twice",
        ("log_statement_stats", "log_parser_stats", "log_planner_stats", "log_executor_stats"),
        _mixes_statistics,
        "log_statement_stats excludes log_parser_stats, log_planner_stats and log_executor_stats",
        _SEEN + 'Cannot enable parameter when "log_statement_stats" is true.',
    ),
    Rule(
        "vacuum-ring-too-small",
        ("vacuum_buffer_usage_limit",),
        lambda s: 0 < whole(s, "vacuum_buffer_usage_limit") < 128,
        "vacuum_buffer_usage_limit must be 0 or at least 128kB",
        'PostgreSQL 18.6 at start: "vacuum_buffer_usage_limit" must be 0 or between 128 kB and 16777216 kB.',
    ),
)


def _least(name: str, least: int) -> Callable[[InForce], str | None]:
    return lambda s: str(least) if 0 <= whole(s, name) < least else None


def _least_work_mem(s: InForce) -> str | None:
    # 17 lowered it, with the least maintenance_work_mem; it is also the first with summarize_wal.
    return _least("autovacuum_work_mem", 64 if "summarize_wal" in s else 1024)(s)


def _combined(s: InForce) -> str | None:
    greatest = whole(s, "io_max_combine_limit", absent=2**31)
    return str(greatest) if whole(s, "io_combine_limit") > greatest else None


def _slots(s: InForce) -> str | None:
    slots = whole(s, "autovacuum_worker_slots", absent=2**31)
    return str(slots) if whole(s, "autovacuum_max_workers") > slots else None


CHANGES: tuple[Change, ...] = (
    Change(
        "wal_buffers",
        _least("wal_buffers", 4),
        "wal_buffers below 32kB becomes 32kB, and -1 a 32nd of shared_buffers, 16MB at most",
        "PostgreSQL 15.18: `postgres -C wal_buffers` says 4 for 1",
    ),
    Change(
        "autovacuum_work_mem",
        _least_work_mem,
        "autovacuum_work_mem below 1MB becomes 1MB (64kB from 17 on)",
        "PostgreSQL 15.18: `postgres -C autovacuum_work_mem` says 1024 for 1",
    ),
    Change(
        "io_combine_limit",
        _combined,
        "io_combine_limit counts up to io_max_combine_limit",
        "the manual, runtime-config-resource.html#GUC-IO-COMBINE-LIMIT (18)",
    ),
    Change(
        "autovacuum_max_workers",
        _slots,
        "autovacuum_max_workers counts up to autovacuum_worker_slots",
        "PostgreSQL 18.6 at start: it goes on with a warning",
    ),
)
