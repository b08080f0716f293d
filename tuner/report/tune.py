"""A study's end, as the JSON that other programs rely on, as text, and as files to take away."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crashlab.judging.evidence import CrashSummary
from knobs.finding import Finding
from tuner import static_check
from tuner.counting import counted
from tuner.report.held import bound_lines, spread
from tuner.request import Request
from tuner.search.final import Claim, Winner
from tuner.search.interval import METHOD
from tuner.search.study_plan import StudyPlan
from tuner.search.trial import REJECTED, TrialResult
from tuner.search.tuning import StudyOutcome


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
    winner = outcome.winner
    return {
        "schema": 1,
        "provenance": dict(provenance),
        "study": str(folder),
        "engine": request.engine.name,
        "contract": str(request.contract),
        "audit_only": plan.audit_only,
        "reference": {"settings": dict(reference), "config": list(request.sources)},
        "controls": {control.name: control.as_json() for control in outcome.controls},
        "winner": {
            "trial": winner.trial.number,
            "settings": dict(winner.trial.settings),
            "verdict": winner.verdict.verdict.value,
            "process_crash": _summary(winner.verdict.process_crash),
            "power_cut": _summary(winner.verdict.power_cut),
            "proven_faster": _is_proven(outcome),
            "seed": winner.seed,
            "repeat": repeat_command(request, folder, winner),
        }
        if winner
        else None,
        "confirmation": _confirmation(outcome.claim) if outcome.claim else None,
        "rivals": [claim.as_json() for claim in outcome.rivals],
        "unproven": _unproven(outcome.unproven) if outcome.unproven and not plan.audit_only else None,
        "cut_short": outcome.cut_short,
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
        lines += _audit_lines(request, reference, outcome)
    else:
        lines += [*_refused_lines(outcome), *_winner_lines(request, folder, reference, outcome)]
    lines.append(f"study          {folder} (optuna-dashboard sqlite:///{folder}/study.db)")
    return "\n".join(lines)


def refused(outcome: StudyOutcome) -> list[TrialResult]:
    """The trials that broke the contract although they were faster than the best that held it, and those
    that held it once and not on the winner's fresh run."""
    best = 0.0
    if outcome.winner is not None:
        # The reference's ratio is 1 by what a ratio is; what trial 0 shows above or below is noise.
        best = outcome.winner.trial.ratio if outcome.winner.trial.number > 0 else 1.0
    broken = [result for result in outcome.results if result.broken and result.ratio > best]
    return sorted([*broken, *outcome.refused_at_last], key=lambda result: -result.ratio)


def write_winner(request: Request, folder: Path, trial: TrialResult) -> Path:
    """Write the winning configuration in the engine's own files. Returns the folder that holds them."""
    target = folder / "winner"
    target.mkdir(exist_ok=True)
    for name, text in request.kind.writing.files(request.engine, trial.settings).items():
        (target / name).write_text(text, encoding="utf-8")
    return target


def repeat_command(request: Request, folder: Path, winner: Winner) -> str:
    """The one command that repeats the winner's fresh run: its seed, its states and the size of its runs."""
    config = "+".join(f"{folder}/winner/{name}" for name in _winner_files(request, winner.trial))
    words = [
        "duratune",
        "crash",
        request.engine.name,
        config,
        "--workload",
        request.workload.name,
        *request.described().options,
    ]
    words += ["--contract", str(request.contract), "--clients", str(request.clients)]
    words += request.options
    words += ["--states", str(winner.asked_states), "--measure", f"{winner.plan.measure.measure_s!r}s"]
    words += ["--operations", str(winner.plan.record.operations), "--seed", str(winner.seed)]
    return shlex.join(words)


def _winner_lines(
    request: Request, folder: Path, reference: Mapping[str, str], outcome: StudyOutcome
) -> list[str]:
    winner = outcome.winner
    if winner is None:
        return [f"winner         none: {_why_none(outcome)}", *_unproven_lines(request, reference, outcome)]
    if winner.trial.number == 0:
        least = "is proven faster" if outcome.unproven else "was faster"
        lines = [f"winner         the reference itself: no candidate that holds the contract {least}"]
    else:
        lines = [
            f"winner         trial {winner.trial.number} ({winner.trial.proposer}): holds {request.contract}"
            f"{_where_it_does_not(outcome)}; over the reference:",
            *_over(request, reference, winner.trial),
        ]
    main, *others = _winner_files(request, winner.trial)
    beside = f", and {' and '.join(others)} beside it" if others else ""
    lines.append(f"configuration  {folder}/winner/{main}{beside}")
    lines += [
        f"               put back before use: {finding.in_words}"
        for finding in request.findings
        if finding.rule == "outside-overridden"
    ]
    for name, summary in (
        ("process crash", winner.verdict.process_crash),
        ("power cut", winner.verdict.power_cut),
    ):
        lines.append(
            f"{name:<14} {summary.verdict.value} on a fresh run: {summary.acks} acks, "
            f"{summary.decidable} decidable, {counted(summary.states, 'state')}; "
            f"at most {summary.lost} lost, a window of {summary.loss_ms:.1f} ms"
        )
    lines.append(f"states         {spread(winner.verdict.models)}")
    lines += bound_lines(winner.verdict.models, held=True)
    lines += _unproven_lines(request, reference, outcome) or [_confirmation_line(outcome)]
    for claim in outcome.rivals:
        lines.append(f"{'against ' + claim.rival.proposer:<14} {claim.in_words()}")
    lines.append(f"repeat         {repeat_command(request, folder, winner)}")
    return lines


def _winner_files(request: Request, trial: TrialResult) -> list[str]:
    """The names of the files that `write_winner` writes, the main one first."""
    return list(request.kind.writing.files(request.engine, trial.settings))


def _where_it_does_not(outcome: StudyOutcome) -> str:
    """Why a candidate won that need not be faster: there is no reference to go back to."""
    if outcome.reference_broke:
        return ", which the reference does not hold"
    is_rejected = any(one.number == 0 and one.verdict == REJECTED for one in outcome.results)
    return ", where the reference is REJECTED" if is_rejected else ""


def _why_none(outcome: StudyOutcome) -> str:
    if outcome.cut_short:
        return outcome.cut_short
    if outcome.unproven is None:
        return "nothing that was tried holds the contract"
    return "no candidate is proven faster than the reference, which itself is not shown to hold the contract"


def _over(request: Request, reference: Mapping[str, str], trial: TrialResult) -> list[str]:
    """What a trial sets otherwise than the reference."""
    over = {name: value for name, value in trial.settings.items() if reference.get(name) != value}
    return [
        f"                 {name}={request.catalogue.spelled(name, value)}"
        for name, value in sorted(over.items())
    ]


def _unproven_lines(request: Request, reference: Mapping[str, str], outcome: StudyOutcome) -> list[str]:
    """The candidate that did not win, and why: its settings are told, and are not in the winner's folder."""
    unproven = outcome.unproven
    if unproven is None:
        return []
    return [
        f"not the winner trial {unproven.trial.number} ({unproven.trial.proposer}): the fastest that held, "
        f"but {unproven.interval.in_words}; over the reference:",
        *_over(request, reference, unproven.trial),
        _confirmation_line(outcome),
    ]


def _confirmation_line(outcome: StudyOutcome) -> str:
    if outcome.claim is None:
        return "confirmation   nothing to confirm"
    interval = outcome.claim.interval
    claim = f"{interval.in_words} than the reference"
    return f"confirmation   trial {outcome.claim.trial.number}: {interval}: {claim} ({METHOD})"


def _is_proven(outcome: StudyOutcome) -> bool:
    return outcome.claim is not None and outcome.unproven is None and outcome.claim.interval.better


def _confirmation(claim: Claim) -> dict[str, Any]:
    interval = claim.interval
    return {
        "trial": claim.trial.number,
        "ratio": interval.ratio,
        "low": interval.low,
        "high": interval.high,
        "better": interval.better,
        "claim": interval.in_words,
        "rounds": [vars(paired) for paired in claim.rounds],
        "method": METHOD,
    }


def _unproven(claim: Claim) -> dict[str, Any]:
    """The fastest that held, which its confirmation does not make the winner."""
    return {
        "trial": claim.trial.number,
        "settings": dict(claim.trial.settings),
        "claim": claim.interval.in_words,
        "ratio": claim.interval.ratio,
        "low": claim.interval.low,
        "high": claim.interval.high,
    }


def _audit_lines(request: Request, reference: Mapping[str, str], outcome: StudyOutcome) -> list[str]:
    """What speed alone ships with all that it sets, and every other trial that broke the contract by what."""
    if outcome.fastest is None:
        return ["audit          no trial was measured"]
    fastest = outcome.fastest
    what = _speed(fastest) if fastest.number == 0 else f"trial {fastest.number}: {_speed(fastest)}"
    lines = [
        f"audit          a search for speed alone would have shipped {what}, {_verdict(fastest)}",
        *_over(request, reference, fastest),
        _confirmation_line(outcome),
    ]
    others = [result for result in outcome.results if result.broken and result is not fastest]
    if others:
        lines.append("broke          the contract, and was not the fastest:")
    for result in sorted(others, key=lambda result: -result.ratio):
        broken = static_check.breaking(request, result.settings)
        causes = list(dict.fromkeys(finding.in_words for finding in broken))
        lines.append(
            f"               trial {result.number}: {_speed(result)}, {_verdict(result)}"
            + (f", by {', '.join(causes)}" if causes else "")
        )
        lines += [] if causes else _over(request, reference, result)
    return lines


def _verdict(result: TrialResult) -> str:
    return " ".join([result.verdict, ", ".join(result.reasons) or result.why]).rstrip()


def _refused_lines(outcome: StudyOutcome) -> list[str]:
    found = refused(outcome)
    if not found:
        broken = sum(result.broken for result in outcome.results)
        if not broken:
            return ["refused        none: no trial broke the contract"]
        return [
            f"refused        none that was faster than the winner (broke the contract and slower: {broken})"
        ]
    lines = [f"refused        {len(found)} that did not hold the contract, as a trial or on a fresh run:"]
    lines += [
        f"                 trial {result.number}: {_speed(result)}, "
        f"{', '.join(result.reasons) or f'{result.verdict}: {result.why}'}"
        for result in found[:10]
    ]
    return lines


def _table(results: Sequence[TrialResult]) -> list[str]:
    lines = ["               trial  proposer       ratio  verdict"]
    for result in results:
        verdict = " ".join([result.verdict, *(result.reasons or [result.why])]).rstrip()
        lines.append(
            f"               {result.number:>5}  {result.proposer:<9} {_ratio(result):>9}  {verdict}"
        )
    return lines


def _ratio(result: TrialResult) -> str:
    """A trial's ratio; trial 0 is the reference, so what it shows above or below 1 is the noise of a pair."""
    if not result.ratio:
        return "-"
    return "reference" if result.number == 0 else f"{result.ratio:.2f}"


def _speed(result: TrialResult) -> str:
    """The same within a sentence."""
    return "the reference itself" if result.number == 0 else f"{result.ratio:.2f} x reference"


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
