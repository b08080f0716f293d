"""Crash states rebuilt, recovered by the real engine, and judged.

Recovering and judging are apart: a state is recovered once and may then be judged under any
contract. States of one content are recovered once, and each is judged at its own position. A state is
recovered with the candidate's settings and read as the application would see it, then opened once more
with neutral settings, because a candidate's own may hide damage; the worse of the two views counts. An
exception inside a judgement is UNKNOWN, never HELD.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from crashlab.block.states import NotMounted
from crashlab.judging.audit import Disagreement, disagreement
from crashlab.judging.oracle import Cut, History, judge
from crashlab.judging.verdict import CrashKind, Judgement, Reason, Verdict, worst
from crashlab.recording.recorded import Recording
from crashlab.recording.recovery import RecordedRecovery
from crashlab.states.builder import Builder
from crashlab.states.double import DoubleState, State
from crashlab.states.plan import PlannedState
from crashlab.subject import Subject
from crashlab.workers import shared_out, workers_at_most
from engines.scratch import SHARED_MEMORY_FOLDER, Scratch, remove_tree
from knobs.contract import Contract
from workloads.workload import Recovered, Verifier, not_recovered

RECOVERY_DEADLINE_S = 60.0
COPIES_IN_MEMORY = 2
"""A state, and what recovery adds to it."""
FREE_BYTES_MIN = 64 << 20
"""With less room than this a failed recovery is laid to the disk, not to the state."""
_KILLED_FROM_OUTSIDE = "signal 9"
_LACKS_OF_THE_MACHINE = tuple(
    os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
)
"""What RocksDB's errors end with where the machine, not the state, stands in the way of a recovery."""


@dataclass(frozen=True)
class RecoveredState:
    """What the engine made of one planned state; ``failure`` where the lab could not tell.

    ``log_bytes`` is what recovery replayed where the engine tells it, else what the logs held. ``same_as`` is
    the state of the same content that comes before it, by its id, "" where none does.
    """

    planned: State
    recovered: Recovered | None
    failure: str = ""
    log_bytes: int = 0
    same_as: str = ""


Aside = Literal["", "posix", "engine-limit"]
"""Why a state says nothing of the configuration: nobody asked for its metadata rule, or what breaks in it the
engine's own safest settings do not survive."""


@dataclass(frozen=True)
class JudgedState:
    """One state's judgement, how it stands to the audit (`synced` states only), and why it does not count."""

    planned: State
    judgement: Judgement
    recovery_s: float
    disagreement: Disagreement | None = None
    checks: tuple[str, ...] = ()
    aside: Aside = ""
    same_as: str = ""

    @property
    def crash(self) -> CrashKind:
        return self.planned.crash


@dataclass(frozen=True)
class Budget:
    """The seconds in which states may be begun, and how many of the first are recovered all the same."""

    time_s: float
    states_at_least: int


def recover_states(
    recording: Recording,
    subject: Subject,
    planned: Iterable[State],
    scratch: Scratch,
    parent: Path,
    advance: Callable[[], None] = lambda: None,
    budget: Budget | None = None,
    again: Callable[[RecordedRecovery], RecordedRecovery] = lambda log: log,
) -> list[RecoveredState]:
    """Rebuild and recover the planned states in their order, `workers_at_most` at a time; with a budget those
    for which there is time. What is under way when the time is over is finished.

    ``parent`` takes the scratch folder, unless the engine's states are built in memory and there is room. The
    recoveries of double states are recorded already (crashlab/recording/recovery.py, which raises where they
    are not); ``again`` says as what their logs are taken: a control plants a fault by it.
    """
    base = recording.base
    base_bytes = sum(path.stat().st_size for path in base.rglob("*") if path.is_file())
    planned = planned if budget else list(planned)
    singles = planned if isinstance(planned, list) else ()
    firsts = {state.first for state in singles if isinstance(state, DoubleState)}
    needed = (workers_at_most() + len(firsts)) * (base_bytes + recording.facts.log_bytes)
    work = scratch.folder(place_for(subject, needed, parent), "states")
    if subject.engine.runs_as is not None:
        work.chmod(0o711)
    try:
        return _Recoverer(recording, subject, work, advance, again).recover(planned, budget)
    finally:
        scratch.remove(work)


def place_for(subject: Subject, needed_bytes: int, parent: Path) -> Path:
    """Where copies are recovered that nothing is timed of. Files are made and removed in memory in a tenth of
    the time that a disk takes, and what recovery makes of them is the same."""
    if not subject.engine.recovers_in_memory:
        return parent
    has_room = shutil.disk_usage(SHARED_MEMORY_FOLDER).free > COPIES_IN_MEMORY * needed_bytes
    return SHARED_MEMORY_FOLDER if has_room else parent


@dataclass(frozen=True)
class _Task:
    """One state to recover: what builds it, and as which state of that builder's log. ``failure`` where
    nothing can be built."""

    state: State
    source: str
    builder: Builder | None
    built_as: PlannedState
    failure: str = ""


class _Recoverer:
    def __init__(
        self,
        recording: Recording,
        subject: Subject,
        work: Path,
        advance: Callable[[], None],
        again: Callable[[RecordedRecovery], RecordedRecovery] = lambda log: log,
    ) -> None:
        self._recording = recording
        self._subject = subject
        self._work = work
        self._advance = advance
        self._again = again
        self._is_given_up = threading.Event()
        self._lock = threading.Lock()
        self._taken: list[_Task] = []
        self._alike: dict[tuple[str, bytes], list[int]] = {}
        self._builder = Builder(recording, work / "pool")

    def recover(self, planned: Iterable[State], budget: Budget | None = None) -> list[RecoveredState]:
        queue, ends_s = self._tasks(planned), time.monotonic() + (budget.time_s if budget else math.inf)
        least = budget.states_at_least if budget else 0

        def take() -> int | None:
            """The number of the next task; None where there is none, or no time for it."""
            with self._lock:
                is_late = time.monotonic() >= ends_s and len(self._taken) >= least
                task = None if is_late or self._is_given_up.is_set() else next(queue, None)
                if task is None:
                    return None
                self._taken.append(task)
                return len(self._taken) - 1

        def work(_: Sequence[int], worker: int) -> list[tuple[int, RecoveredState]]:
            return self._worker(take, worker)

        return self._told(dict(shared_out(range(workers_at_most()), work, self._is_given_up)))

    def _tasks(self, planned: Iterable[State]) -> Iterator[_Task]:
        """The states in their order, each with what builds it: the run's log, or that of the recovery from
        its first one."""
        recoveries: dict[str, tuple[Builder | None, str]] = {}
        for state in planned:
            if isinstance(state, PlannedState):
                yield _Task(state, "", self._builder, state)
                continue
            first = state.first
            if first.id not in recoveries:
                recoveries[first.id] = self._of_recovery(first, self._work / f"first-{len(recoveries)}")
            builder, failure = recoveries[first.id]
            yield _Task(state, first.id, builder, state.second, failure)

    def _of_recovery(self, first: PlannedState, folder: Path) -> tuple[Builder | None, str]:
        """What builds states of the recovery from a first one; or why its log decides nothing."""
        base = self._builder.build(first, folder).database
        recovery = self._again(RecordedRecovery(self._recording, first, base))
        if not recovery.believable:
            return None, f"the recovery from {first.id}: {recovery.disbelief}"
        return Builder(recovery, folder / "pool", base_is_touched=True), ""

    def _told(self, found: dict[int, RecoveredState]) -> list[RecoveredState]:
        """What was made of each state, in order: of those of one content by the one that was recovered."""
        for alike in self._alike.values():
            done = next(found[number] for number in alike if number in found)
            first = min(alike)
            for number in alike:
                same_as = "" if number == first else self._taken[first].state.id
                found[number] = replace(done, planned=self._taken[number].state, same_as=same_as)
        return [found[number] for number in range(len(self._taken))]

    def _worker(self, take: Callable[[], int | None], worker: int) -> list[tuple[int, RecoveredState]]:
        """What was made of the states that this worker took; those whose content another has are left out."""
        number = take()
        states: list[tuple[int, RecoveredState]] = []
        if number is None:
            return states
        folder = self._work / f"worker-{worker}"
        folder.mkdir()
        target, source = folder / "state", ""
        with self._subject.workload.verifier(folder) as verifier:
            while number is not None:
                task = self._taken[number]
                if task.source != source:
                    # What another builder has made is not to be made over.
                    remove_tree(target)
                    source = task.source
                made = self._recovered(verifier, task, number, folder, target)
                states += [] if made is None else [(number, made)]
                self._advance()
                number = take()
        remove_tree(target)
        return states

    def _recovered(
        self, verifier: Verifier[Any], task: _Task, number: int, folder: Path, target: Path
    ) -> RecoveredState | None:
        """What the engine made of the task's state; None where another one has the same content."""
        if task.builder is None:
            return RecoveredState(task.state, None, task.failure)
        builder, log_bytes = task.builder, 0

        def attempt() -> Recovered:
            """Build the state anew, over the one before, and recover it."""
            nonlocal log_bytes
            try:
                with builder.built(task.built_as, image, target) as built:
                    log_bytes = built.log_bytes
                    launch = self._subject.launch(folder).at(built.database)
                    return verifier.verify(launch, RECOVERY_DEADLINE_S, is_touched=built.is_touched)
            except NotMounted as error:
                return not_recovered("mount", str(error))

        try:
            image = builder.image(task.built_as)
            if not self._is_first(task.source, builder.content(task.built_as, image), number):
                return None
            recovered = recover_patiently(attempt)
            if recovered.redo is not None:
                log_bytes = recovered.redo.log_bytes
            return RecoveredState(task.state, recovered, lack_of_room(recovered, folder), log_bytes)
        except Exception as error:  # an exception inside a judgement is UNKNOWN, with its words kept
            # What is left of it is not to be made over: something may still be at work there.
            remove_tree(target)
            return RecoveredState(task.state, None, f"{type(error).__name__}: {error}")

    def _is_first(self, source: str, content: bytes, number: int) -> bool:
        """Whether no state of this content was taken before."""
        with self._lock:
            alike = self._alike.setdefault((source, content), [])
            alike.append(number)
            return len(alike) == 1


def recover_patiently(attempt: Callable[[], Recovered]) -> Recovered:
    """Recover, and once more from the same content where the deadline passed.

    The same content recovers the same way, so a second attempt that ends tells that the first was held
    up by the machine (seen once in 20,000 states, cause unknown). Two that do not end are a verdict.
    """
    first = attempt()
    return attempt() if first.is_late else first


def lack_of_room(recovered: Recovered, folder: Path) -> str:
    """Why a recovery that failed says nothing of the state: an engine may simply abort on a full disk."""
    free_bytes = shutil.disk_usage(folder).free
    if recovered.stage and free_bytes < FREE_BYTES_MIN:
        return f"the disk had {free_bytes} bytes free when {recovered.stage} failed: {recovered.error}"
    return ""


def judge_states(
    recording: Recording, states: Sequence[RecoveredState], contract: Contract
) -> Iterator[JudgedState]:
    """Judge recovered states of one recording under a contract. Pure but for what the recording reads."""
    for state in states:
        yield _judge_state(recording, state, contract)


def _judge_state(recording: Recording, state: RecoveredState, contract: Contract) -> JudgedState:
    planned = state.planned
    if not recording.believable:
        return JudgedState(planned, Judgement.unknown(recording.disbelief), 0.0, same_as=state.same_as)
    if state.recovered is None or state.failure:
        return JudgedState(planned, Judgement.unknown(state.failure), 0.0, same_as=state.same_as)
    cut = recording.cut(planned.position)
    judgement = judge_recovered(recording.history, state.recovered, cut, contract, planned.crash)
    against_audit = None
    if planned.model == "synced" and state.recovered.recovered:
        against_audit = disagreement(
            recording.audit, state.recovered.candidate, judgement.lost_indices, planned.position
        )
        # A file system on a disk of its own may have written more than was asked of it.
        if against_audit.survived and recording.device is None:
            judgement = Judgement.unknown(
                f"{against_audit.survived} writes survived that the audit calls exposed", judgement.acks
            )
    return JudgedState(
        planned,
        judgement,
        state.recovered.recovery_s,
        against_audit,
        state.recovered.checks,
        same_as=state.same_as,
    )


def judge_recovered(
    history: History, recovered: Recovered, cut: Cut, contract: Contract, crash: CrashKind
) -> Judgement:
    """Judge what the engine made of one crash: its failure to come back, and both views of its content."""
    if _KILLED_FROM_OUTSIDE in recovered.error:
        return Judgement.unknown(f"the verifying process was killed from outside during {recovered.stage}")
    if any(lack in recovered.error for lack in _LACKS_OF_THE_MACHINE):
        return Judgement.unknown(f"this machine lacks room to recover: {recovered.stage}: {recovered.error}")
    if not recovered.recovered:
        return _failed(history, cut, "unrecoverable", recovered)
    if recovered.stage == "neutral-open":
        return _failed(history, cut, "unrecoverable", recovered)
    views = {"as the candidate reads it": recovered.candidate, "with neutral settings": recovered.neutral}
    judgement = _worse(
        [
            _labelled(judge(history, rows, cut, contract, crash, recovered.base_rows_lost), name)
            for name, rows in views.items()
        ]
    )
    if judgement.lost or judgement.lost_initial:
        judgement = replace(judgement, evidence=(*recovered.notes, *judgement.evidence))
    if recovered.stage:
        judgement = with_reason(judgement, "corrupt", f"{recovered.stage}: {recovered.error}")
    if contract.recovery_s is not None and recovered.recovery_s > contract.recovery_s:
        judgement = with_reason(
            judgement,
            "slow-recovery",
            f"recovery took {recovered.recovery_s:.2f} s, the limit is {contract.recovery_s:g} s",
        )
    return judgement


def _failed(history: History, cut: Cut, reason: Reason, recovered: Recovered) -> Judgement:
    """Nothing can be read: every acknowledgement before the cut is lost with the database."""
    nothing = judge(history, recovered.candidate[:0], cut, Contract("strict"), "power-cut")
    return replace(
        nothing,
        verdict=Verdict.BROKEN,
        reasons=(reason,),
        evidence=(f"{recovered.stage}: {recovered.error}",),
    )


def _labelled(judgement: Judgement, view: str) -> Judgement:
    return replace(judgement, evidence=tuple(f"{line} ({view})" for line in judgement.evidence))


def _worse(judgements: Sequence[Judgement]) -> Judgement:
    """The view that lost more, with the reasons and evidence of both."""
    reasons: dict[Reason, None] = dict.fromkeys(
        reason for judgement in judgements for reason in judgement.reasons
    )
    evidence = dict.fromkeys(line for judgement in judgements for line in judgement.evidence)
    most = max(judgements, key=lambda judgement: (judgement.lost + judgement.lost_initial, judgement.loss_ms))
    return replace(
        most,
        verdict=worst(judgement.verdict for judgement in judgements),
        reasons=tuple(reasons),
        evidence=tuple(evidence),
    )


def with_reason(judgement: Judgement, reason: Reason, evidence: str) -> Judgement:
    """The judgement made BROKEN by one more reason."""
    return replace(
        judgement,
        verdict=Verdict.BROKEN,
        reasons=tuple(dict.fromkeys((*judgement.reasons, reason))),
        evidence=(*judgement.evidence, evidence),
    )
