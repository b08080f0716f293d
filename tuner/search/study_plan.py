"""What one study does beside its request: how many trials, how long, over which knobs, how deep."""

from __future__ import annotations

from dataclasses import dataclass, field

from crashlab.kill import MeasurePlan
from tuner.search.trial import TrialPlan


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


def default_trial_plan(measure_s: float, target_per_s: float = 0.0) -> TrialPlan:
    """The usual trial with another length of its measured phase, in seconds, and at this pace."""
    return TrialPlan(measure=MeasurePlan(0.5, measure_s, target_per_s))
