"""The final claim: the winner against the reference, paired and interleaved, with an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crashlab.kill import MeasurePlan
from crashlab.subject import Subject
from crashlab.validate import Lab
from tuner.interval import RatioInterval, ratio_interval


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

    Each is loaded once with its own settings, and every run clones that load.
    """
    bases = {}
    for name, subject in (("candidate", candidate), ("reference", reference)):
        bases[name] = lab.scratch.folder(lab.data, name)
        subject.workload.load(subject.launch(bases[name]), bases[name], seed)
    found = []
    for number in range(rounds):
        order = ("candidate", "reference") if number % 2 == 0 else ("reference", "candidate")
        measured = {}
        for name in order:
            subject = candidate if name == "candidate" else reference
            run = lab.measure(subject, plan, seed + number, recover=False, base=bases[name] / "db")
            measured[name] = run.throughput
        found.append(PairedRound(measured["candidate"], measured["reference"]))
        advance()
    for folder in bases.values():
        lab.scratch.remove(folder)
    return found


def interval_of(rounds: list[PairedRound], seed: int) -> RatioInterval:
    """The interval of the rounds' ratios."""
    return ratio_interval([paired.ratio for paired in rounds], seed)
