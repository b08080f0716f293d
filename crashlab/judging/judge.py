"""Crash states rebuilt, recovered by the real engine, and judged.

Recovering and judging are apart: a state is recovered once and may then be judged under any
contract. It is recovered with the candidate's settings and read as the application would see it,
then opened once more with neutral settings, because a candidate's own may hide damage; the worse of
the two views counts. An exception inside a judgement is UNKNOWN, never HELD.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
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

    ``log_bytes`` is what recovery replayed where the engine tells it, else what the logs held.
    """

    planned: State
    recovered: Recovered | None
    failure: str = ""
    log_bytes: int = 0


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

    @property
    def crash(self) -> CrashKind:
        return self.planned.crash


def recover_states(
    recording: Recording,
    subject: Subject,
    planned: Sequence[State],
    scratch: Scratch,
    parent: Path,
    advance: Callable[[], None] = lambda: None,
    again: Callable[[RecordedRecovery], RecordedRecovery] = lambda log: log,
) -> list[RecoveredState]:
    """Rebuild and recover every planned state, `workers_at_most` at a time.

    ``parent`` takes the scratch folder, unless the engine's states are built in memory and there is room. The
    recoveries of double states are recorded already (crashlab/recording/recovery.py, which raises where they
    are not); ``again`` says as what their logs are taken: a control plants a fault by it.
    """
    base = recording.base
    base_bytes = sum(path.stat().st_size for path in base.rglob("*") if path.is_file())
    firsts = {state.first for state in planned if isinstance(state, DoubleState)}
    needed = (workers_at_most() + len(firsts)) * (base_bytes + recording.facts.log_bytes)
    work = scratch.folder(place_for(subject, needed, parent), "states")
    if subject.engine.runs_as is not None:
        work.chmod(0o711)
    try:
        return _Recoverer(recording, subject, work, advance, again).recover(planned)
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
        self._builder = Builder(recording, work / "pool")

    def recover(self, planned: Sequence[State]) -> list[RecoveredState]:
        tasks = self._tasks(planned)
        found = {state.planned.id: state for state in shared_out(tasks, self._worker, self._is_given_up)}
        return [found[state.id] for state in planned]

    def _tasks(self, planned: Sequence[State]) -> list[_Task]:
        """The states in order of what builds them: the run's log, and that of each first one's recovery."""
        singles = [
            _Task(state, "", self._builder, state) for state in planned if isinstance(state, PlannedState)
        ]
        doubles = [state for state in planned if isinstance(state, DoubleState)]
        for number, first in enumerate(dict.fromkeys(state.first for state in doubles)):
            builder, failure = self._of_recovery(first, self._work / f"first-{number}")
            singles += [
                _Task(state, first.id, builder, state.second, failure)
                for state in doubles
                if state.first == first
            ]
        return singles

    def _of_recovery(self, first: PlannedState, folder: Path) -> tuple[Builder | None, str]:
        """What builds states of the recovery from a first one; or why its log decides nothing."""
        base = self._builder.build(first, folder).database
        recovery = self._again(RecordedRecovery(self._recording, first, base))
        if not recovery.believable:
            return None, f"the recovery from {first.id}: {recovery.disbelief}"
        return Builder(recovery, folder / "pool", base_is_touched=True), ""

    def _worker(self, tasks: Sequence[_Task], number: int) -> list[RecoveredState]:
        folder = self._work / f"worker-{number}"
        folder.mkdir()
        states, target, source = [], folder / "state", ""
        with self._subject.workload.verifier(folder) as verifier:
            for task in tasks:
                if self._is_given_up.is_set():
                    break
                if task.source != source:
                    # What another builder has made is not to be made over.
                    remove_tree(target)
                    source = task.source
                states.append(self._recovered(verifier, task, folder, target))
                self._advance()
        remove_tree(target)
        return states

    def _recovered(self, verifier: Verifier[Any], task: _Task, folder: Path, target: Path) -> RecoveredState:
        if task.builder is None:
            return RecoveredState(task.state, None, task.failure)
        log_bytes = 0

        def attempt() -> Recovered:
            """Build the state anew, over the one before, and recover it."""
            nonlocal log_bytes
            assert task.builder is not None, "what cannot be built is not tried"
            try:
                with task.builder.built(task.built_as, target) as built:
                    log_bytes = built.log_bytes
                    launch = self._subject.launch(folder).at(built.database)
                    return verifier.verify(launch, RECOVERY_DEADLINE_S, is_touched=built.is_touched)
            except NotMounted as error:
                return not_recovered("mount", str(error))

        try:
            recovered = recover_patiently(attempt)
            if recovered.redo is not None:
                log_bytes = recovered.redo.log_bytes
            return RecoveredState(task.state, recovered, lack_of_room(recovered, folder), log_bytes)
        except Exception as error:  # an exception inside a judgement is UNKNOWN, with its words kept
            # What is left of it is not to be made over: something may still be at work there.
            remove_tree(target)
            return RecoveredState(task.state, None, f"{type(error).__name__}: {error}")


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
        return JudgedState(planned, Judgement.unknown(recording.disbelief), 0.0)
    if state.recovered is None or state.failure:
        return JudgedState(planned, Judgement.unknown(state.failure), 0.0)
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
    return JudgedState(planned, judgement, state.recovered.recovery_s, against_audit, state.recovered.checks)


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
