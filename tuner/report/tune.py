"""A study's end, as the JSON that other programs rely on, as text, and as files to take away."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crashlab.judging.evidence import CrashSummary
from knobs.finding import Finding
from tuner.request import Request
from tuner.search.interval import METHOD
from tuner.search.trial import TrialResult
from tuner.search.tuning import StudyOutcome, StudyPlan
from workloads import registry

OPTIONS_NAME = "OPTIONS"
OUTSIDE_NAME = "write-options.json"


def as_json(
    request: Request,
    plan: StudyPlan,
    folder: Path,
    reference: Mapping[str, str],
    outcome: StudyOutcome,
    provenance: Mapping[str, Any],
    findings: Sequence[Finding],
) -> dict[str, Any]:
    """The `tune` document of the JSON contract."""
    winner, interval = outcome.winner, outcome.interval
    return {
        "schema": 1,
        "provenance": dict(provenance),
        "study": str(folder),
        "engine": request.engine.name,
        "contract": str(request.contract),
        "audit_only": plan.audit_only,
        "reference": {"settings": dict(reference), "config": list(request.sources)},
        "controls": {
            control.name: {"wanted": control.wanted.value, "got": control.got.value, "why": control.why}
            for control in outcome.controls
        },
        "winner": {
            "trial": winner.trial.number,
            "settings": dict(winner.trial.settings),
            "verdict": winner.verdict.verdict.value,
            "process_crash": _summary(winner.verdict.process_crash),
            "power_cut": _summary(winner.verdict.power_cut),
            "proven_faster": bool(outcome.interval and outcome.interval.better),
            "repeat": repeat_command(request, folder),
        }
        if winner
        else None,
        "confirmation": {
            "ratio": interval.ratio,
            "low": interval.low,
            "high": interval.high,
            "better": interval.better,
            "rounds": [vars(paired) for paired in outcome.rounds],
            "method": METHOD,
        }
        if interval
        else None,
        "refused": [
            {
                "trial": result.number,
                "verdict": result.verdict,
                "reasons": list(result.reasons),
                "ratio": result.ratio,
            }
            for result in refused(outcome)
        ],
        "fastest": {
            "trial": outcome.fastest.number,
            "settings": dict(outcome.fastest.settings),
            "verdict": outcome.fastest.verdict,
            "reasons": list(outcome.fastest.reasons),
            "ratio": outcome.fastest.ratio,
        }
        if outcome.fastest
        else None,
        "trials": [_trial(result) for result in outcome.results],
        "findings": [finding.as_dict() for finding in findings],
    }


def as_text(
    request: Request, plan: StudyPlan, folder: Path, reference: Mapping[str, str], outcome: StudyOutcome
) -> str:
    """The study's end for a person: what won, what it is worth, what was refused, what repeats it."""
    counts = {
        name: sum(1 for r in outcome.results if r.verdict == name)
        for name in ("HELD", "BROKEN", "UNKNOWN", "REJECTED")
    }
    lines = ["trials         " + ", ".join(f"{count} {name}" for name, count in counts.items() if count)]
    lines += _table(outcome.results)
    if plan.audit_only:
        lines += _audit_lines(outcome)
    else:
        lines += [*_refused_lines(outcome), *_winner_lines(request, folder, reference, outcome)]
    lines.append(f"study          {folder} (optuna-dashboard sqlite:///{folder}/study.db)")
    return "\n".join(lines)


def refused(outcome: StudyOutcome) -> list[TrialResult]:
    """The trials that broke the contract although they were faster than the best that held it, and those
    that held it once and not on the winner's fresh run."""
    best = outcome.winner.trial.ratio if outcome.winner else 0.0
    broken = [result for result in outcome.results if result.broken and result.ratio > best]
    return sorted([*broken, *outcome.refused_at_last], key=lambda result: -result.ratio)


def write_winner(request: Request, folder: Path, trial: TrialResult) -> Path:
    """Write the winning configuration: an OPTIONS file, and what lives outside of it, as JSON.

    Returns the folder that holds both.
    """
    target = folder / "winner"
    target.mkdir(exist_ok=True)
    options = request.engine.base.apply(trial.settings, request.engine.column_family)
    (target / OPTIONS_NAME).write_text(options.render(), encoding="utf-8")
    outside = {
        name: value
        for name, value in trial.settings.items()
        if name.startswith(("WriteOptions.", "Application."))
    }
    (target / OUTSIDE_NAME).write_text(json.dumps({"settings": outside}, indent=1) + "\n", encoding="utf-8")
    return target


def repeat_command(request: Request, folder: Path) -> str:
    """The one command that repeats the winner's verdict."""
    config = f"{folder}/winner/{OPTIONS_NAME}+{folder}/winner/{OUTSIDE_NAME}"
    by_name = registry.find(request.workload.name).properties.stated
    properties = [
        word
        for name, value in request.workload.properties.stated.items()
        if by_name.get(name) != value
        for word in ("-p", f"{name}={value}")
    ]
    words = [
        "duratune",
        "crash",
        request.engine.name,
        config,
        "--workload",
        request.workload.name,
        *properties,
    ]
    words += ["--contract", str(request.contract), "--clients", str(request.clients)]
    words += ["--cf", request.engine.column_family] if request.engine.column_family != "default" else []
    return shlex.join([*words, "--seed", str(request.seed)])


def _winner_lines(
    request: Request, folder: Path, reference: Mapping[str, str], outcome: StudyOutcome
) -> list[str]:
    if outcome.winner is None:
        return ["winner         none: nothing that was tried holds the contract"]
    winner = outcome.winner
    lines = []
    if winner.trial.number == 0:
        lines.append("winner         the reference itself: no candidate that holds the contract was faster")
    else:
        over = {name: value for name, value in winner.trial.settings.items() if reference.get(name) != value}
        lines.append(
            f"winner         trial {winner.trial.number} ({winner.trial.proposer}), over the reference:"
        )
        lines += [f"                 {name}={value}" for name, value in sorted(over.items())]
        lines.append(f"configuration  {folder}/winner/{OPTIONS_NAME}, and {OUTSIDE_NAME} beside it")
        lines += _unproven(outcome)
        lines += [
            f"               put back before use: {finding.setting}={finding.value}"
            for finding in request.findings
            if finding.rule == "outside-overridden"
        ]
    for name, summary in (
        ("process crash", winner.verdict.process_crash),
        ("power cut", winner.verdict.power_cut),
    ):
        lines.append(
            f"{name:<14} {summary.verdict.value} on a fresh run: {summary.acks} acks, "
            f"{summary.decidable} decidable, {summary.states} states; at most {summary.lost} lost, "
            f"a window of {summary.loss_ms:.1f} ms"
        )
    for model, found in winner.verdict.models.items():
        if found.broken_share_max is not None:
            lines.append(
                f"               {model}: all {found.uniform} states at uniform moments held; at most "
                f"{100 * found.broken_share_max:.0f} % of the moments of such a run break it (95 %)"
            )
    lines.append(_confirmation_line(outcome, "the reference"))
    lines.append(f"repeat         {repeat_command(request, folder)}")
    return lines


def _unproven(outcome: StudyOutcome) -> list[str]:
    """A winner that its confirmation does not show to be faster is no reason to change anything."""
    if outcome.interval is None or outcome.interval.better:
        return []
    return ["               NOT PROVEN faster: the confirmation below gives no reason to leave the reference"]


def _confirmation_line(outcome: StudyOutcome, against: str) -> str:
    if outcome.interval is None:
        return "confirmation   nothing to confirm"
    claim = (
        f"faster than {against}"
        if outcome.interval.better
        else f"no better than {against} as far as can be told"
    )
    return f"confirmation   {outcome.interval}: {claim} ({METHOD})"


def _audit_lines(outcome: StudyOutcome) -> list[str]:
    if outcome.fastest is None:
        return ["audit          no trial was measured"]
    fastest = outcome.fastest
    lines = [
        f"audit          a search for speed alone would have shipped trial {fastest.number}: "
        f"{fastest.ratio:.2f} x reference, {fastest.verdict} {' '.join(fastest.reasons)}".rstrip()
    ]
    lines += [f"                 {name}={value}" for name, value in sorted(fastest.settings.items())]
    lines.append(_confirmation_line(outcome, "the reference"))
    return lines


def _refused_lines(outcome: StudyOutcome) -> list[str]:
    found = refused(outcome)
    if not found:
        return ["refused        no candidate faster than the winner broke the contract"]
    lines = [f"refused        {len(found)} that did not hold the contract, as a trial or on a fresh run:"]
    lines += [
        f"                 trial {result.number}: {result.ratio:.2f} x reference, "
        f"{', '.join(result.reasons) or f'{result.verdict}: {result.why}'}"
        for result in found[:10]
    ]
    return lines


def _table(results: Sequence[TrialResult]) -> list[str]:
    lines = ["               trial  proposer   ratio  verdict"]
    for result in results:
        ratio = f"{result.ratio:.2f}" if result.ratio else "-"
        verdict = " ".join([result.verdict, *(result.reasons or [result.why])]).rstrip()
        lines.append(f"               {result.number:>5}  {result.proposer:<9} {ratio:>6}  {verdict}")
    return lines


def _summary(summary: CrashSummary) -> dict[str, Any]:
    return {
        "verdict": summary.verdict.value,
        "acks": summary.acks,
        "decidable": summary.decidable,
        "lost": summary.lost,
        "loss_ms": summary.loss_ms,
        "states": summary.states,
    }


def _trial(result: TrialResult) -> dict[str, Any]:
    return {
        "trial": result.number,
        "proposer": result.proposer,
        "reason": result.reason,
        "source": result.source,
        "settings": dict(result.settings),
        "ratio": result.ratio,
        "throughput_per_s": result.throughput_per_s,
        "reference_per_s": list(result.reference_per_s),
        "verdict": result.verdict,
        "reasons": list(result.reasons),
        "why": result.why,
        "findings": [dict(finding) for finding in result.findings],
    }
