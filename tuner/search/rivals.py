"""What else the winner is measured against, beside the reference: configurations that people already run.

A rival is a proposer's own configuration over the engine's defaults, whole and as published: unlike a start
point of the search it keeps the values that the search leaves alone. It is measured and not crashed; as a
trial it has a verdict of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crashlab.validate import Lab
from knobs.errors import InvalidInput, Undecided
from tuner.output import Output
from tuner.request import Request, host_limits
from tuner.search.confirmation import PairedRound, interval_of, paired_rounds
from tuner.search.interval import METHOD, RatioInterval
from tuner.search.study_plan import StudyPlan


@dataclass(frozen=True)
class Rival:
    """A proposer's configuration, whole."""

    proposer: str
    settings: Mapping[str, str]
    reason: str
    source: str


@dataclass(frozen=True)
class RivalClaim:
    """The winner against one rival; ``why`` tells why there is no interval."""

    rival: Rival
    rounds: Sequence[PairedRound] = ()
    interval: RatioInterval | None = None
    why: str = ""

    def in_words(self) -> str:
        """The claim as one line."""
        if self.interval is None:
            return f"not measured: {self.why}"
        return f"{self.interval}: the winner is {self.interval.in_words} ({METHOD})"

    def as_json(self) -> dict[str, Any]:
        """The claim for the `tune` document."""
        interval = self.interval
        figures = (
            {}
            if interval is None
            else {
                "ratio": interval.ratio,
                "low": interval.low,
                "high": interval.high,
                "better": interval.better,
                "claim": interval.in_words,
            }
        )
        return {
            "proposer": self.rival.proposer,
            "settings": dict(self.rival.settings),
            "reason": self.rival.reason,
            "source": self.rival.source,
            **figures,
            "rounds": [vars(paired) for paired in self.rounds],
            "method": METHOD,
            "why": self.why,
        }


def rivals_of(request: Request) -> list[Rival]:
    """The first start point of each proposer that is a rival, over the engine's defaults."""
    search, catalogue = request.kind.search, request.catalogue
    defaults = request.engine.reference_settings(request.contract)
    found = []
    for proposer in search.proposers(catalogue):
        if proposer.name in search.rivals:
            point = proposer.start_points(host_limits())[0]
            settings = {name: catalogue.normalise(name, value) for name, value in point.settings.items()}
            found.append(Rival(proposer.name, {**defaults, **settings}, point.reason, point.source))
    return found


def measured_against(
    rivals: Sequence[Rival],
    winner: Mapping[str, str],
    request: Request,
    plan: StudyPlan,
    lab: Lab,
    output: Output,
) -> list[RivalClaim]:
    """The winner's settings and each rival's in paired rounds. A rival that does not run has no interval."""
    found = []
    for rival in rivals:
        if dict(rival.settings) == dict(winner):
            found.append(RivalClaim(rival, why="it is the winner itself"))
            continue
        count = plan.confirmation_rounds
        output.note(f"measuring the winner against {rival.proposer} in {count} paired rounds")
        try:
            rounds = paired_rounds(
                lab,
                request.subject(winner),
                request.subject(rival.settings),
                plan.trial.measure,
                count,
                request.seed,
            )
        except (InvalidInput, Undecided) as error:
            found.append(RivalClaim(rival, why=str(error)))
        else:
            found.append(RivalClaim(rival, rounds, interval_of(rounds, request.seed)))
    return found
