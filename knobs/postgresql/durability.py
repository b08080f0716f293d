"""What PostgreSQL settings promise to an acknowledged write: a prediction from the catalogue, never a
verdict.

Pure and free of imports that start slowly: static checks of two configurations live on it. Each finding cites
the section of the manual; "in trials" means rows counted after a SIGKILL or a power cut of PostgreSQL 15.18.

It looks at the server's settings. What ALTER ROLE, ALTER DATABASE or the session itself sets, and tables that
were created UNLOGGED, are in no configuration file and cannot be seen here. `failover` is what happens when a
standby takes over: it is `unknown` where no synchronous standby is named, because the file cannot tell
whether there is any standby; no contract is about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from knobs.contract import Contract
from knobs.finding import Finding
from knobs.postgresql.catalogue import load
from knobs.postgresql.values import is_on, whole
from knobs.weakness import InForce, Level, Weakness, findings_of

FSYNC = "fsync"
COMMIT = "synchronous_commit"
FULL_PAGES = "full_page_writes"
WAL_LEVEL = "wal_level"
STANDBYS = "synchronous_standby_names"
WRITER_DELAY = "wal_writer_delay"

# "three times wal_writer_delay at most" (runtime-config-wal.html#GUC-SYNCHRONOUS-COMMIT): the writer may skip
# the page that is being filled for two rounds.
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Promise:
    """What settings promise by themselves, for each failure, with the findings that say why."""

    process_crash: Level
    power_cut: Level
    failover: Level
    recovery: Level
    findings: tuple[Finding, ...] = ()


def promise(settings: Mapping[str, str], version: str | None = None) -> Promise:
    """What ``settings`` (only those stated) promise; what is not stated has its built-in default.

    Raises InvalidInput for an unknown name, or a version without a catalogue.
    """
    catalogue = load(version)
    in_force = catalogue.in_force(settings)
    found = findings_of(WEAKNESSES, catalogue, in_force)
    failures = {finding.failure for finding in found}
    failover: Level = "weakened" if "failover" in failures else "kept"
    if failover == "kept" and not in_force[STANDBYS].strip():
        failover = "unknown"
    return Promise(
        process_crash="weakened" if "process-crash" in failures else "kept",
        power_cut="weakened" if failures & {"power-cut", "torn-page"} else "kept",
        failover=failover,
        recovery="weakened" if failures & {"recovery", "hidden-corruption"} else "kept",
        findings=tuple(found),
    )


def breaking(settings: Mapping[str, str], contract: Contract, version: str | None = None) -> list[Finding]:
    """The findings that break ``contract`` by the catalogue, for a candidate with these settings.

    Settings that are not stated have PostgreSQL's defaults, which hold `strict`. Raises InvalidInput for an
    unknown name, or a version without a catalogue.
    """
    catalogue = load(version)
    return findings_of(WEAKNESSES, catalogue, catalogue.in_force(settings), contract)


def caveats(settings: Mapping[str, str], version: str | None = None) -> list[Finding]:
    """What these settings risk although they break no contract by what is promised of them.

    Raises InvalidInput as `promise` does.
    """
    catalogue = load(version)
    return findings_of(CAVEATS, catalogue, catalogue.in_force(settings))


def _window_ms(s: InForce) -> float | None:
    return float(_ROUNDS * whole(s, WRITER_DELAY))


def _is(name: str, *values: str) -> Callable[[InForce], bool]:
    return lambda s: s.get(name) in values


def _has_standbys(s: InForce) -> bool:
    return bool(s.get(STANDBYS, "").strip())


def _acknowledges_early(s: InForce) -> bool:
    return s.get(COMMIT) == "off"


_NEWEST = "the newest acknowledged commits"
_EARLY = (
    "a commit is acknowledged before its WAL is written; the WAL writer follows within three of its rounds, "
    "and at full speed after wal_writer_flush_after of WAL; in trials: 0 to 29 of 3,700 lost after SIGKILL, "
    "179 of 19,927 at a cut"
)

WEAKNESSES: tuple[Weakness, ...] = (
    Weakness(
        "nothing-synced",
        (FSYNC,),
        "power-cut",
        _is(FSYNC, "off"),
        "every acknowledged write that the operating system had not written by itself, in any order",
        "neither WAL nor data files are ever synced; in trials: 22,839 of 22,839 lost at a cut, 0 after "
        "SIGKILL",
    ),
    Weakness(
        "nothing-synced",
        (FSYNC,),
        "hidden-corruption",
        _is(FSYNC, "off"),
        "after a power cut any page may be old or new, and the server may start nevertheless",
        "the order between WAL and data files, on which recovery relies, is not kept",
    ),
    Weakness(
        "acknowledged-early",
        (COMMIT, WRITER_DELAY),
        "process-crash",
        _acknowledges_early,
        _NEWEST,
        _EARLY,
        _window_ms,
        only_newest=True,
    ),
    Weakness(
        "acknowledged-early",
        (COMMIT, WRITER_DELAY),
        "power-cut",
        _acknowledges_early,
        _NEWEST,
        _EARLY,
        _window_ms,
        only_newest=True,
    ),
    Weakness(
        "torn-pages-kept",
        (FULL_PAGES,),
        "torn-page",
        _is(FULL_PAGES, "off"),
        "pages that were being written at a power cut, and with them the start of the server",
        "a half-written page cannot be made whole from the WAL; in trials: 6 of 6 cuts inside a checkpoint "
        "did not start",
    ),
    Weakness(
        "failed-sync-forgotten",
        ("data_sync_retry",),
        "hidden-corruption",
        _is("data_sync_retry", "on"),
        "writes to pages whose writeback failed, without an error after the first",
        "the kernel may drop the pages that it could not write, so the next sync succeeds without them",
    ),
    Weakness(
        "damaged-pages-emptied",
        ("zero_damaged_pages",),
        "hidden-corruption",
        _is("zero_damaged_pages", "on"),
        "all rows of a damaged page",
        "a page with a damaged header is taken for an empty one, with a warning only",
    ),
    Weakness(
        "checksums-ignored",
        ("ignore_checksum_failure",),
        "hidden-corruption",
        _is("ignore_checksum_failure", "on"),
        "damage is returned as data",
        "a wrong checksum is only a warning, and the page is used",
    ),
    Weakness(
        "missing-pages-ignored",
        ("ignore_invalid_pages",),
        "hidden-corruption",
        _is("ignore_invalid_pages", "on"),
        "changes to pages that recovery did not find",
        "recovery goes on past references to pages that do not exist, with a warning only",
    ),
    Weakness(
        "standbys-not-awaited",
        (COMMIT, STANDBYS),
        "failover",
        lambda s: _has_standbys(s) and s.get(COMMIT) in ("off", "local"),
        "the newest acknowledged commits, as many as had not reached the standby",
        "a commit is acknowledged without word from the standbys that synchronous_standby_names lists",
    ),
    Weakness(
        "standby-not-flushed",
        (COMMIT, STANDBYS),
        "failover",
        lambda s: _has_standbys(s) and s.get(COMMIT) == "remote_write",
        "the newest acknowledged commits, if the standby's host fails too",
        "the standby has written the WAL and not synced it when the commit is acknowledged",
    ),
    Weakness(
        "no-standby-possible",
        (WAL_LEVEL,),
        "failover",
        _is(WAL_LEVEL, "minimal"),
        "everything since the last backup, if this host is lost",
        "the WAL holds too little for a standby or for a recovery from a base backup",
    ),
)

# Names that look like durability and are not: what a reviewer asks about first. Rule of each: harmless alone.
HARMLESS: dict[str, str] = {
    "wal_sync_method": "on Linux each of its values forces the WAL to the disk; with fsync=off none does",
    "commit_delay": "a commit waits longer, and still for the flush",
    "commit_siblings": "it only says when commit_delay applies",
    "wal_compression": "the same full pages in fewer bytes",
    "wal_init_zero": "a new WAL file grows as it is written; each flush then also syncs its size",
    "wal_recycle": "a new WAL file is made instead of an old one renamed",
    "wal_log_hints": "more is logged, not less",
    "wal_writer_delay": "only synchronous_commit=off relies on the WAL writer",
    "wal_writer_flush_after": "only synchronous_commit=off relies on the WAL writer",
    "wal_skip_threshold": "what is not logged is synced at commit",
    "wal_buffers": "a commit flushes its own WAL",
    "max_wal_size": "a later checkpoint means a longer recovery and loses nothing",
    "checkpoint_timeout": "a later checkpoint means a longer recovery and loses nothing",
    "checkpoint_completion_target": "a checkpoint counts only when all of it is synced",
    "checkpoint_flush_after": "sync_file_range only: the checkpoint syncs every file anyway",
    "bgwriter_flush_after": "sync_file_range only: the checkpoint syncs every file anyway",
    "backend_flush_after": "sync_file_range only: the checkpoint syncs every file anyway",
    "autovacuum": "dead rows stay longer",
}

CAVEATS: tuple[Weakness, ...] = (
    Weakness(
        "commits-wait-for-standbys",
        (STANDBYS,),
        "failover",
        lambda s: _has_standbys(s) and s.get(COMMIT) not in ("off", "local"),
        "nothing is lost, but every commit waits for ever while no such standby is connected",
        "a commit returns when the standbys that are named have answered",
    ),
    Weakness(
        "commits-are-early-for-standbys",
        (FSYNC, STANDBYS),
        "failover",
        lambda s: _has_standbys(s) and not is_on(s, FSYNC),
        "after a power cut this server may be behind its standby",
        "the standby may have synced what this server has not",
    ),
    Weakness(
        "late-errors-of-syncfs",
        ("recovery_init_sync_method",),
        "hidden-corruption",
        _is("recovery_init_sync_method", "syncfs"),
        "a write that failed before the crash may go unnoticed",
        "before Linux 5.8 syncfs does not report failed writes",
    ),
)
