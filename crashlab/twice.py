"""Double crashes of one recorded run: some states that it held are recovered under the recorder, and crashed
once more while they are."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from crashlab.judging.judge import RecoveredState, judge_states
from crashlab.judging.verdict import Verdict
from crashlab.recording.recorded import Recording
from crashlab.recording.recorder import Recorder
from crashlab.recording.recovery import recorded_recovery
from crashlab.states.double import NOWHERE, DoubleState, choose_firsts, plan_seconds
from crashlab.states.plan import PlannedState
from crashlab.subject import Subject
from crashlab.workers import shared_out
from engines.scratch import Scratch
from knobs.contract import Contract


def firsts_of(
    recording: Recording, recovered: Sequence[RecoveredState], contract: Contract, states: int
) -> list[PlannedState]:
    """Which of the recovered states to crash again for so many double ones: of those that the contract holds
    in. None where it holds in none, which is a verdict already."""
    judged = judge_states(recording, recovered, contract)
    held = [
        (made.planned, made.log_bytes)
        for made, state in zip(recovered, judged, strict=True)
        if isinstance(made.planned, PlannedState) and state.judgement.verdict is Verdict.HELD
    ]
    return choose_firsts(held, states)


def record_and_plan(
    recording: Recording,
    subject: Subject,
    firsts: Sequence[PlannedState],
    models: Sequence[str],
    states: int,
    seed: int,
    scratch: Scratch,
    recorder: Recorder,
    parent: Path,
) -> list[DoubleState]:
    """Record the recovery of each first state into the recording's folder, and choose so many double states
    of them all together.

    Of a recovery whose log is not believed there is one, which decides nothing.
    """
    is_given_up = threading.Event()
    each, more = divmod(states, len(firsts))

    def work(share: Sequence[tuple[int, PlannedState]], _: int) -> list[DoubleState]:
        planned = []
        for place, first in share:
            if is_given_up.is_set():
                break
            with recorded_recovery(recording, subject, first, scratch, recorder, parent) as log:
                seconds = [NOWHERE]
                if log.believable:
                    seconds = plan_seconds(log, models, each + (place < more), seed, place)
                planned += [DoubleState(first, second) for second in seconds]
        return planned

    planned = shared_out(list(enumerate(firsts)), work, is_given_up)
    return sorted(
        planned, key=lambda state: (state.position, state.first.id, state.second.position, state.id)
    )
