"""What one study does beside its request: how many trials, how long, over which knobs, how deep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from crashlab.kill import MeasurePlan
from crashlab.recording.record import RecordPlan
from crashlab.validate import split_states
from tuner.search.trial import TrialPlan

STATES_FEW, STATES_FULL = 6, 24
"""Crash states of every trial, and of one that would become the best."""


@dataclass(frozen=True)
class StudyPlan:
    """What one study does beside its request."""

    trials: int | None = None
    time_s: float | None = None
    audit_only: bool = False
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    trial: TrialPlan = field(default_factory=TrialPlan)
    finalists: int = 3
    play_off_rounds: int = 2
    confirmation_rounds: int = 8
    winner_states: int = 60
    state_s: float = 0.1
    """How long one crash state takes to be recovered and judged, about."""
    trial_share: float = 1.0
    """How long a trial's recording and few states take, about, in shares of the controls' time."""
    rivals: int = 0
    """How many configurations the winner is measured against beside the reference."""


def default_trial_plan(
    measure_s: float,
    target_per_s: float = 0.0,
    states: Callable[[int], dict[str, int]] = lambda total: split_states(("cache", "synced"), total),
    recorded: int = RecordPlan.operations,
) -> TrialPlan:
    """The usual trial with another length of its measured phase, in seconds, at this pace, so many recorded
    operations, and its states shared out by ``states``."""
    return TrialPlan(
        MeasurePlan(0.5, measure_s, target_per_s),
        RecordPlan(operations=recorded),
        few=states(STATES_FEW),
        full=states(STATES_FULL),
    )
