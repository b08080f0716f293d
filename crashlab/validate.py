"""Crash-validating one configuration: measure and kill, record, crash at chosen positions, judge."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from crashlab.controls import Control, run_controls
from crashlab.judging.evidence import CrashEvidence
from crashlab.judging.judge import Budget, RecoveredState, recover_states
from crashlab.kill import KilledRun, MeasurePlan, measure_and_kill
from crashlab.models import MODELS
from crashlab.models.names import Metadata
from crashlab.recording.record import RecordPlan, record
from crashlab.recording.recorded import Recording
from crashlab.recording.recorder import Recorder
from crashlab.reopen import missing_after_reopen
from crashlab.states.double import DOUBLE, State
from crashlab.states.plan import PlannedState, plan_models
from crashlab.subject import Subject
from crashlab.twice import firsts_of, record_and_plan
from engines.scratch import Scratch
from knobs.contract import Contract

RECORDED_RECORDS_MAX = 2_000
WINDOWS_RECORDED = 4.0
EARLY = "flush@0.1,compact@0.2"
"""Under a window: what is provoked makes durable what was exposed, so the rest of the run is left alone."""

WARNED = "synced-posix"

Say = Callable[[str], None]


@dataclass(frozen=True)
class CrashPlan:
    """How deep to look: crash states by model, for how long (None: until they are done), the two runs' sizes,
    and how many states more are double."""

    states: dict[str, int]
    measure: MeasurePlan = field(default_factory=MeasurePlan)
    record: RecordPlan = field(default_factory=RecordPlan)
    time_s: float | None = None
    double: int = 0

    @property
    def total_states(self) -> int:
        return sum(self.states.values()) + self.double

    @property
    def budget(self) -> Budget | None:
        """The time for the states; one of each model is judged however long it takes."""
        return None if self.time_s is None else Budget(self.time_s, len(self.states))


def split_states(models: Collection[str], total: int, metadata: Metadata = "ordered") -> dict[str, int]:
    """Share a number of states among these models: a third for `cache`, the rest for power cuts.

    Where no more is asked of names than a journal keeps, a tenth is of `synced-posix`: what breaks there is
    told, and does not count. Of fewer states than models the last ones get none.
    """
    cuts = [name for name in models if MODELS[name].crash == "power-cut"]
    if metadata == "ordered":
        cuts = [name for name in cuts if MODELS[name].metadata == "ordered"]
    cache = max(1, total // 3)
    warnings = total // 10 if metadata == "ordered" and WARNED in models else 0
    each, more = divmod(total - cache - warnings, len(cuts))
    shares = {name: each + (number < more) for number, name in enumerate(cuts)}
    warned = {WARNED: warnings} if warnings else {}
    return {"cache": cache, **{name: share for name, share in shares.items() if share}, **warned}


@dataclass(frozen=True)
class Lab:
    """Where and with what the lab works: the recorder, scratch paths, and the data's parent folder."""

    recorder: Recorder
    scratch: Scratch
    data: Path
    say: Say = lambda _: None
    advance: Callable[[], None] = lambda: None

    def controls(self, subject: Subject, models: Sequence[str], seed: int) -> list[Control]:
        """The controls of the kill and of the models, run now."""
        return run_controls(subject, self.recorder, models, self.scratch, self.data, seed)

    def measure(
        self,
        subject: Subject,
        plan: MeasurePlan,
        seed: int,
        *,
        recover: bool = True,
        base: Path | None = None,
    ) -> KilledRun:
        """Measure and kill one run (crashlab/kill.py)."""
        return measure_and_kill(
            subject, plan, self.recorder, self.scratch, self.data, seed, recover=recover, base=base
        )

    def record(
        self, subject: Subject, contract: Contract, plan: RecordPlan, folder: Path, seed: int
    ) -> Recording:
        """Load a small base with the subject's settings and record one run from it into ``folder``."""
        small = _small(subject)
        work = self.scratch.folder(self.data, "base")
        try:
            small.workload.load(small.launch(work), work, seed)
            shortfall = missing_after_reopen(small, work / "db", self.scratch, self.data)
            paced = replace(_paced(plan, contract), notes=(shortfall,) if shortfall else ())
            return record(small, work / "db", folder, self.scratch, self.recorder, paced, seed, self.data)
        finally:
            self.scratch.remove(work)

    def recover(
        self,
        recording: Recording,
        subject: Subject,
        planned: Iterable[State],
        budget: Budget | None = None,
    ) -> list[RecoveredState]:
        """Rebuild and recover planned states of a recording, as many as the budget has time for."""
        return recover_states(
            recording, _small(subject), planned, self.scratch, self.data, self.advance, budget
        )

    def crash_again(
        self,
        recording: Recording,
        subject: Subject,
        contract: Contract,
        recovered: Sequence[RecoveredState],
        states: int,
        seed: int,
    ) -> list[RecoveredState]:
        """Crash the recoveries of some of these states, in so many double states in all; none
        where the contract holds in none of them."""
        firsts = firsts_of(recording, recovered, contract, states)
        if not firsts:
            return []
        models = list(dict.fromkeys(state.planned.model for state in recovered))
        planned = record_and_plan(
            recording,
            _small(subject),
            firsts,
            models,
            states,
            seed,
            self.scratch,
            self.recorder,
            self.data,
        )
        return self.recover(recording, subject, planned)


def validate(
    subject: Subject, contract: Contract, plan: CrashPlan, lab: Lab, folder: Path, seed: int
) -> CrashEvidence:
    """Everything that `duratune crash` does, into an existing run folder."""
    # First, because settings that an engine does not start with are told by it at once.
    lab.say(f"measuring for {plan.measure.measure_s:g} s, then SIGKILL while the load runs")
    killed = lab.measure(subject, plan.measure, seed)
    lab.say("controls: one lossy and one honest run for the kill and for each crash model")
    controls = lab.controls(subject, [*plan.states, *([DOUBLE] if plan.double else [])], seed)
    lab.say(f"recording {plan.record.operations} operations")
    recording = lab.record(subject, contract, plan.record, folder / "recording", seed)
    if plan.budget is None:
        planned = plan_all(recording, plan.states, seed)
        lab.say(f"recovering {len(planned)} crash states")
        states = lab.recover(recording, subject, planned)
    else:
        lab.say(f"recovering crash states for {plan.budget.time_s:g} s")
        states = lab.recover(recording, subject, plan_in_turn(recording, plan.states, seed), plan.budget)
    if plan.double:
        lab.say(f"crashing recoveries too, in {plan.double} of the states")
        states += lab.crash_again(recording, subject, contract, states, plan.double, seed)
    return CrashEvidence(killed, recording, states, controls)


def plan_all(recording: Recording, states: dict[str, int], seed: int) -> list[PlannedState]:
    """The planned states of every model; none where the log is not to be believed."""
    return list(plan_in_turn(recording, states, seed))


def plan_in_turn(recording: Recording, states: dict[str, int], seed: int) -> Iterator[PlannedState]:
    """The same, each planned when it is asked for."""
    return plan_models(recording.view, states, seed) if recording.believable else iter(())


def _small(subject: Subject) -> Subject:
    """The same subject on the recorded run's smaller data set."""
    return replace(subject, workload=subject.workload.at_most(RECORDED_RECORDS_MAX))


def _paced(plan: RecordPlan, contract: Contract) -> RecordPlan:
    """Under a window the load is paced to last several windows: a shorter one could not exceed it."""
    if contract.window_ms is None:
        return plan
    seconds = WINDOWS_RECORDED * contract.window_ms / 1_000.0
    deadline_s = max(plan.deadline_s, 2.0 * seconds)
    return replace(plan, target_per_s=plan.operations / seconds, provoke=EARLY, deadline_s=deadline_s)
