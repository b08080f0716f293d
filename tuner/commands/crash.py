"""`duratune crash`: crash-validate one configuration."""

from __future__ import annotations

import json as json_module
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from crashlab.judging.evidence import CrashEvidence, CrashVerdict
from crashlab.judging.verdict import Judgement, Verdict
from crashlab.kill import MeasurePlan
from crashlab.limits import EngineLimits
from crashlab.models import MODELS
from crashlab.recording.fault import FORM, Fault
from crashlab.recording.record import PROVOKE_FAULT, RecordPlan
from crashlab.recording.recorded import Recording
from crashlab.recording.recovery import recovered_positions
from crashlab.states.double import DoubleState, State, double_share
from crashlab.states.plan import PlannedState
from crashlab.validate import CrashPlan, validate
from engines.lock import exclusive
from knobs.errors import InvalidInput, Undecided
from tuner import folders, options
from tuner.kinds import registry
from tuner.kinds.family import Size
from tuner.options import Asked, takes_asked
from tuner.origin import origin
from tuner.output import Output
from tuner.recorders import RecorderChoice
from tuner.replay import Reopened, bound_to_recording
from tuner.report import crash as crash_report
from tuner.report.findings import finding_lines
from tuner.report.held import Depth
from tuner.report.settings import in_short
from tuner.request import Request, open_lab, resolve_asked
from tuner.static_check import differences, predicted, recovery_ignores

SIZE = Size(records=20_000, scale=1)
STATES, STATES_MAX = 30, 10_000
"""By default, and where the time alone sets the end."""
MEASURE = "3s"
OPERATIONS = 6_000
OPERATIONS_S = 20.0
"""Under a slow --target fewer are recorded: as many as come in this time."""
OPERATIONS_MIN, OPERATIONS_MAX = 100, 1_000_000
"""Far more than the write log has room for."""
DOCUMENT = "crash.json"
REPLAY_TAKES = frozenset(("engine", "contract", "bindir", "study", "json", "quiet"))
"""What a state that is judged again leaves to be asked for."""


@takes_asked
def command(
    asked: Asked,
    states: Annotated[
        int | None,
        typer.Option(
            "--states",
            min=3,
            max=STATES_MAX,
            help=f"Crash states to judge; default {STATES}, with --time as many as it has time for.",
        ),
    ] = None,
    time: options.StatesTime = None,
    measure: options.MeasuredTime = MEASURE,
    operations: Annotated[
        int | None,
        typer.Option(
            "--operations",
            min=OPERATIONS_MIN,
            max=OPERATIONS_MAX,
            help=f"Operations of the recorded run, at the least; default {OPERATIONS}, fewer under a slow "
            "--target.",
        ),
    ] = None,
    metadata: options.MetadataRule = "ordered",
    strict_model: options.StrictModel = False,
    recorder: options.RecordedBy = "preload",
    file_system: options.DiskFileSystem = None,
    mount_options: options.MountOptions = None,
    no_double: Annotated[
        bool, typer.Option("--no-double", help="No state with a second crash, in the middle of a recovery.")
    ] = False,
    fault: Annotated[
        str | None,
        typer.Option(
            "--fault",
            metavar="FAULT",
            help="Make a sync or a write of the recorded run fail, once: the Nth of all, or of files of a "
            f"role (wal, relation, table ...). {FORM}.",
        ),
    ] = None,
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
        _refuse_changes(
            asked,
            {
                "--states": states,
                "--time": time,
                "--measure": measure != MEASURE,
                "--operations": operations,
                "--metadata": metadata != "ordered",
                "--strict-model": strict_model,
                "--recorder": recorder != "preload",
                "--file-system": file_system,
                "--mount-options": mount_options,
                "--no-double": no_double,
                "--fault": fault,
            },
        )
        return _replay(replay, asked, output)
    recorded_by = RecorderChoice.of(recorder, file_system, mount_options, metadata)
    request = replace(
        resolve_asked(asked, SIZE), metadata=metadata, strict_model=strict_model, recorder=recorded_by
    )
    if request.idle:
        raise Undecided(
            f"UNKNOWN: {request.idle}",
            where="--workload",
            hint="duratune bench measures it without a verdict",
        )
    record = _record_plan(operations, request.target_per_s)
    if fault is not None:
        record = replace(record, fault=_fault(fault, request), provoke=PROVOKE_FAULT)
    name = folders.default_name(asked.engine, request.workload.name, request.contract, "crash-")
    time_s = None if time is None else options.seconds(time)
    chosen = STATES if states is None and time is None else states
    double = 0 if no_double or request.recorder.name != "preload" else double_share(chosen or STATES)
    plan = CrashPlan(
        request.states(STATES_MAX if chosen is None else chosen - double),
        MeasurePlan(measure_s=options.seconds(measure), target_per_s=request.target_per_s),
        record,
        time_s,
        double,
    )
    depth = Depth(chosen, time_s, plan.total_states)
    folder = folders.for_one_run(asked.study, name)
    # A run that did not get to its document cannot be replayed: it leaves no folder behind.
    with exclusive(folder), folders.kept_with(folder, DOCUMENT):
        output.result(f"contract       {request.contract}: {request.contract.in_words()}")
        output.result(_asked(request))
        return _crash(request, plan, depth, folder, asked.data, output)


def _record_plan(operations: int | None, target_per_s: float) -> RecordPlan:
    """The recorded run at the load's pace, with time enough for its operations."""
    if not target_per_s:
        return RecordPlan(operations=operations or OPERATIONS)
    chosen = operations or max(OPERATIONS_MIN, min(OPERATIONS, round(OPERATIONS_S * target_per_s)))
    plan = RecordPlan(operations=chosen, target_per_s=target_per_s)
    return replace(plan, deadline_s=plan.deadline_s + chosen / target_per_s)


def _fault(text: str, request: Request) -> Fault:
    """Raises InvalidInput for what is no fault of the engine, or cannot be judged under the contract."""
    fault = Fault.parse(text, request.engine.log_reader, request.engine.name)
    if request.contract.window_ms is not None:
        raise InvalidInput(
            f"a fault is not judged under {request.contract}: a checkpoint must be provoked after it, which "
            "makes durable what stood exposed",
            where="--fault",
            hint="--contract strict, or process",
        )
    return fault


def _crash(
    request: Request, plan: CrashPlan, depth: Depth, folder: Path, data: Path | None, output: Output
) -> int:
    for note in request.notes:
        output.note(note)
    with open_lab(request, folder, data, say=output.note) as (lab, bound, _):
        progress = output.progress()
        lab = replace(lab, say=output.note, advance=progress.advance)
        came_from = origin(bound, lab.data, recorder=lab.recorder.name, models=bound.models)
        try:
            progress.start(plan.total_states if plan.time_s is None else None, "crash states")
            evidence = validate(bound.subject(), bound.contract, plan, lab, folder, bound.seed)
        finally:
            progress.close()
        limits = EngineLimits(lab, bound.terms, plan.record, bound.seed)
        verdict = limits.under(evidence, bound.subject())
    assert evidence.killed is not None, "validate always kills a run"
    effective = bound.engine.in_force(evidence.killed.effective)
    findings = [
        *bound.findings,
        *predicted(bound, bound.settings),
        *differences(bound, bound.settings, evidence.killed.effective),
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
        name_of=bound.name_of,
        replay=again,
        depth=depth,
    )
    document["study"] = str(folder)
    _save(folder / DOCUMENT, document)
    output.result(crash_report.as_text(evidence, verdict, findings, ignores, bound.name_of, again, depth))
    output.document(document)
    return crash_report.EXIT_CODES[verdict.verdict]


def _asked(request: Request) -> str:
    recorder = request.recorder.in_words
    return (
        f"run            {request.in_words()}, seed {request.seed}\n"
        f"settings       {in_short(request, request.settings)}"
        + (f"\nrecorder       {recorder}" if recorder else "")
    )


def _replay_command(folder: Path, verdict: CrashVerdict, request: Request) -> str:
    state = verdict.worst_state or (verdict.counted[-1] if verdict.counted else None)
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


def _replay(state: str, asked: Asked, output: Output) -> int:
    """Rebuild one state from log, position, model and seed, recover it and judge it again."""
    if asked.study is None:
        raise InvalidInput("--replay needs the folder of the run", where="--replay", hint="add --study DIR")
    planned = parse_any_state(state)
    with bound_to_recording(asked.study, asked, output.note) as found:
        lab, recording, request = found.lab, found.recording, found.request
        subject, wanted = request.subject(), request.contract
        came_from = origin(request, lab.data, recorder=recording.facts.recorder, models=[planned.group])
        crashes = [planned.first, planned.second] if isinstance(planned, DoubleState) else [planned]
        for crash in crashes:
            _refuse_without_control(crash, request)
        _refuse_outside(crashes[0], recording)
        if isinstance(planned, DoubleState):
            _refuse_unrecorded(planned, recording)
        recovered = lab.recover(recording, subject, [planned])
        evidence = CrashEvidence(None, recording, recovered, found.controls, found.limits)
        [judged] = evidence.under(wanted).states
    judgement = judged.judgement
    if judgement.verdict is Verdict.HELD and judgement.acks == 0:
        judgement = Judgement.unknown("no write had been acknowledged before this position")
    output.result(f"contract       {wanted}: {wanted.in_words()}")
    output.result(_asked(request))
    for line in finding_lines(found.findings):
        output.result(line)
    if recording.struck is not None:
        output.result(f"fault          {recording.struck.in_words()}")
    if found.other_version:
        output.result(f"recorded       with {request.engine.name} {found.other_version}")
    output.result(
        f"state          {state}: {judgement.verdict.value} {' '.join(judgement.reasons)}\n"
        f"               {judgement.acks} acks, {judgement.decidable} decidable, {judgement.lost} lost, "
        f"window {judgement.loss_ms:.1f} ms{_first_lost(judgement, found)}"
    )
    if judged.aside:
        output.result(f"               it does not count: {crash_report.ASIDE[judged.aside]}")
    for line in [*judgement.evidence, *filter(None, [judgement.unknown_why])]:
        output.result(f"evidence       {line}")
    output.document(
        {
            "schema": 1,
            "provenance": came_from,
            "engine": request.engine.name,
            "recorded_version": recording.facts.engine_version,
            "contract": str(wanted),
            "fault": recording.struck.as_json() if recording.struck is not None else None,
            "state": state,
            "verdict": judgement.verdict.value,
            "aside": judged.aside,
            "reasons": list(judgement.reasons),
            "unknown_why": judgement.unknown_why,
            "acks": judgement.acks,
            "decidable": judgement.decidable,
            "lost": judgement.lost,
            "lost_writes": [_name(recording, row) for row in judgement.lost_indices],
            "loss_ms": judgement.loss_ms,
            "recovery_s": judged.recovery_s,
            "findings": [finding.as_dict() for finding in found.findings],
        }
    )
    return crash_report.EXIT_CODES[judgement.verdict]


def _refuse_changes(asked: Asked, own: Mapping[str, object]) -> None:
    """A state is judged as it was recorded: what would change the run changes nothing any more.

    ``own`` tells which of the command's own options are given.
    """
    options.refuse_foreign(asked, (asked.engine, *registry.kind(asked.engine).families))
    given = [*options.given(asked, REPLAY_TAKES), *(name for name, is_given in own.items() if is_given)]
    if given:
        raise InvalidInput(
            f"{' and '.join(given)} cannot change a run that is recorded already",
            where="--replay",
            hint="leave it out, or --replay to crash another run",
        )


def _refuse_without_control(planned: PlannedState, request: Request) -> None:
    """A model that has no controls for the engine, or none with the recorder, proves nothing of it."""
    known = request.models
    if planned.model not in known:
        raise InvalidInput(
            f"{planned.model} has no control for {request.engine.name}, so it can give no verdict",
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


def _refuse_unrecorded(planned: DoubleState, recording: Recording) -> None:
    """Which recoveries are recorded the run has decided; of one that is not believed nothing is known."""
    first, last = recovered_positions(recording, planned.first)
    if last and not first < planned.second.position <= last:
        raise InvalidInput(
            f"the recovery from {planned.first.id} lies at the positions {first + 1} to {last}",
            where=f"--replay {planned.id}",
            hint="crash.json lists the states that were judged",
        )


def _first_lost(judgement: Judgement, found: Reopened) -> str:
    lost = judgement.first_lost
    if lost is None:
        return ""
    return f", the first {found.name_of(lost)} (client {lost.client}, write {lost.sequence})"


def _name(recording: Recording, row: int) -> list[int]:
    history = recording.history
    return [int(history.client[row]), int(history.sequence[row])]


def parse_any_state(text: str) -> State:
    """Read a state, or two joined by `>`. Raises InvalidInput for anything else."""
    first, double, second = text.partition(">")
    return DoubleState(parse_state(first), parse_state(second)) if double else parse_state(first)


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
