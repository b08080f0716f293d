"""`duratune tune`: search for the fastest configuration that holds the contract."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from crashlab.judging.verdict import Verdict
from engines.lock import exclusive
from knobs.errors import InvalidInput, Undecided
from knobs.finding import Finding
from tuner import folders, options
from tuner.kinds import registry
from tuner.kinds.family import Size
from tuner.options import Asked, takes_asked
from tuner.origin import origin
from tuner.output import Output
from tuner.recorders import RecorderChoice
from tuner.report import tune as tune_report
from tuner.report.findings import finding_lines
from tuner.report.settings import in_short
from tuner.request import Request, open_lab, resolve_asked
from tuner.search.search_space import SearchSpace
from tuner.search.study import StudyFolder
from tuner.search.study_plan import StudyPlan, default_trial_plan
from tuner.search.trial import REJECTED
from tuner.search.tuning import (
    StudyOutcome,
    Tuning,
    reference_settings,
    refuse_too_short,
    search_space,
)
from tuner.static_check import predicted

SIZE = Size(records=50_000, scale=10)
TIME_S = 300.0


@takes_asked
def command(
    asked: Asked,
    trials: Annotated[
        int | None,
        typer.Option("--trials", min=1, help="Trials, the reference included; default: what fits --time."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", metavar="T", help="The whole study's time, as 300s, 5min or 1h; default 5min."
        ),
    ] = None,
    measure: Annotated[
        float, typer.Option("--measure", min=0.2, help="Seconds of one measured phase.")
    ] = 2.0,
    fix: Annotated[
        list[str] | None,
        typer.Option("--fix", metavar="NAME=VALUE", help="Set it everywhere and do not search it."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="PATTERN", help="Search only the knobs that match.")
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="PATTERN", help="Do not search the knobs that match."),
    ] = None,
    metadata: options.MetadataRule = "ordered",
    strict_model: options.StrictModel = False,
    recorder: options.RecordedBy = "preload",
    file_system: options.DiskFileSystem = None,
    mount_options: options.MountOptions = None,
    audit_only: Annotated[
        bool,
        typer.Option(
            "--audit-only", help="Search for speed alone, durability knobs included, and crash what wins."
        ),
    ] = False,
) -> int:
    """Search for the fastest configuration whose acknowledged writes survive.

    The same command resumes a study that was stopped. A candidate wins only if it is proven faster; else
    the reference does, if it holds. Exit code 0: there is a winner; 1: nothing holds; 4: the controls
    failed, or nothing was decided.
    """
    output = Output(json=asked.json, quiet=asked.quiet)
    fixed = fix or []
    fixes = registry.kind(asked.engine).parse(asked, fixed, "--fix")
    request = replace(
        resolve_asked(replace(asked, sets=[*(asked.sets or []), *fixed]), SIZE),
        metadata=metadata,
        strict_model=strict_model,
        recorder=RecorderChoice.of(recorder, file_system, mount_options, metadata),
    )
    if request.idle:
        raise InvalidInput(
            f"{request.idle}, and there is nothing to judge a candidate by",
            where="--workload",
            hint="duratune bench --vs measures configurations under it",
        )
    if request.unheld:
        raise Undecided(
            f"no candidate could win: {request.unheld}",
            where=f"{asked.engine} {request.engine.version()}",
            hint="name a newer one's programs with --bindir",
        )
    plan = StudyPlan(
        trials=trials,
        time_s=options.seconds(time) if time is not None else (None if trials is not None else TIME_S),
        audit_only=audit_only,
        only=tuple(only or ()),
        exclude=(*(exclude or ()), *fixes),
        trial=default_trial_plan(measure, request.target_per_s, request.states, request.kind.recorded),
        state_s=request.kind.state_s,
        trial_share=request.kind.trial_share,
        rivals=len(request.kind.search.rivals),
    )
    # What cannot be searched, or not in this time, is told before a folder is made for it.
    space = search_space(request, plan, reference_settings(request))
    wanted, folder = _study_folder(request, plan, asked.study)
    refuse_too_short(plan, len(folder.results()))
    folders.make(folder.folder)
    if asked.study is not None and folder.folder != wanted:
        output.note(f"the study in {wanted} is finished and kept; this one is {folder.folder}")
    with exclusive(folder.folder), folders.kept_with(folder.folder, "study.db", "trial-*"):
        stored = folder.open(_description(request, plan, space))
        return _tune(request.with_seed(int(stored["seed"])), plan, folder, asked.data, output)


def _study_folder(request: Request, plan: StudyPlan, study: Path | None) -> tuple[Path, StudyFolder]:
    """The folder that was named, or the default's, and the one to use: an unfinished study goes on, a
    finished one is kept."""
    prefix = "audit-" if plan.audit_only else ""
    name = folders.default_name(request.engine.name, request.workload.name, request.contract, prefix)
    wanted = study or folders.RESULTS / name
    candidate, number = wanted, 2
    while StudyFolder(candidate).finished:
        candidate = wanted.with_name(f"{wanted.name}-{number}")
        number += 1
    StudyFolder(candidate).refuse_foreign()
    return wanted, StudyFolder(candidate)


def _description(request: Request, plan: StudyPlan, space: SearchSpace) -> dict[str, object]:
    return {
        "schema": 1,
        "engine": request.engine.name,
        "contract": str(request.contract),
        **({"judging": request.judging_options} if request.judging_options else {}),
        "workload": request.workload.name,
        "properties": dict(request.described().stated),
        "clients": request.clients,
        **({"target_per_s": request.target_per_s} if request.target_per_s else {}),
        **request.engine.parameters,
        "settings": dict(request.settings),
        "sources": list(request.sources),
        "audit_only": plan.audit_only,
        "only": list(plan.only),
        "exclude": list(plan.exclude),
        # They may depend on the host, and Optuna takes no others in one study.
        "choices": space.choices,
        "measure_s": plan.trial.measure.measure_s,
        "seed": request.seed,
    }


def _tune(request: Request, plan: StudyPlan, folder: StudyFolder, data: Path | None, output: Output) -> int:
    reference = reference_settings(request)
    output.result(f"contract       {request.contract}: {request.contract.in_words()}")
    output.result(_asked(request, reference, plan))
    findings = [*request.findings, *_assumed(request, reference), *predicted(request, reference)]
    for line in finding_lines(findings):
        output.result(line)
    for note in request.notes:
        output.note(note)
    with open_lab(request, folder.folder, data, say=output.note) as (lab, bound, _):
        came_from = origin(bound, lab.data, recorder=lab.recorder.name, models=bound.models)
        outcome = Tuning(bound, plan, folder, lab, output).run()
    if outcome.winner is not None:
        tune_report.write_winner(request, folder.folder, outcome.winner.trial)
    document = tune_report.as_json(request, plan, folder.folder, reference, outcome, came_from, findings)
    text = tune_report.as_text(request, plan, folder.folder, reference, outcome)
    (folder.folder / "report.txt").write_text(text + "\n", encoding="utf-8")
    folder.finish(document)
    output.result(text)
    output.document(document)
    return _exit_code(plan, outcome)


def _exit_code(plan: StudyPlan, outcome: StudyOutcome) -> int:
    """0 where there is a winner, 4 where nothing was judged or only the reference was not, else 1."""
    if _something_held(plan, outcome):
        return 0
    if not plan.audit_only and outcome.unproven is not None and not outcome.reference_broke:
        return Undecided.exit_code
    judged = [*outcome.results, *outcome.refused_at_last]
    undecided = (Verdict.UNKNOWN.value, REJECTED)
    return Undecided.exit_code if all(one.verdict in undecided for one in judged) else 1


def _something_held(plan: StudyPlan, outcome: StudyOutcome) -> bool:
    """A search needs a winner that held on its fresh run; an audit crowns none."""
    return any(result.held for result in outcome.results) if plan.audit_only else outcome.winner is not None


def _assumed(request: Request, reference: dict[str, str]) -> list[Finding]:
    """What a CONFIG cannot state and the contract needs."""
    if not request.settings:
        return []
    return [
        Finding(
            "assumed",
            name,
            value,
            "",
            "nothing",
            f"CONFIG does not say it, and {request.contract} needs it from the application",
            request.kind.beyond_files,
        )
        for name, value in reference.items()
        if name not in request.settings
    ]


def _asked(request: Request, reference: dict[str, str], plan: StudyPlan) -> str:
    proposers = ", ".join(one.name for one in request.kind.search.proposers(request.catalogue))
    mode = "speed alone (--audit-only)" if plan.audit_only else "what holds the contract"
    return (
        f"run            {request.in_words()}, seed {request.seed}\n"
        f"reference      {in_short(request, reference)}\n"
        f"search         {mode}; {proposers}, then Optuna TPE"
    )
