"""The verdict table: settings whose verdict under each contract is known, and how one row is run.

One recorded and one killed run serve every contract of a row; the controls are those of the batch. The
table is for the models `cache` and `synced`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from crashlab.controls import Control
from crashlab.judging.evidence import CrashEvidence, CrashSummary, CrashVerdict
from crashlab.judging.verdict import Verdict
from crashlab.kill import MeasurePlan
from crashlab.recording.record import RecordPlan
from crashlab.subject import Subject
from crashlab.validate import Lab, plan_all, split_states
from engines.rocksdb.engine import CONTROLS, RocksdbEngine
from engines.rocksdb.readback import effective_settings
from knobs import catalogue
from knobs.contract import Contract
from knobs.rocksdb.changes import differences
from workloads import registry
from workloads.ycsb.workload import YcsbWorkload

SYNC = ("WriteOptions.sync", "true")
MODELS = ("cache", "synced")
RECORDS = "2000"
STATES = 18
MEASURE = MeasurePlan(warmup_s=0.2, measure_s=0.5)
RECORD = RecordPlan(operations=2_000)
LOSSES = frozenset({"lost-ack", "hole", "over-bound"})
"""Reasons that may stand beside the wanted one: lost writes, seen from other sides. Damage may not."""


@dataclass(frozen=True)
class Expected:
    """What one contract must give: of the whole, or of the process crash alone."""

    contract: str
    verdict: Verdict
    reason: str = ""
    of: Literal["whole", "process-crash"] = "whole"


@dataclass(frozen=True)
class Row:
    """Settings over RocksDB's defaults, and the verdict of each contract."""

    name: str
    settings: tuple[tuple[str, str], ...]
    expected: tuple[Expected, ...]
    not_in_force: tuple[str, ...] = ()


def _row(
    name: str,
    process: Expected,
    strict: Expected,
    *settings: tuple[str, str],
    not_in_force: Sequence[str] = (),
) -> Row:
    return Row(name, settings, (process, strict), tuple(not_in_force))


def _process(verdict: Verdict, reason: str = "") -> Expected:
    return Expected("process", verdict, reason)


def _strict(verdict: Verdict, reason: str = "") -> Expected:
    return Expected("strict", verdict, reason)


HELD, BROKEN = Verdict.HELD, Verdict.BROKEN
_HELDS = (_process(HELD), _strict(HELD))
_LOSES_ALWAYS = (_process(BROKEN, "lost-ack"), _strict(BROKEN, "lost-ack"))
_LOSES_AT_A_CUT = (_process(HELD), _strict(BROKEN, "lost-ack"))

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
    _row("sync, best_efforts_recovery", *_LOSES_ALWAYS, SYNC, ("DBOptions.best_efforts_recovery", "true")),
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
    ),
)


def subject(settings: Sequence[tuple[str, str]] = (), workload: str = "ycsb:a") -> Subject:
    """RocksDB's defaults with these settings over them, under a small workload."""
    found = registry.find(workload)
    assert isinstance(found, YcsbWorkload)
    small = found.with_values({"recordcount": RECORDS, "operationcount": "20000"})
    return Subject(RocksdbEngine(), small, dict(settings))


def run_row(row: Row, lab: Lab, folder: Path, controls: Sequence[Control], seed: int) -> CrashEvidence:
    """Kill one run and record one, once, for every contract of the row; ``folder`` takes the recording."""
    tested = subject(row.settings)
    killed = lab.measure(tested, MEASURE, seed)
    # Under a window the load is paced to last several of it; that serves the other contracts as well.
    widest = max((Contract.parse(e.contract) for e in row.expected), key=lambda c: c.window_ms or 0.0)
    recording = lab.record(tested, widest, RECORD, folder / "recording", seed)
    planned = plan_all(recording, split_states(CONTROLS, STATES), seed)
    return CrashEvidence(killed, recording, lab.recover(recording, tested, planned), controls)


def wrong(row: Row, evidence: CrashEvidence) -> list[str]:
    """Where the evidence's verdicts, their reasons or the read-back are not those of the table."""
    faults = [fault for expected in row.expected for fault in _wrong(expected, evidence)]
    assert evidence.killed is not None
    effective = effective_settings(evidence.killed.effective, "default")
    found = differences(catalogue.load("rocksdb"), dict(row.settings), effective)
    silently = tuple(finding.setting for finding in found)
    if silently != row.not_in_force:
        faults.append(f"not in force as proposed: {silently}, wanted {row.not_in_force}")
    return faults


def _wrong(expected: Expected, evidence: CrashEvidence) -> list[str]:
    whole = evidence.under(Contract.parse(expected.contract))
    seen: CrashVerdict | CrashSummary = whole if expected.of == "whole" else whole.process_crash
    faults = []
    if seen.verdict is not expected.verdict:
        why = whole.process_crash.unknown_why or whole.power_cut.unknown_why
        faults.append(
            f"{expected.contract}: {seen.verdict.value} {' '.join(seen.reasons)} {why}".rstrip()
            + f", wanted {expected.verdict.value}"
        )
    elif expected.reason and not {expected.reason} <= set(seen.reasons) <= LOSSES | {expected.reason}:
        faults.append(f"{expected.contract}: BROKEN for {' '.join(seen.reasons)}, wanted {expected.reason}")
    return faults


def audit_faults(row: Row, evidence: CrashEvidence) -> list[str]:
    """Where audit and `synced` states do not agree, or acknowledgements were not looked at.

    Covered acknowledgements may be gone only where recovery is told to ignore the WAL.
    """
    recording = evidence.recording
    audit = recording.audit
    faults = []
    if audit.covered + audit.exposed + audit.unlocated != audit.acks:
        faults.append(f"the audit leaves out some of {audit.acks} acks")
    ignores = ("DBOptions.best_efforts_recovery", "true") in row.settings
    for state in evidence.under(Contract("strict")).states:
        if state.planned.model != "synced":
            continue
        against = state.disagreement
        if against is None:
            faults.append(f"{state.planned.id} was not held against the audit: {state.judgement.unknown_why}")
        elif against.survived:
            faults.append(f"{state.planned.id}: {against.survived} exposed acks survived")
        elif against.vanished and not ignores:
            faults.append(f"{state.planned.id}: {against.vanished} covered acks are gone")
    return faults


def summary(row: Row, evidence: CrashEvidence) -> dict[str, dict[str, Any]]:
    """What each contract of the row came to, as JSON values."""
    found = {}
    for contract in dict.fromkeys(expected.contract for expected in row.expected):
        verdict = evidence.under(Contract.parse(contract))
        found[contract] = {
            "verdict": verdict.verdict.value,
            "process_crash": verdict.process_crash.verdict.value,
            "power_cut": verdict.power_cut.verdict.value,
            "reasons": list(verdict.reasons),
            "acks": verdict.process_crash.acks,
            "lost": max(verdict.process_crash.lost, verdict.power_cut.lost),
            "loss_ms": max(verdict.process_crash.loss_ms, verdict.power_cut.loss_ms),
            "right": not any(_wrong(e, evidence) for e in row.expected if e.contract == contract),
        }
    return found
