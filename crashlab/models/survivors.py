"""Which of the writes that no sync covers survive a power cut: by a draw, in pieces of a scope.

Drawn for the state: how far its names have come (no further than they must, to a moment that is drawn, or to
the position); how much is kept of everything (nothing, 1/16, half, 15/16, all), and in which pieces that
falls: single units of the disk, whole writes, all of a file, all files of a class such as the log or the
tables, or a share of units for each file anew. Or exactly one unit is lost, or exactly one kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from crashlab.recording.write_log import Operation

Scope = Literal["unit", "write", "file", "class", "each file", "one lost", "one kept"]
Reach = Literal["least", "drawn", "most"]
KEPT = (0.0, 1 / 16, 1 / 2, 15 / 16, 1.0)


@dataclass(frozen=True)
class Unit:
    """A range of a file that survives wholly or not at all: of one uncovered write."""

    file: int
    file_class: str
    operation: Operation
    begin: int
    end: int


@dataclass(frozen=True)
class How:
    """In which pieces writes survive, how much of everything is kept where pieces are drawn, and how far
    names have come."""

    scope: Scope
    share: float
    names: Reach


_PIECES: Mapping[Scope, Callable[[Unit], Hashable]] = {
    "unit": lambda unit: (unit.operation.begin, unit.begin),
    "write": lambda unit: unit.operation.begin,
    "file": lambda unit: unit.file,
    "class": lambda unit: unit.file_class,
}


def chosen(units: Sequence[Unit], how: How, draw: random.Random) -> dict[int, list[tuple[int, int]]]:
    """The ranges that survive, by the begin of their write."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for unit, is_kept in zip(units, _keeps(units, how, draw), strict=True):
        if is_kept:
            ranges.setdefault(unit.operation.begin, []).append((unit.begin, unit.end))
    return ranges


def _keeps(units: Sequence[Unit], how: How, draw: random.Random) -> list[bool]:
    if how.scope in ("one lost", "one kept"):
        single = draw.randrange(len(units)) if units else 0
        return [(number == single) is (how.scope == "one kept") for number in range(len(units))]
    if how.scope == "each file":
        shares = {file: draw.choice(KEPT) for file in sorted({unit.file for unit in units})}
        return [draw.random() < shares[unit.file] for unit in units]
    piece_of = _PIECES[how.scope]
    kept: dict[Hashable, bool] = {}
    for unit in units:
        piece = piece_of(unit)
        if piece not in kept:
            kept[piece] = draw.random() < how.share
    return [kept[piece_of(unit)] for unit in units]
