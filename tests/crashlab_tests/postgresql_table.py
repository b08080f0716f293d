"""PostgreSQL's rows of the verdict table, under pgbench's tpcb-like script and YCSB's workload A."""

from __future__ import annotations

from collections.abc import Callable

from crashlab.judging.evidence import CrashEvidence
from crashlab.kill import MeasurePlan
from crashlab.recording.record import RecordPlan
from crashlab.subject import Subject
from crashlab.validate import Lab
from engines.postgresql import binaries, server_user
from engines.postgresql.binaries import Binaries
from engines.postgresql.engine import PostgresqlEngine
from engines.process import Watcher
from tests.crashlab_tests.labs import WatchedLab
from tests.crashlab_tests.verdict_table import BROKEN, HELD, Expected, Row, Table
from workloads import registry
from workloads.pgbench.workload import PgbenchWorkload
from workloads.ycsb.workload import YcsbWorkload

CLIENTS = 4
_BOUND: dict[tuple[str, str, bool], PostgresqlEngine] = {}
ROLE_SQL = "ALTER ROLE postgres SET synchronous_commit = off;"
_LATE = (("wal_writer_delay", "10s"), ("wal_writer_flush_after", "1GB"))
_OFF = ("synchronous_commit", "off")
_YCSB = (("workload", "ycsb:a"),)
YCSB_RECORDS = 1_000


def _strict(process: Expected, cut: Expected) -> tuple[Expected, Expected]:
    return process, cut


_KILL_HELD = Expected("strict", HELD, of="process-crash")
_KILL_LOSES = Expected("strict", BROKEN, "lost-ack", of="process-crash")
_CUT_HELD = Expected("strict", HELD, of="power-cut")
_CUT_LOSES = Expected("strict", BROKEN, "lost-ack", of="power-cut")
_CUT_DAMAGES = Expected("strict", BROKEN, "lost-ack or corrupt or unrecoverable", of="power-cut")
_CUT_CORRUPTS = Expected("strict", BROKEN, "corrupt or unrecoverable", of="power-cut")
_HOLDS = (_KILL_HELD, _CUT_HELD)
_LOSES = (_KILL_LOSES, _CUT_LOSES)


def _alone(name: str, value: str) -> Row:
    return Row(f"{name}={value}", ((name, value),), _HOLDS)


ROWS = (
    Row("defaults", (), _HOLDS),
    Row("fsync=off", (("fsync", "off"),), (_KILL_HELD, _CUT_DAMAGES)),
    Row("synchronous_commit=off", (_OFF,), _LOSES),
    Row(
        "synchronous_commit=off, wal_writer_delay=50ms",
        (_OFF, ("wal_writer_delay", "50ms")),
        (Expected("bounded:600ms", HELD), _CUT_LOSES),
    ),
    Row(
        "synchronous_commit=off, wal_writer_delay=10s, wal_writer_flush_after=1GB",
        (_OFF, *_LATE),
        (Expected("bounded:600ms", BROKEN, "over-bound", of="power-cut"), *_LOSES),
    ),
    Row(
        "full_page_writes=off",
        (("full_page_writes", "off"),),
        (_KILL_HELD, _CUT_CORRUPTS),
        breaks_each=("torn", "torn-512"),
    ),
    _alone("wal_sync_method", "open_datasync"),
    _alone("wal_sync_method", "open_sync"),
    _alone("wal_sync_method", "fsync"),
    _alone("commit_delay", "1000"),
    _alone("wal_compression", "on"),
    _alone("wal_init_zero", "off"),
    _alone("wal_recycle", "off"),
    Row(
        "ALTER ROLE ... SET synchronous_commit=off",
        (("synchronous_commit", "on"),),
        _LOSES,
        not_in_force=("synchronous_commit",),
        load=(("init_sql", ROLE_SQL),),
    ),
    Row(
        "pgbench --unlogged-tables",
        (),
        _LOSES,
        says="unlogged",
        load=(("unlogged_tables", "yes"),),
    ),
    Row("ycsb:a on the defaults", (), _HOLDS, load=_YCSB),
    Row("ycsb:a, synchronous_commit=off", (_OFF,), _LOSES, load=_YCSB),
)

_NAMED = {row.name: row for row in ROWS}
NEWEST_ROWS = tuple(_NAMED[name] for name in ("defaults", "synchronous_commit=off", "full_page_writes=off"))
"""What is looked at on the newest PostgreSQL besides."""


def _subject_of(engine: PostgresqlEngine, lab: Lab, row: Row | None = None) -> Subject:
    """An installation with the row's settings over its defaults, at scale 1."""
    load = dict(row.load) if row is not None else {}
    workload = registry.find(load.get("workload", "pgbench:tpcb-like"), _watcher(lab))
    if isinstance(workload, YcsbWorkload):
        workload = workload.on("postgresql").with_values({"recordcount": str(YCSB_RECORDS)})
    if isinstance(workload, PgbenchWorkload):
        workload = workload.with_options(
            init_sql=load.get("init_sql", ""), unlogged_tables="unlogged_tables" in load
        )
    return Subject(_bound(engine, lab), workload, dict(row.settings) if row is not None else {}, CLIENTS)


def _bound(engine: PostgresqlEngine, lab: Lab) -> PostgresqlEngine:
    """One for each lab, so that a template is loaded once."""
    key = (str(lab.data), str(engine.binaries.folder), engine.checksums)
    if key not in _BOUND:
        _BOUND[key] = engine.bound(lab.scratch, _watcher(lab), lab.data)
    return _BOUND[key]


def _watcher(lab: Lab) -> Watcher | None:
    return lab.watcher if isinstance(lab, WatchedLab) else None


def table_of(find: Callable[[], Binaries], rows: tuple[Row, ...], *, checksums: bool = True) -> Table:
    """These rows on the installation that is found when the first of them is run."""

    def engine() -> PostgresqlEngine:
        return PostgresqlEngine(find(), server_user.choose(), checksums=checksums)

    def subject(lab: Lab, row: Row | None = None) -> Subject:
        return _subject_of(engine(), lab, row)

    def deviations(row: Row, evidence: CrashEvidence) -> tuple[str, ...]:
        del row
        assert evidence.killed is not None
        return tuple(finding.setting for finding in engine().differences(evidence.killed.effective))

    return Table(
        engine="postgresql",
        command="duratune crash postgresql --workload pgbench:tpcb-like",
        rows=rows,
        models=("cache", "synced", "torn", "torn-512", "reordered", "synced-posix"),
        states=24,
        subject=subject,
        deviations=deviations,
        needs_reach=True,
        measure=MeasurePlan(warmup_s=0.2, measure_s=0.8),
        record=RecordPlan(operations=1_500),
    )


TABLE = table_of(binaries.find, ROWS)
WITHOUT_CHECKSUMS = table_of(binaries.find, ROWS, checksums=False)
