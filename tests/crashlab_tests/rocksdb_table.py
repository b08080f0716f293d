"""RocksDB's rows of the verdict table, under YCSB's workload A."""

from __future__ import annotations

from collections.abc import Sequence

from crashlab.judging.evidence import CrashEvidence
from crashlab.subject import Subject
from crashlab.validate import Lab
from engines.rocksdb.engine import RocksdbEngine
from engines.rocksdb.readback import effective_settings
from knobs import catalogue
from knobs.rocksdb.changes import differences
from tests.crashlab_tests.verdict_table import BROKEN, HELD, Expected, Row, Table
from workloads import registry
from workloads.ycsb.workload import YcsbWorkload

SYNC = ("WriteOptions.sync", "true")
RECORDS = "2000"


def _row(
    name: str,
    process: Expected,
    strict: Expected,
    *settings: tuple[str, str],
    not_in_force: Sequence[str] = (),
    forgets: bool = False,
) -> Row:
    return Row(name, settings, (process, strict), tuple(not_in_force), forgets=forgets)


_HELDS = (Expected("process", HELD), Expected("strict", HELD))
_LOSES_ALWAYS = (Expected("process", BROKEN, "lost-ack"), Expected("strict", BROKEN, "lost-ack"))
_LOSES_AT_A_CUT = (Expected("process", HELD), Expected("strict", BROKEN, "lost-ack"))

ROWS = (
    _row("defaults", *_LOSES_AT_A_CUT),
    _row("sync", *_HELDS, SYNC),
    _row("manual_wal_flush", *_LOSES_ALWAYS, ("DBOptions.manual_wal_flush", "true")),
    Row(
        "manual_wal_flush, flushed every 50 ms",
        (("DBOptions.manual_wal_flush", "true"), ("Application.flush_wal_every_ms", "50")),
        (*_LOSES_ALWAYS, Expected("bounded:500ms", HELD, of="process-crash")),
    ),
    _row("disableWAL", *_LOSES_ALWAYS, ("WriteOptions.disableWAL", "true")),
    _row("wal_bytes_per_sync", *_LOSES_AT_A_CUT, ("DBOptions.wal_bytes_per_sync", "1048576")),
    _row("sync, manual_wal_flush", *_HELDS, SYNC, ("DBOptions.manual_wal_flush", "true")),
    _row(
        "sync, best_efforts_recovery",
        *_LOSES_ALWAYS,
        SYNC,
        ("DBOptions.best_efforts_recovery", "true"),
        forgets=True,
    ),
    _row("sync, use_fsync", *_HELDS, SYNC, ("DBOptions.use_fsync", "true")),
    _row("sync, enable_pipelined_write", *_HELDS, SYNC, ("DBOptions.enable_pipelined_write", "true")),
    _row("sync, unordered_write", *_HELDS, SYNC, ("DBOptions.unordered_write", "true")),
    _row("sync, small max_total_wal_size", *_HELDS, SYNC, ("DBOptions.max_total_wal_size", "262144")),
    _row(
        "sync, recycle_log_file_num",
        *_HELDS,
        SYNC,
        ("DBOptions.recycle_log_file_num", "4"),
        not_in_force=["DBOptions.recycle_log_file_num"],
    ),
    Row(
        "sync, kAbsoluteConsistency",
        (SYNC, ("DBOptions.wal_recovery_mode", "kAbsoluteConsistency")),
        _HELDS,
        torn_log=tuple(
            f"recover: Corruption: {what}"
            for what in (
                "error reading trailing data",
                "truncated header",
                "truncated record body",
                "checksum mismatch",
            )
        ),
    ),
)


def subject(settings: Sequence[tuple[str, str]] = (), workload: str = "ycsb:a") -> Subject:
    """RocksDB's defaults with these settings over them, under a small workload."""
    found = registry.find(workload)
    assert isinstance(found, YcsbWorkload)
    small = found.with_values({"recordcount": RECORDS, "operationcount": "20000"})
    return Subject(RocksdbEngine(), small, dict(settings))


def _subject(lab: Lab, row: Row | None = None) -> Subject:
    del lab
    return subject(row.settings if row is not None else ())


def _deviations(row: Row, evidence: CrashEvidence) -> tuple[str, ...]:
    assert evidence.killed is not None
    effective = effective_settings(evidence.killed.effective, "default")
    found = differences(catalogue.load("rocksdb"), dict(row.settings), effective)
    return tuple(finding.setting for finding in found)


TABLE = Table(
    engine="rocksdb",
    command="duratune crash rocksdb --workload ycsb:a",
    rows=ROWS,
    models=("cache", "synced", "torn", "torn-512", "reordered", "synced-posix"),
    states=18,
    subject=_subject,
    deviations=_deviations,
)
