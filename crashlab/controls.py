"""Controls: runs whose verdict is known beforehand, on this machine, in this run.

For the kill and for each crash model one lossy control must come out BROKEN and one honest control
HELD, both under `strict`. A wrong control makes every verdict drawn from a write log UNKNOWN. They
are small and made deterministic: the lossy settings lose every write since the last flush, so no
lucky moment can save them.

Double crashes have a pair of their own, of one recorded recovery from the end of an honest run. The lossy one
is judged as if that recovery had synced nothing but the file that says where the next one begins (MANIFEST
and CURRENT, pg_control): what it points to is then gone. With every sync left out nothing of it would be left
in a `synced` state, which is then the first crash once more, and held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crashlab.judging.judge import RecoveredState, judge_states, recover_states
from crashlab.judging.verdict import Verdict, worst
from crashlab.kill import MeasurePlan, measure_and_kill
from crashlab.models import MODELS
from crashlab.recording.record import RecordPlan, record
from crashlab.recording.recorded import Recording
from crashlab.recording.recorder import Recorder
from crashlab.recording.recovery import RecordedRecovery, recorded_recovery
from crashlab.states.disk import SYNC_OF_A_FOLDER, SYNCS
from crashlab.states.double import DOUBLE, NOWHERE, DoubleState
from crashlab.states.plan import PlannedState
from crashlab.subject import Subject
from engines.scratch import Scratch
from knobs.contract import Contract
from knobs.errors import Undecided
from workloads import registry

STRICT = Contract("strict")
CONTROL_RECORDS = 200
CONTROL_THREADS = 4
CONTROL_PLAN = RecordPlan(operations=400, log_bytes=64 << 20, provoke="flush@0.5")
FORGETFUL_PLAN = replace(
    CONTROL_PLAN, provoke=",".join(f"flush@0.{tenth},compact@0.{tenth + 1}" for tenth in range(1, 9, 2))
)
"""So many new logs that their names matter: PostgreSQL makes some of them beforehand."""
CONTROL_MEASURE = MeasurePlan(warmup_s=0.1, measure_s=0.4, target_per_s=100.0)
"""Slow, so that a loaded machine, which takes its time between the cut and the last SIGKILL, writes nothing
meanwhile that would bring the newest acknowledgements to the file."""
KILL = "kill"
LOSSY_KILLS_MAX = 3
WANTED: Mapping[str, Verdict] = {"lossy": Verdict.BROKEN, "honest": Verdict.HELD}
FIRST_MODEL = "synced"
"""The model of both crashes in the controls of double ones."""
POINTING_ROLES = ("manifest", "current", "control")
"""Roles of the files that say where a recovery begins."""
TORN_MOMENTS = 3


@dataclass(frozen=True)
class Control:
    """One control: its name, the verdict that it must have, the one it had, and why if that is wrong."""

    name: str
    wanted: Verdict
    got: Verdict
    why: str = ""

    @property
    def right(self) -> bool:
        return self.got is self.wanted

    def as_json(self) -> dict[str, str]:
        """The control for a document, which holds it by its name."""
        return {"wanted": self.wanted.value, "got": self.got.value, "why": self.why}

    @staticmethod
    def parse(name: str, document: Mapping[str, str]) -> Control:
        """Read what `as_json` wrote. Raises KeyError and ValueError for anything else."""
        return Control(name, Verdict(document["wanted"]), Verdict(document["got"]), document["why"])

    @property
    def of_the_kill(self) -> bool:
        """Whether it is a control of the real SIGKILL, which needs no write log."""
        return self.name.startswith(f"{KILL}.")


def run_controls(
    subject: Subject, recorder: Recorder, models: Sequence[str], scratch: Scratch, parent: Path, seed: int
) -> list[Control]:
    """Run the kill's and the models' controls on the subject's engine, with its defaults; those of double
    crashes where DOUBLE is among the models.

    A control that does not come to its end has got UNKNOWN. Raises MachineLacks and InvalidInput as
    any run does: a missing driver or a full disk is no wrong control.
    """
    workload = registry.find(subject.engine.control_workload, subject.workload.watcher)
    recorder = recorder.plain
    small = Subject(subject.engine.plain(), workload.at_most(CONTROL_RECORDS), threads=CONTROL_THREADS)
    found = []
    kinds = subject.engine.controls
    for pick, wanted in WANTED.items():
        by_run: dict[tuple[tuple[tuple[str, str], ...], bool], list[str]] = {}
        for model in models:
            if model == DOUBLE and pick == "lossy":
                continue  # Both of its controls are of one honest run.
            kind = kinds[FIRST_MODEL if model == DOUBLE else model]
            settings = tuple(sorted(getattr(kind, pick).items()))
            forgets = pick == "lossy" and kind.forgets_folders
            by_run.setdefault((settings, forgets), []).append(model)
        for (settings, forgets), sharing in by_run.items():
            control = small.with_settings(dict(settings))
            got = _recorded(control, recorder, sharing, pick, scratch, parent, seed, forgets)
            found += [Control(name, WANTED[name.rpartition(".")[2]], *judged) for name, judged in got.items()]
        control = small.with_settings(getattr(kinds["cache"], pick))
        found.append(
            Control(f"{KILL}.{pick}", wanted, *_killed(control, wanted, recorder, scratch, parent, seed))
        )
    return sorted(found, key=lambda control: control.name)


def _recorded(
    subject: Subject,
    recorder: Recorder,
    models: Sequence[str],
    pick: str,
    scratch: Scratch,
    parent: Path,
    seed: int,
    forgets_folders: bool,
) -> dict[str, tuple[Verdict, str]]:
    """What each control came to, by its name: one recorded run, judged by each of the models at its end, in
    its middle, and where it must show.

    With ``forgets_folders`` it is judged as if it had never synced a folder.
    """
    folder = scratch.folder(parent, "control")
    names = {model: f"{model}.{pick}" for model in models if model != DOUBLE}
    doubles = [f"{DOUBLE}.{each}" for each in WANTED] if DOUBLE in models else []
    try:
        plan = FORGETFUL_PLAN if forgets_folders else CONTROL_PLAN
        loaded = folder / "load"
        loaded.mkdir()
        subject.workload.load(subject.launch(loaded), loaded, seed)
        recording = record(
            subject, loaded / "db", folder / "recording", scratch, recorder, plan, seed, parent
        )
        if forgets_folders:
            recording = recording.without(
                lambda each: bool(each.kind in SYNCS and each.flags & SYNC_OF_A_FOLDER)
            )
        planned = [state for model in names for state in _planned(recording, model, seed, forgets_folders)]
        recovered = recover_states(recording, subject, planned, scratch, folder)
        got = {
            name: _verdict_of(recording, [state for state in recovered if state.planned.model == model])
            for model, name in names.items()
        }
        return got | (_double(recording, subject, recorder, scratch, parent, seed) if doubles else {})
    except Undecided as error:
        return dict.fromkeys([*names.values(), *doubles], (Verdict.UNKNOWN, str(error)))
    finally:
        scratch.remove(folder)


def _verdict_of(recording: Recording, recovered: Sequence[RecoveredState]) -> tuple[Verdict, str]:
    """The worst verdict of these states under `strict`, and why it is not HELD."""
    judgements = [state.judgement for state in judge_states(recording, recovered, STRICT)]
    why = dict.fromkeys(
        judgement.unknown_why or ", ".join(judgement.reasons)
        for judgement in judgements
        if judgement.verdict is not Verdict.HELD
    )
    return worst(judgement.verdict for judgement in judgements), "; ".join(why)


def _double(
    recording: Recording, subject: Subject, recorder: Recorder, scratch: Scratch, parent: Path, seed: int
) -> dict[str, tuple[Verdict, str]]:
    """What both controls of double crashes came to: of one recovery from the end of an honest run."""
    first = PlannedState(FIRST_MODEL, recording.timeline.last_position, seed, "exposure", "control")
    with recorded_recovery(recording, subject, first, scratch, recorder, parent) as log:
        end = log.disk.last_position + 1 if log.believable else NOWHERE.position
    planned = [DoubleState(first, PlannedState(FIRST_MODEL, end, seed, "recovery", "control"))]

    def judged(again: Callable[[RecordedRecovery], RecordedRecovery]) -> tuple[Verdict, str]:
        recovered = recover_states(recording, subject, planned, scratch, parent, again=again)
        return _verdict_of(recording, recovered)

    return {f"{DOUBLE}.lossy": judged(_unsynced), f"{DOUBLE}.honest": judged(lambda log: log)}


def _unsynced(log: RecordedRecovery) -> RecordedRecovery:
    """The recovery as if it had synced no file but those that the next one begins with."""
    return log.without(
        lambda each: (
            each.kind in SYNCS
            and not each.flags & SYNC_OF_A_FOLDER
            and log.role_of(each) not in POINTING_ROLES
        )
    )


def _planned(recording: Recording, model: str, seed: int, forgets_folders: bool) -> list[PlannedState]:
    """The middle and the end of the run, and where a model must show what it sees.

    That is where acknowledged writes stood exposed longest to the crash of the model; for a model that tears
    writes, where most writes to data files were unsynced; and where names are forgotten, moments of the
    second half, when logs are written that the base has not.
    """
    chosen = MODELS[model]
    last = recording.timeline.last_position
    moments = [(recording.facts.first_position + last) // 2, last]
    if forgets_folders:
        moments += [last - (last - recording.facts.first_position) * eighth // 8 for eighth in range(1, 4)]
    elif chosen.tears:
        moments += [position for position, _ in recording.view.unsynced[:TORN_MOMENTS]]
    else:
        peaks = recording.audit.peaks(recording.timeline, 1, chosen.crash)
        moments += [peak.position for peak in peaks]
    return [
        PlannedState(model, position, chosen.telling_seeds(position, seed)[0], "exposure", "control")
        for position in dict.fromkeys(moments)
    ]


def _killed(
    subject: Subject, wanted: Verdict, recorder: Recorder, scratch: Scratch, parent: Path, seed: int
) -> tuple[Verdict, str]:
    """The kill; a lossy one again if it lost nothing, because a single one may be lucky."""
    got = Verdict.UNKNOWN, ""
    for attempt in range(LOSSY_KILLS_MAX if wanted is Verdict.BROKEN else 1):
        try:
            run = measure_and_kill(subject, CONTROL_MEASURE, recorder, scratch, parent, seed + attempt)
            judgement = run.judge(STRICT)
            got = judgement.verdict, judgement.unknown_why or ", ".join(judgement.reasons)
        except Undecided as error:
            got = Verdict.UNKNOWN, str(error)
        if got[0] is wanted:
            break
    return got


def unknown_because(controls: Sequence[Control]) -> str:
    """Why verdicts drawn from a write log are UNKNOWN; "" if controls were run and every one is right.

    Controls that share a run are wrong for one reason, which is told once, behind all of them.
    """
    if not controls:
        return "no control was run"
    by_why: dict[str, dict[tuple[Verdict, Verdict], list[str]]] = {}
    for control in controls:
        if not control.right:
            alike = by_why.setdefault(control.why, {})
            alike.setdefault((control.got, control.wanted), []).append(control.name)
    return "; ".join(
        ", ".join(_wrong(names, *verdicts) for verdicts, names in alike.items())
        + (f" ({why})" if why else "")
        for why, alike in by_why.items()
    )


def _wrong(names: Sequence[str], got: Verdict, wanted: Verdict) -> str:
    if len(names) == 1:
        return f"control {names[0]} is {got.value} where it must be {wanted.value}"
    return f"controls {', '.join(names)} are {got.value} where they must be {wanted.value}"
