"""What the user stated, what breaks the contract, and what no candidate can mend.

A candidate lies over the reference, so it inherits what the search does not touch. Where the reference's
own run broke the contract, and the catalogue names a stated setting for it, no trial after it can hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from knobs.finding import Finding
from tuner import static_check
from tuner.request import Request
from tuner.search.search_space import SearchSpace
from tuner.search.trial import TrialResult

SET_OVER_FILES = ("set-by-role", "set-by-alter-system")
"""The rules of findings about what is set where no candidate's file reaches."""
CRASHES = ("process-crash", "power-cut", "torn-page", "recovery")
"""The failures that a crash run shows; one that hides corruption may hold all the same."""


def inherited_break(
    request: Request, reference: Mapping[str, str], space: SearchSpace, result: TrialResult
) -> str:
    """Why no candidate can hold, after trial 0 was really BROKEN; empty where the search may mend it.

    ``result`` is trial 0. The settings named are stated by the user and outside of the search, and no
    value of a searched knob, by the catalogue, takes the weakness away.
    """
    if not result.broken:
        return ""
    beyond = _beyond_settings(request, result)
    if beyond:
        return (
            f"the reference broke the contract ({', '.join(result.reasons)}): {beyond}; every candidate "
            "inherits it"
        )
    stated = request.engine.stated(reference)
    culprits: dict[str, str] = {}
    for finding in static_check.breaking(request, reference):
        pinned = {
            name: request.catalogue.spelled(name, request.settings[name])
            for name in finding.settings
            if name in request.settings and name not in space.distributions
        }
        if finding.failure in CRASHES and pinned and not _is_mended(request, stated, space, finding):
            culprits |= pinned
    if not culprits:
        return ""
    return (
        f"the reference broke the contract ({', '.join(result.reasons)}) by "
        f"{', '.join(f'{name}={value}' for name, value in culprits.items())}, which you set and the search "
        "does not touch: every candidate inherits it"
    )


def _beyond_settings(request: Request, result: TrialResult) -> str:
    """What of the workload breaks the contract, whatever a candidate's configuration says; else ""."""
    loss = request.family.loses(request.workload)
    if loss:
        return loss
    sets = {each["setting"]: each["value"] for each in result.findings if each["rule"] in SET_OVER_FILES}
    breaking = {
        name
        for finding in request.kind.rules.breaking(request.catalogue, sets, request.contract)
        if finding.failure in CRASHES
        for name in finding.settings
    }
    culprits = {name: value for name, value in sets.items() if name in breaking}
    if not culprits:
        return ""
    named = ", ".join(f"{name}={value}" for name, value in culprits.items())
    return f"{named} is set by a role, a database or ALTER SYSTEM, over every configuration file"


def _is_mended(request: Request, stated: Mapping[str, str], space: SearchSpace, finding: Finding) -> bool:
    weakness = (finding.rule, finding.failure)
    return any(
        weakness
        not in {
            (other.rule, other.failure)
            for other in request.kind.rules.breaking(
                request.catalogue, {**stated, name: value}, request.contract
            )
        }
        for name, distribution in space.distributions.items()
        for value in _values(distribution)
    )


def _values(distribution: BaseDistribution) -> Iterator[str]:
    """Every choice of a choice, and both ends of a range: no weakness depends on a value between them."""
    if isinstance(distribution, CategoricalDistribution):
        yield from map(str, distribution.choices)
    elif isinstance(distribution, IntDistribution | FloatDistribution):
        yield from (str(distribution.low), str(distribution.high))
