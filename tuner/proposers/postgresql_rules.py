"""Rules: the start points that somebody who knows PostgreSQL would try first under short transactions that
write, each with the manual's sections.

None of them touches what an acknowledged commit is worth. They are starting points for the search, not
advice for production: each is measured and crashed like any other candidate. What lets a recovery take
longer says so. Values are in the setting's own unit, as the search has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from knobs.postgresql.catalogue import PostgresqlCatalogue
from tuner.proposers.proposal import HostLimits, Proposal, StartPoint

_PAGE_BYTES = 8 << 10
_MIB = 1 << 20
_WAL_CONFIGURATION = "wal-configuration.html"
_TEST_FSYNC = "pgtestfsync.html"

# Seldom checkpoints log fewer full pages; the price is a longer recovery.
_CHECKPOINTS = {
    "max_wal_size": "8192",
    "min_wal_size": "2048",
    "checkpoint_timeout": "1800",
    "checkpoint_completion_target": "0.9",
}
# Plans of short transactions on flash.
_PLANS = {"jit": "off", "random_page_cost": "1.1", "effective_io_concurrency": "200"}
_VACUUM = {
    "autovacuum_naptime": "15",
    "autovacuum_vacuum_scale_factor": "0.05",
    "autovacuum_vacuum_cost_delay": "0",
}
_WRITER = {"bgwriter_delay": "50", "bgwriter_lru_maxpages": "500", "bgwriter_lru_multiplier": "4"}

_UNSYNCED = {"fsync": "off"}
_EARLY = {"synchronous_commit": "off"}
_TORN = {"full_page_writes": "off"}
_MINIMAL = {"wal_level": "minimal", "max_wal_senders": "0"}


@dataclass(frozen=True)
class PostgresqlRules:
    """The rule-based proposer for PostgreSQL; ``catalogue`` is that of the server that is tuned."""

    catalogue: PostgresqlCatalogue

    name = "rules"

    def start_points(self, host: HostLimits) -> Sequence[Proposal]:
        points = _points(self.catalogue, host)
        return [Proposal(self.name, point.settings, point.reason, point.source) for point in points]


def speed_alone(catalogue: PostgresqlCatalogue, reference: Mapping[str, str]) -> list[Proposal]:
    """What somebody who looks at speed alone tries first; only for an audit.

    Each proposal sets only what ``reference`` has otherwise, and none comes twice.
    """
    all_three = {**_UNSYNCED, **_EARLY, **_TORN}
    tries = [
        (_UNSYNCED, "nothing is ever synced"),
        (_EARLY, "commits are acknowledged before their WAL is written"),
        (_TORN, "no full pages in the WAL"),
        (all_three, "nothing is synced, waited for or logged twice"),
        ({**all_three, **_MINIMAL}, "the same with the least WAL that a crash recovery can do with"),
    ]
    proposals: list[Proposal] = []
    for wanted, reason in tries:
        settings = _differing(catalogue, wanted, reference)
        if settings and all(settings != earlier.settings for earlier in proposals):
            proposals.append(Proposal("speed", settings, reason, _sections(catalogue, wanted)))
    return proposals


def _differing(
    catalogue: PostgresqlCatalogue, wanted: Mapping[str, str], reference: Mapping[str, str]
) -> dict[str, str]:
    stated = {name.lower(): value for name, value in reference.items()}
    return {
        name: value
        for name, value in wanted.items()
        if catalogue.normalise(name, stated.get(name, catalogue.knob(name).default)) != value
    }


def _points(catalogue: PostgresqlCatalogue, host: HostLimits) -> list[StartPoint]:
    memory = {"shared_buffers": str(host.memory_bytes // 4 // _PAGE_BYTES), "huge_pages": "try"}
    compression = {"wal_compression": "lz4" if _has_lz4(catalogue) else "on"}
    base = {**memory, **_CHECKPOINTS, **_PLANS}

    def point(
        reason: str, added: Mapping[str, str], over: Mapping[str, str] = base, section: str = ""
    ) -> StartPoint:
        return StartPoint(reason, _sections(catalogue, added, section), {**over, **added})

    return [
        point("a quarter of the memory for shared_buffers, in huge pages where there are any", memory, {}),
        point(
            "fewer checkpoints log fewer full pages and write hot pages once; a recovery takes longer",
            _CHECKPOINTS,
            {},
            _WAL_CONFIGURATION,
        ),
        point("both, with plans for short transactions on flash", _PLANS),
        point("full pages compressed: fewer bytes to sync for more CPU", compression),
        point(
            "all together: compressed full pages, an eager vacuum and background writer",
            {**compression, **_VACUUM, **_WRITER},
        ),
        point(
            "WAL written and synced with one call", {"wal_sync_method": "open_datasync"}, base, _TEST_FSYNC
        ),
        point(
            "a group's leader waits for others, so that more commits share a flush",
            {"commit_delay": "200", "commit_siblings": "3"},
            base,
            _WAL_CONFIGURATION,
        ),
        point("dead rows of hot tables go sooner, and vacuum takes no rests", _VACUUM),
        point("the background writer keeps clean pages ahead of the demand", _WRITER),
        point(
            "written pages reach the disk in small steps, not at the checkpoint's sync",
            {"backend_flush_after": "64", "bgwriter_flush_after": "64", "checkpoint_flush_after": "32"},
        ),
        point(
            "new WAL files are neither filled with zeros nor old ones renamed (copy-on-write file systems)",
            {"wal_init_zero": "off", "wal_recycle": "off"},
        ),
        point("more WAL of many clients waits in memory for a flush", {"wal_buffers": _wal_buffers(host)}),
    ]


def _wal_buffers(host: HostLimits) -> str:
    """A 64th of the memory, 64 MB at most; the server itself takes 16 MB at most."""
    return str(min(host.memory_bytes // 64, 64 * _MIB) // _PAGE_BYTES)


def _has_lz4(catalogue: PostgresqlCatalogue) -> bool:
    return "lz4" in catalogue.knob("wal_compression").choices


def _sections(catalogue: PostgresqlCatalogue, settings: Mapping[str, str], more: str = "") -> str:
    files = [catalogue.knob(name).source.file for name in settings]
    return f"the manual of PostgreSQL {catalogue.version}: " + ", ".join([*files, more] if more else files)
