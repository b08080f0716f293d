"""The verdict table: settings whose verdict under each contract is known, and how one row is run.

One recorded and one killed run serve every contract of a row; the controls are those of the batch. The rows
of an engine are a `Table` in a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from crashlab.controls import Control
from crashlab.judging.evidence import CrashEvidence, CrashSummary, CrashVerdict, Terms
from crashlab.judging.verdict import Judgement, Verdict
from crashlab.kill import MeasurePlan
from crashlab.limits import EngineLimits
from crashlab.models import MODELS
from crashlab.recording.record import RecordPlan
from crashlab.subject import Subject
from crashlab.validate import Lab, plan_all, split_states
from knobs.contract import Contract

MEASURE = MeasurePlan(warmup_s=0.2, measure_s=0.5)
RECORD = RecordPlan(operations=2_000)
LOSSES = frozenset({"lost-ack", "hole", "over-bound"})
"""Reasons that may stand beside the wanted one: lost writes, seen from other sides. Damage may not."""
HELD, BROKEN = Verdict.HELD, Verdict.BROKEN


@dataclass(frozen=True)
class Expected:
    """What one contract must give: of the whole, or of one kind of crash alone.

    ``reason`` is what BROKEN must be for; where several would do they are joined by " or ".
    """

    contract: str
    verdict: Verdict
    reason: str = ""
    of: Literal["whole", "process-crash", "power-cut"] = "whole"

    @property
    def reasons(self) -> frozenset[str]:
        return frozenset(filter(None, self.reason.split(" or ")))


@dataclass(frozen=True)
class Row:
    """Settings over the engine's defaults, and the verdict of each contract.

    ``not_in_force`` are the settings that the read-back must name; ``says`` is what the evidence must say;
    ``breaks_each`` are the models of which each must come out BROKEN; ``load`` is what is beside the
    settings, in the words of the table's ``subject``; ``forgets`` tells that recovery may ignore what is
    durable; ``torn_log`` is what the engine says where it rightly refuses a log whose end is torn, by the
    kill or by a cut.
    """

    name: str
    settings: tuple[tuple[str, str], ...]
    expected: tuple[Expected, ...]
    not_in_force: tuple[str, ...] = ()
    says: str = ""
    breaks_each: tuple[str, ...] = ()
    load: tuple[tuple[str, str], ...] = ()
    forgets: bool = False
    torn_log: tuple[str, ...] = ()


class Subjects(Protocol):
    """Makes the subject of a row in a lab; without a row that of the controls."""

    def __call__(self, lab: Lab, row: Row | None = None) -> Subject: ...


@dataclass(frozen=True)
class Table:
    """The rows of one engine, the models that judge them, and into how many states each recorded run is made.

    ``deviations`` are the names of the settings that were not in force as proposed.
    """

    engine: str
    command: str
    rows: tuple[Row, ...]
    models: tuple[str, ...]
    states: int
    subject: Subjects
    deviations: Callable[[Row, CrashEvidence], tuple[str, ...]]
    needs_reach: bool = False
    measure: MeasurePlan = MEASURE
    record: RecordPlan = RECORD


@dataclass(frozen=True)
class Batch:
    """A table, a lab for it, the controls that serve all of its rows, and the engine's limits by contract."""

    table: Table
    lab: Lab
    controls: Sequence[Control]
    limits: dict[str, EngineLimits] = field(default_factory=dict)

    def limits_under(self, contract: Contract, seed: int) -> EngineLimits:
        """The limits under a contract, looked for once."""
        looked = EngineLimits(self.lab, Terms(contract), self.table.record, seed)
        return self.limits.setdefault(str(contract), looked)


def run_row(batch: Batch, row: Row, folder: Path, seed: int, states: int | None = None) -> CrashEvidence:
    """Kill one run and record one, once, for every contract of the row; ``folder`` takes the recording.

    ``states`` other than the table's make a shorter look.
    """
    table, lab = batch.table, batch.lab
    tested = table.subject(lab, row)
    killed = lab.measure(tested, table.measure, seed)
    # Under a window the load is paced to last several of it; that serves the other contracts as well.
    widest = max((Contract.parse(e.contract) for e in row.expected), key=lambda c: c.window_ms or 0.0)
    recording = lab.record(tested, widest, table.record, folder / "recording", seed)
    planned = plan_all(recording, split_states(table.models, states or table.states), seed)
    evidence = CrashEvidence(killed, recording, lab.recover(recording, tested, planned), batch.controls)
    limits = [
        limit
        for contract in dict.fromkeys(each.contract for each in row.expected)
        for limit in batch.limits_under(Contract.parse(contract), seed).under(evidence, tested).limits
    ]
    return replace(evidence, limits=limits)


def wrong(table: Table, row: Row, evidence: CrashEvidence) -> list[str]:
    """Where the evidence's verdicts, their reasons or the read-back are not those of the table."""
    told = _without_torn_logs(row, evidence)
    faults = [fault for expected in row.expected for fault in _wrong(expected, told)]
    silently = table.deviations(row, evidence)
    if silently != row.not_in_force:
        faults.append(f"not in force as proposed: {silently}, wanted {row.not_in_force}")
    whole = evidence.under(Contract("strict"))
    for model in row.breaks_each:
        found = whole.models.get(model)
        if found is None or found.verdict is not BROKEN:
            faults.append(f"{model} is {found.verdict.value if found else 'not judged'}, wanted BROKEN")
    if row.says and not any(row.says in line for line in _said(whole)):
        faults.append(f"no evidence says '{row.says}'")
    return faults


def _without_torn_logs(row: Row, evidence: CrashEvidence) -> CrashEvidence:
    """The evidence without the kill and the states that tore a write, where the row says what follows."""
    verdict = evidence.under(Contract("strict"))

    def is_torn(judgement: Judgement) -> bool:
        return judgement.reasons == ("unrecoverable",) and judgement.evidence[0] in row.torn_log

    torn = {
        state.planned.id
        for state in verdict.states
        if MODELS[state.planned.model].draws and is_torn(state.judgement)
    }
    return replace(
        evidence,
        killed=None if verdict.kill is not None and is_torn(verdict.kill) else evidence.killed,
        states=[state for state in evidence.states if state.planned.id not in torn],
    )


def _said(verdict: CrashVerdict) -> list[str]:
    judgements = [state.judgement for state in verdict.states]
    if verdict.kill is not None:
        judgements.append(verdict.kill)
    return [line for judgement in judgements for line in judgement.evidence]


def _wrong(expected: Expected, evidence: CrashEvidence) -> list[str]:
    whole = evidence.under(Contract.parse(expected.contract))
    seen: CrashVerdict | CrashSummary = whole
    if expected.of != "whole":
        seen = whole.process_crash if expected.of == "process-crash" else whole.power_cut
    reasons, faults = set(seen.reasons), []
    if seen.verdict is not expected.verdict:
        why = whole.process_crash.unknown_why or whole.power_cut.unknown_why
        faults.append(
            f"{expected.contract} ({expected.of}): {seen.verdict.value} {' '.join(seen.reasons)} {why}"
            f", wanted {expected.verdict.value}"
        )
    elif expected.reasons and not (expected.reasons & reasons and reasons <= LOSSES | expected.reasons):
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
    for state in evidence.under(Contract("strict")).states:
        if state.planned.model != "synced":
            continue
        against = state.disagreement
        if against is None:
            faults.append(f"{state.planned.id} was not held against the audit: {state.judgement.unknown_why}")
        elif against.survived:
            faults.append(f"{state.planned.id}: {against.survived} exposed acks survived")
        elif against.vanished and not row.forgets:
            faults.append(f"{state.planned.id}: {against.vanished} covered acks are gone")
    return faults


def summary(row: Row, evidence: CrashEvidence) -> dict[str, dict[str, Any]]:
    """What each contract of the row came to, as JSON values; ``right`` for each kind of crash it names."""
    found: dict[str, dict[str, Any]] = {}
    for expected in row.expected:
        verdict = evidence.under(Contract.parse(expected.contract))
        one = found.setdefault(
            expected.contract,
            {
                "verdict": verdict.verdict.value,
                "process_crash": verdict.process_crash.verdict.value,
                "power_cut": verdict.power_cut.verdict.value,
                "reasons": list(verdict.reasons),
                "acks": verdict.process_crash.acks,
                "lost": max(verdict.process_crash.lost, verdict.power_cut.lost),
                "loss_ms": max(verdict.process_crash.loss_ms, verdict.power_cut.loss_ms),
            },
        )
        one[expected.of] = {"right": not _wrong(expected, _without_torn_logs(row, evidence))}
    return found
