"""Subjects measured in turn, round after round, so that what drifts on the machine hits all alike.

Nothing is judged here: a run is measured and killed, and what it leaves is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crashlab.kill import MeasurePlan
from crashlab.subject import Subject
from crashlab.validate import Lab


@dataclass(frozen=True)
class Measured:
    """What is kept of one run: the driver's own figures, and the settings in force as an OPTIONS text."""

    figures: dict[str, Any]
    effective: str

    @property
    def throughput_per_s(self) -> float:
        """Operations per second in the measured phase."""
        return float(self.figures["throughput_per_s"])


def interleaved(
    lab: Lab,
    subjects: Sequence[Subject],
    plan: MeasurePlan,
    rounds: int,
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> list[list[Measured]]:
    """For each round one run of each subject, in the order of ``subjects``.

    Every other round runs them in reverse, so that none is always first. Each is loaded once with its
    own settings, and every run clones that load. The runs of one round share a seed. Raises what
    ``Lab.measure`` does.
    """
    bases = [_loaded(lab, subject, seed) for subject in subjects]
    found = []
    for number in range(rounds):
        order = list(range(len(subjects)))
        measured = {}
        for index in order if number % 2 == 0 else reversed(order):
            run = lab.measure(subjects[index], plan, seed + number, recover=False, base=bases[index] / "db")
            # The ledger's entries go: kept over all rounds they would be most of this process's memory.
            measured[index] = Measured(dict(run.measured), run.effective)
        found.append([measured[index] for index in order])
        advance()
    for base in bases:
        lab.scratch.remove(base)
    return found


def _loaded(lab: Lab, subject: Subject, seed: int) -> Path:
    base = lab.scratch.folder(lab.data, "base")
    subject.workload.load(subject.launch(base), base, seed)
    return base
