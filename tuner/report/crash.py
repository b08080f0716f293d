"""A crash verdict as the JSON that other programs rely on, and as text for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from crashlab.controls import Control, unknown_because
from crashlab.judging.evidence import CrashEvidence, CrashSummary, CrashVerdict, ModelSummary
from crashlab.judging.judge import Aside, JudgedState
from crashlab.judging.verdict import LostWrite, Verdict
from knobs.finding import Finding
from tuner.counting import counted
from tuner.report.coverage import coverage_lines
from tuner.report.findings import finding_lines
from tuner.report.held import Depth, bound_lines, spread

NameOf = Callable[[LostWrite], str]
"""What a user calls a write."""

UNTRIED = ("torn", "reordered")
"""What a HELD is not of, where these models do not judge the engine."""
ASIDE: Mapping[Aside, str] = {
    "posix": "a journaled file system keeps these names, and --metadata posix was not asked for",
    "engine-limit": "the engine's own safest settings do not survive such states either",
}
"""Why a state is told and does not count."""
EXIT_CODES = {Verdict.HELD: 0, Verdict.BROKEN: 1, Verdict.UNKNOWN: 4}


def as_json(
    evidence: CrashEvidence,
    verdict: CrashVerdict,
    *,
    seed: int,
    provenance: Mapping[str, Any],
    effective: Mapping[str, str],
    findings: Sequence[Finding],
    recovery_ignores: Sequence[str],
    name_of: NameOf,
    replay: str,
    depth: Depth | None = None,
) -> dict[str, Any]:
    """The `crash` document of the JSON contract."""
    covered = evidence.coverage
    audit = evidence.recording.audit if evidence.recording.believable else None
    return {
        "schema": 1,
        "provenance": dict(provenance),
        "engine": evidence.recording.facts.engine,
        "contract": str(verdict.contract),
        "seed": seed,
        "verdict": verdict.verdict.value,
        "reasons": list(verdict.reasons),
        "process_crash": {
            **_summary(verdict.process_crash, name_of),
            "kill": _kill(verdict),
        },
        "power_cut": {
            **_summary(verdict.power_cut, name_of),
            "models": {name: _model(model) for name, model in verdict.models.items() if name != "cache"},
        },
        "budget": {"states": depth.states, "time_s": depth.time_s} if depth else {},
        "states": [_state(state) for state in verdict.states],
        "coverage": covered.as_json() if covered else {},
        "recovery_s_max": verdict.recovery_s_max,
        "audit": {
            "acks": audit.acks if audit else 0,
            "covered": audit.covered if audit else 0,
            "exposed": audit.exposed if audit else 0,
            "unlocated": audit.unlocated if audit else 0,
            "unwritten": audit.unwritten if audit else 0,
            "opaque": audit.opaque if audit else "",
            "disagreements": _disagreements(verdict),
            "recovery_ignores": list(recovery_ignores),
        },
        "fault": evidence.recording.struck.as_json() if evidence.recording.struck else None,
        "engine_limits": [asdict(limit) for limit in verdict.limits],
        "recording": evidence.recording.describe(),
        "controls": {control.name: control.as_json() for control in evidence.controls},
        "measured": dict(evidence.killed.measured) if evidence.killed else {},
        "effective": dict(effective),
        "findings": [finding.as_dict() for finding in findings],
        "replay": replay,
    }


def as_text(
    evidence: CrashEvidence,
    verdict: CrashVerdict,
    findings: Sequence[Finding],
    recovery_ignores: Sequence[str],
    name_of: NameOf,
    replay: str,
    depth: Depth | None = None,
) -> str:
    """The verdict for a person: what was judged, what was lost, what a HELD means, and what repeats it."""
    lines = _controls_lines(evidence.controls, verdict)
    lines.append(_crash_line("process crash", verdict.process_crash, "a SIGKILL", name_of, evidence.controls))
    lines.append(_crash_line("power cut", verdict.power_cut, "", name_of, evidence.controls))
    if evidence.recording.believable:
        audit = evidence.recording.audit
        unlocated = f", {audit.unlocated} unlocated" + (f" ({audit.opaque})" if audit.opaque else "")
        lines.append(
            f"audit          {audit.acks} acks of the recorded run{_loaded(evidence)}: "
            f"{audit.covered} durable when given, "
            f"{audit.exposed} exposed{unlocated}"
        )
        vanished = max(
            (state.disagreement.vanished for state in verdict.states if state.disagreement), default=0
        )
        file_system = evidence.recording.facts.file_system
        if vanished and file_system:
            lines.append(
                f"               {file_system} did not keep what syncs of its files had covered: "
                f"up to {vanished} covered acks are gone"
            )
        elif vanished:
            failed = ["the failed call"] if evidence.recording.struck else []
            why = " and ".join([*recovery_ignores, *failed]) or "no setting that is known to"
            lines.append(
                f"               recovery ignored durable bytes: up to {vanished} covered acks are gone; "
                f"{why} explains it"
            )
    if evidence.recording.struck is not None:
        lines.append(f"fault          {evidence.recording.struck.in_words()}")
    for fault in evidence.recording.facts.faults:
        lines.append(f"write log      not believed: {fault}")
    for note in evidence.recording.facts.notes:
        lines.append(f"write log      {note}")
    lines.append(f"states         {spread(verdict.models, depth)}{_alike(verdict.states)}")
    lines += coverage_lines(evidence.coverage) if evidence.coverage else []
    lines += _checked_lines(verdict.states)
    lines.append(f"recovery       at most {verdict.recovery_s_max:.2f} s")
    lines += finding_lines(findings)
    lines += _limit_lines(verdict)
    lines += _evidence_lines(verdict)
    lines.append(_verdict_line(verdict))
    lines += bound_lines(verdict.models, held=verdict.verdict is Verdict.HELD)
    lines.append(f"repeat         {replay}")
    return "\n".join(lines)


def _verdict_line(verdict: CrashVerdict) -> str:
    """The verdict; a HELD says of which crashes, and which were not tried."""
    words = " ".join([verdict.verdict.value, *verdict.reasons])
    untried = [name for name in UNTRIED if name not in verdict.models]
    tried = f" for the kill and the models {', '.join(verdict.models)}"
    tried += f"; {' and '.join(untried)} writes were not tried" if untried else ""
    return f"verdict        {words}" + (tried if verdict.verdict is Verdict.HELD else "")


def _loaded(evidence: CrashEvidence) -> str:
    records = evidence.recording.facts.workload_parameters.get("recordcount")
    return f" ({records} records)" if records else ""


def _controls_lines(controls: Sequence[Control], verdict: CrashVerdict) -> list[str]:
    if not controls:
        return ["controls       none were run"]
    why = unknown_because(controls)
    if not why:
        names = dict.fromkeys(control.name.partition(".")[0] for control in controls)
        return [f"controls       {', '.join(names)}: every lossy one BROKEN, every honest one HELD"]
    spoilt = [f"the {counted(len(verdict.states), 'crash state')}"]
    if any(not control.right and control.of_the_kill for control in controls):
        spoilt.insert(0, "the kill")
    return [f"controls       WRONG: {why}", f"               UNKNOWN by that: {' and '.join(spoilt)}"]


def _crash_line(
    name: str, summary: CrashSummary, also: str, name_of: NameOf, controls: Sequence[Control]
) -> str:
    seen = " and ".join(filter(None, [also, counted(summary.states, "state")]))
    verdict = " ".join([summary.verdict.value, *summary.reasons])
    text = f"{name:<14} {verdict:<7} {summary.acks} acks, {summary.decidable} decidable; {seen}"
    if summary.lost and summary.first_lost:
        lost = summary.first_lost
        text += (
            f"; up to {summary.lost} acks lost, a window of {summary.loss_ms:.1f} ms, the first "
            f"{name_of(lost)} (client {lost.client}, write {lost.sequence}), "
            f"in {summary.seen_in}"
        )
    elif summary.verdict is not Verdict.UNKNOWN:
        text += "; 0 acks lost"
    of_controls = [
        unknown_because(controls),
        unknown_because([each for each in controls if each.of_the_kill]),
    ]
    if summary.unknown_why:
        # What is wrong with them is told above, once.
        text += "; a control is wrong" if summary.unknown_why in of_controls else f"; {summary.unknown_why}"
    return text


def _alike(states: Sequence[JudgedState]) -> str:
    """How many states were not recovered by themselves, because another had their content."""
    alike = sum(1 for state in states if state.same_as)
    return f"; {alike} of them with the content of another" if alike else ""


def _checked_lines(states: Sequence[JudgedState]) -> list[str]:
    """What the states were checked for: what each of them was, and what only some were."""
    recovered = [state.checks for state in states if state.checks]
    if not recovered:
        return []
    every = [check for check in recovered[0] if all(check in checks for checks in recovered)]
    some = Counter(check for checks in recovered for check in checks if check not in every)
    return [
        f"checked        {counted(len(recovered), 'state')} for {', '.join(every)}",
        *(f"               {count} of them for {check}" for check, count in some.items()),
    ]


def _limit_lines(verdict: CrashVerdict) -> list[str]:
    """What broke and does not count: limits of the engine, and names that only a journal keeps."""
    lines = []
    for limit in verdict.limits:
        lines.append(
            f"engine limit   {limit.model}: {', '.join(limit.reasons)} in {limit.broken} of {limit.states} "
            f"states of the safest settings for {limit.contract}; what breaks for no other reason does not "
            f"count (--strict-model counts it); {limit.state}: {limit.evidence}"
        )
    for state in verdict.aside:
        # What breaks by the usual rule too says nothing of names.
        reasons = [reason for reason in state.judgement.reasons if reason not in verdict.power_cut.reasons]
        if state.aside == "posix" and reasons:
            said = [f"; {line}" for line in state.judgement.evidence[:1]]
            lines.append(
                f"warning        {state.planned.id}: {', '.join(reasons)} where a file system keeps no more "
                f"names than POSIX demands (--metadata posix counts it){''.join(said)}"
            )
    return lines


def _evidence_lines(verdict: CrashVerdict) -> list[str]:
    judgements = [("the kill", verdict.kill)] if verdict.kill else []
    judgements += [(state.planned.id, state.judgement) for state in verdict.states if not state.aside]
    lines = [
        f"evidence       {name}: {line}" for name, judgement in judgements for line in judgement.evidence
    ]
    return lines[:6]


def _summary(summary: CrashSummary, name_of: NameOf) -> dict[str, Any]:
    return {
        "verdict": summary.verdict.value,
        "reasons": list(summary.reasons),
        "acks": summary.acks,
        "decidable": summary.decidable,
        "lost": summary.lost,
        "loss_ms": summary.loss_ms,
        "loss_writes": summary.lost,
        "first_lost": _lost(summary.first_lost, name_of),
        "states": summary.states,
        # Where it was seen to break: of what did not break there is no such place.
        "seen_in": summary.seen_in if summary.verdict is Verdict.BROKEN else None,
        "unknown_why": summary.unknown_why,
    }


def _kill(verdict: CrashVerdict) -> dict[str, Any] | None:
    """The real SIGKILL by itself, without the `cache` states."""
    if verdict.kill is None:
        return None
    kill = verdict.kill
    return {"verdict": kill.verdict.value, "reasons": list(kill.reasons), "lost": kill.lost}


def _lost(lost: LostWrite | None, name_of: NameOf) -> dict[str, Any] | None:
    return {**lost.as_json(), "key": name_of(lost)} if lost else None


def _model(model: ModelSummary) -> dict[str, Any]:
    return {**asdict(model), "verdict": model.verdict.value}


def _state(state: JudgedState) -> dict[str, Any]:
    return {
        "id": state.planned.id,
        "model": state.planned.model,
        "position": state.planned.position,
        "same_as": state.same_as,
        "source": state.planned.source,
        "why": state.planned.why,
        "verdict": state.judgement.verdict.value,
        "aside": state.aside,
        "reasons": list(state.judgement.reasons),
        "acks": state.judgement.acks,
        "lost": state.judgement.lost,
        "loss_ms": state.judgement.loss_ms,
        "checks": list(state.checks),
        "evidence": list(state.judgement.evidence),
        "unknown_why": state.judgement.unknown_why,
        "recovery_s": state.recovery_s,
    }


def _disagreements(verdict: CrashVerdict) -> list[dict[str, int]]:
    """Where `synced` states and the audit did not agree."""
    found = [state.disagreement for state in verdict.states if state.disagreement is not None]
    return [asdict(one) for one in found if one.survived or one.vanished]
