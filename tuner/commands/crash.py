"""`duratune crash`: crash-validate one configuration."""

from __future__ import annotations

import json as json_module
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from crashlab.judging.evidence import CrashVerdict
from crashlab.judging.judge import judge_states
from crashlab.judging.verdict import Judgement, Verdict
from crashlab.kill import MeasurePlan
from crashlab.models import MODELS
from crashlab.recording.record import RecordPlan
from crashlab.recording.recorded import Recording
from crashlab.states.plan import PlannedState
from crashlab.subject import Subject
from crashlab.validate import CrashPlan, split_states, validate
from engines.lock import exclusive
from engines.provenance import provenance
from knobs.contract import Contract
from knobs.errors import InvalidInput
from knobs.rocksdb.changes import differences
from tuner import folders, options
from tuner.options import Asked, takes_asked
from tuner.origin import origin
from tuner.output import Output
from tuner.replay import bound_to_recording
from tuner.report import crash as crash_report
from tuner.report.settings import in_short
from tuner.request import Request, open_lab, resolve_asked
from tuner.static_check import predicted, recovery_ignores
from workloads.ycsb.keys import key_name

RECORDS = 20_000
OPERATIONS_MAX = 1_000_000
"""Far more than the write log has room for."""
DOCUMENT = "crash.json"


@takes_asked
def command(
    asked: Asked,
    states: Annotated[int, typer.Option("--states", min=3, max=10_000, help="Crash states to judge.")] = 30,
    time: options.RunTime = "3s",
    operations: Annotated[
        int,
        typer.Option(
            "--operations",
            min=100,
            max=OPERATIONS_MAX,
            help="Operations of the recorded run, at the least.",
        ),
    ] = 6_000,
    replay: Annotated[
        str | None,
        typer.Option("--replay", metavar="STATE", help="Rebuild and judge one state of --study again."),
    ] = None,
) -> int:
    """Kill a running load, cut its power, recover, and check every acknowledged write.

    Exit code 0: held; 1: broken; 4: unknown.
    """
    output = Output(json=asked.json, quiet=asked.quiet)
    if replay is not None:
        _refuse_changes(asked)
        return _replay(replay, asked.study, asked.contract, output)
    request = resolve_asked(asked, RECORDS)
    name = folders.default_name(asked.engine, asked.workload, request.contract, "crash-")
    plan = CrashPlan(
        split_states(request.engine.controls, states),
        MeasurePlan(measure_s=options.seconds(time)),
        RecordPlan(operations=operations),
    )
    folder = folders.for_one_run(asked.study, name)
    # A run that did not get to its document cannot be replayed: it leaves no folder behind.
    with exclusive(folder), folders.kept_with(folder, DOCUMENT):
        output.result(f"contract       {request.contract}: {request.contract.in_words()}")
        output.result(_asked(request))
        return _crash(request, plan, folder, asked.data, output)


def _crash(request: Request, plan: CrashPlan, folder: Path, data: Path | None, output: Output) -> int:
    with open_lab(request, folder, data) as (lab, bound):
        progress = output.progress()
        lab = replace(lab, say=output.note, advance=progress.advance)
        came_from = origin(bound, lab.data, recorder=lab.recorder.name, models=list(bound.engine.controls))
        try:
            progress.start(plan.total_states, "crash states")
            evidence = validate(bound.subject(), bound.contract, plan, lab, folder, bound.seed)
        finally:
            progress.close()
    verdict = evidence.under(bound.contract)
    assert evidence.killed is not None, "validate always kills a run"
    effective = bound.engine.in_force(evidence.killed.effective)
    findings = [
        *bound.findings,
        *predicted(bound, bound.settings),
        *differences(bound.catalogue, bound.settings, effective),
    ]
    ignores = recovery_ignores(bound, bound.settings)
    again = _replay_command(folder, verdict, bound)
    document = crash_report.as_json(
        evidence,
        verdict,
        seed=bound.seed,
        provenance=came_from,
        effective=effective,
        findings=findings,
        recovery_ignores=ignores,
        properties=bound.workload.properties,
        replay=again,
    )
    document["study"] = str(folder)
    _save(folder / DOCUMENT, document)
    output.result(
        crash_report.as_text(evidence, verdict, findings, ignores, bound.workload.properties, again)
    )
    output.document(document)
    return crash_report.EXIT_CODES[verdict.verdict]


def _asked(request: Request) -> str:
    properties = request.workload.properties
    return (
        f"run            {request.engine.name} {request.engine.version()}, {request.workload.name}, "
        f"{properties.record_count} records, {request.clients} clients, seed {request.seed}\n"
        f"settings       {in_short(request, request.settings)}"
    )


def _replay_command(folder: Path, verdict: CrashVerdict, request: Request) -> str:
    state = verdict.worst_state or (verdict.states[-1] if verdict.states else None)
    if state is None:
        # No state was built, so the whole run is what can be repeated.
        words = sys.argv[1:]
        return shlex.join(["duratune", *words, *([] if "--seed" in words else ["--seed", str(request.seed)])])
    words = ["--study", str(folder), "--contract", str(request.contract), "--replay", state.planned.id]
    return shlex.join(["duratune", "crash", request.engine.name, *words])


def _save(path: Path, document: dict[str, Any]) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(json_module.dumps(document, indent=1, allow_nan=False), encoding="utf-8")
    part.replace(path)


def _replay(state: str, study: Path | None, contract: str | None, output: Output) -> int:
    """Rebuild one state from log, position, model and seed, recover it and judge it again."""
    if study is None:
        raise InvalidInput("--replay needs the folder of the run", where="--replay", hint="add --study DIR")
    planned = parse_state(state)
    with bound_to_recording(study) as (lab, recording, subject, stored):
        wanted = Contract.parse(contract or stored)
        _refuse_without_control(planned, subject)
        _refuse_outside(planned, recording)
        recovered = lab.recover(recording, subject, [planned])
        judged = next(iter(judge_states(recording, recovered, wanted)))
    judgement = judged.judgement
    if judgement.verdict is Verdict.HELD and judgement.acks == 0:
        judgement = Judgement.unknown("no write had been acknowledged before this position")
    output.result(f"contract       {wanted}: {wanted.in_words()}")
    output.result(
        f"state          {state}: {judgement.verdict.value} {' '.join(judgement.reasons)}\n"
        f"               {judgement.acks} acks, {judgement.decidable} decidable, {judgement.lost} lost, "
        f"window {judgement.loss_ms:.1f} ms{_first_lost(judgement, recording)}"
    )
    for line in [*judgement.evidence, *filter(None, [judgement.unknown_why])]:
        output.result(f"evidence       {line}")
    output.document(
        {
            "schema": 1,
            "provenance": provenance(study, seed=planned.seed),
            "contract": str(wanted),
            "state": state,
            "verdict": judgement.verdict.value,
            "reasons": list(judgement.reasons),
            "acks": judgement.acks,
            "decidable": judgement.decidable,
            "lost": judgement.lost,
            "lost_writes": [_name(recording, row) for row in judgement.lost_indices],
            "loss_ms": judgement.loss_ms,
            "recovery_s": judged.recovery_s,
        }
    )
    return crash_report.EXIT_CODES[judgement.verdict]


def _refuse_changes(asked: Asked) -> None:
    """A state is judged as it was recorded: what would change the run changes nothing any more."""
    given = [name for name, is_given in (("CONFIG", asked.config), ("--set", asked.sets)) if is_given]
    if given:
        raise InvalidInput(
            f"{' and '.join(given)} cannot change a run that is recorded already",
            where="--replay",
            hint="leave out --replay to crash another configuration",
        )


def _refuse_without_control(planned: PlannedState, subject: Subject) -> None:
    """A model that has no controls for the engine proves nothing of it."""
    known = subject.engine.controls
    if planned.model not in known:
        raise InvalidInput(
            f"{planned.model} has no control for {subject.engine.name}, so it can give no verdict",
            where=f"--replay {planned.id}",
            hint=f"use one of {', '.join(known)}",
        )


def _refuse_outside(planned: PlannedState, recording: Recording) -> None:
    first, last = recording.facts.first_position, recording.timeline.last_position
    if not first < planned.position <= last:
        raise InvalidInput(
            f"the load of this run lies at the positions {first + 1} to {last}",
            where=f"--replay {planned.id}",
            hint="crash.json lists the states that were judged",
        )


def _first_lost(judgement: Judgement, recording: Recording) -> str:
    lost = judgement.first_lost
    if lost is None:
        return ""
    key = key_name(lost.register, recording.facts.workload_parameters)
    return f", the first {key} (client {lost.client}, write {lost.sequence})"


def _name(recording: Recording, row: int) -> list[int]:
    history = recording.history
    return [int(history.client[row]), int(history.sequence[row])]


def parse_state(text: str) -> PlannedState:
    """Read `MODEL@POSITION#SEED`. Raises InvalidInput for anything else."""
    model, at, rest = text.partition("@")
    position, hash_, seed = rest.partition("#")
    if not at or not hash_ or model not in MODELS or not position.isdigit() or not seed.isdigit():
        raise InvalidInput(
            f"'{text}' is no crash state",
            where="--replay",
            hint=f"MODEL@POSITION#SEED, MODEL one of {', '.join(MODELS)}",
        )
    return PlannedState(model, int(position), int(seed), "uniform", "replay")
