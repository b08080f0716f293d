"""What a HELD was of: how many states of which model, and what they bound (statistics of uniform moments)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crashlab.judging.evidence import ModelSummary
from crashlab.states.double import DOUBLE

BOUND_STATES_MIN = 5
"""Uniform states of a model below which the 95 % bound, 1 - 0.05 ** (1 / n), is over 45 %."""


@dataclass(frozen=True)
class Depth:
    """How many crash states were asked for, and for how many seconds (None: without that limit), and how many
    the models' shares come to."""

    states: int | None
    time_s: float | None
    planned: int


def spread(models: Mapping[str, ModelSummary], depth: Depth | None = None) -> str:
    """How many states were judged, and of which models: `8 judged: cache 2, synced 6`; where their time was
    limited, also of how many that were wanted: `8 of 30 judged in 5 s`."""
    total = sum(model.states for model in models.values())
    shares = ", ".join(f"{name} {model.states}" for name, model in models.items())
    of = within = ""
    if depth is not None and depth.time_s is not None:
        of = "" if depth.states is None else f" of {depth.planned}"
        within = f" in {depth.time_s:g} s"
    return f"{total}{of} judged{within}" + (f": {shares}" if shares else "")


def bound_lines(models: Mapping[str, ModelSummary], *, held: bool) -> list[str]:
    """For each model how large a share of the moments may still break the contract, where that says
    something; where the verdict is HELD also of which models there were too few states for it. Double crashes
    are all aimed, and bound nothing."""
    lines, few = [], []
    for name, model in models.items():
        if model.broken_share_max is not None and model.uniform >= BOUND_STATES_MIN:
            lines.append(
                f"               {name}: all {model.uniform} states at moments drawn uniformly in time held; "
                f"at most {100 * model.broken_share_max:.0f} % of the moments of such a run break it (95 %)"
            )
        elif held and model.aside < model.states and name != DOUBLE:
            few.append(f"{name} {model.uniform}")
    if few:
        lines.append(
            "               no bound: too few states at moments drawn uniformly in time "
            f"({', '.join(few)}; it takes {BOUND_STATES_MIN} of a model)"
        )
    return lines
