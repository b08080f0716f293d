"""Who won, and by how much: a play-off of the best few, then the claim against the reference.

The search measures each candidate once, so the best of many is partly the luckiest. The play-off
measures the best few again, side by side with the reference, and only chooses. The claim comes from
paired rounds that nothing was chosen by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crashlab.kill import MeasurePlan
from crashlab.subject import Subject
from crashlab.validate import Lab
from knobs.errors import Undecided
from tuner.search.interleaved import Measured, interleaved
from tuner.search.interval import RatioInterval, ratio_interval


@dataclass(frozen=True)
class PairedRound:
    """One round: both were measured, one right after the other."""

    candidate_per_s: float
    reference_per_s: float

    @property
    def ratio(self) -> float:
        return self.candidate_per_s / self.reference_per_s


def paired_rounds(
    lab: Lab,
    candidate: Subject,
    reference: Subject,
    plan: MeasurePlan,
    rounds: int,
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> list[PairedRound]:
    """Measure the two in turn; which goes first alternates, so that a drift favours neither.

    Raises Undecided where a run did nothing, and what ``Lab.measure`` does.
    """
    return [
        PairedRound(*map(_rate, measured))
        for measured in interleaved(lab, [candidate, reference], plan, rounds, seed, advance)
    ]


def play_off(
    lab: Lab, finalists: Sequence[Subject], reference: Subject, plan: MeasurePlan, rounds: int, seed: int
) -> list[float]:
    """Each finalist's ratio to the reference: the geometric mean over the rounds.

    Raises Undecided where a run did nothing, and what ``Lab.measure`` does.
    """
    found = [
        [_rate(one) for one in measured]
        for measured in interleaved(lab, [reference, *finalists], plan, rounds, seed)
    ]
    return [
        math.exp(sum(math.log(rates[place] / rates[0]) for rates in found) / len(found))
        for place in range(1, len(finalists) + 1)
    ]


def _rate(measured: Measured) -> float:
    if measured.throughput_per_s <= 0:
        raise Undecided(
            "no operation ended in a measured phase, so there is no ratio",
            where="confirmation",
            hint="measure longer: --measure 5; the same command resumes the study",
        )
    return measured.throughput_per_s


def interval_of(rounds: Sequence[PairedRound], seed: int) -> RatioInterval:
    """The interval of the rounds' ratios."""
    return ratio_interval([paired.ratio for paired in rounds], seed)
