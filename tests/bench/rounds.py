"""Things measured in turn: one round is one run of each, and every other round goes backwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Measure = Callable[[int], float]
"""Runs one thing once with a seed and returns its rate or its seconds."""


def in_turn(rounds: int, things: Mapping[str, Measure]) -> dict[str, list[float]]:
    """What each thing gave, one a round; the things of one round share a seed."""
    found: dict[str, list[float]] = {name: [] for name in things}
    for number in range(rounds):
        names = list(things) if number % 2 == 0 else list(reversed(list(things)))
        for name in names:
            found[name].append(things[name](number + 1))
    return found
