"""`torn`: a power cut that leaves what syncs cover, and of the rest some units of the disk.

The page cache is written back in any order and in pieces of the disk's own size, so a page of 8 KiB may
be half new. Each unit of an uncovered write survives or not, by a draw: how much of everything is kept
is drawn for the state (nothing, 1/16, half, 15/16, everything), for all files alike or for each anew; or
exactly one unit is lost, or exactly one kept. Of two writes to one unit the later survivor is what the
disk holds.

Names are a prefix of their history that reaches at least to the last sync that committed metadata, at
most to the position. Growth that no sync committed survives up to a drawn size between the committed
one and the end of the last survivor; what lies below it and was not written reads as before, or as zeros.
A space that was only allocated does not grow a file (measured on ext4).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from crashlab.judging.verdict import CrashKind
from crashlab.models.covering import changes_before, ended_before
from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import (
    Disk,
    File,
    Image,
    NameChange,
    Surviving,
    build_image,
    size_after,
    written_ranges,
)
from crashlab.states.horizon import Horizons

KEPT = (0.0, 1 / 16, 1 / 2, 15 / 16, 1.0)


@dataclass(frozen=True)
class _Unit:
    """One unit of one uncovered write, as a range of its file."""

    file: int
    operation: Operation
    begin: int
    end: int


@dataclass(frozen=True)
class TornModel:
    """Uncovered writes survive in units; ``unit_bytes`` is what the disk writes wholly or not at all."""

    name: str = "torn"
    unit_bytes: int = 4096
    crash: CrashKind = "power-cut"
    tears: bool = True

    def telling_seed(self, position: int, seed: int) -> int:
        """The first seed from this one on that keeps half of everything uncovered, wherever it lies."""
        return next(each for each in count(seed) if self._how(position, each) == ("alike", 1 / 2))

    def _how(self, position: int, seed: int) -> tuple[str, float]:
        """How survivors are drawn, and how much is kept of everything where that is so for all files."""
        draw = random.Random(f"{seed}/{position}/{self.unit_bytes}/how")
        return draw.choice(("alike", "alike", "each file", "one lost", "one kept")), draw.choice(KEPT)

    def image(self, disk: Disk, horizons: Horizons, position: int, seed: int) -> Image:
        draw = random.Random(f"{seed}/{position}/{self.unit_bytes}")
        committed = horizons.names.at(position)
        # Everything that changes names gets a moment of its own up to which the journal had come.
        journal = max(committed, draw.choice((committed, draw.randint(0, position), position)))
        durable = {
            file.number: list(changes_before(file, horizons, position, journal)) for file in disk.files
        }
        kept = _chosen(
            [
                unit
                for file in disk.files
                for change, is_durable in durable[file.number]
                if not is_durable and change.kind is Kind.WRITE
                for unit in self._units(file, change)
            ],
            *self._how(position, seed),
            draw,
        )
        growth = draw.random()

        def keeps_name(change: NameChange) -> bool:
            return ended_before(change.operation, journal)

        def survivors(file: File) -> tuple[Surviving, ...]:
            found = []
            for change, is_durable in durable[file.number]:
                ranges = kept.get(change.begin, ())
                if is_durable or ranges:
                    found.append(Surviving(change, None if is_durable else tuple(ranges)))
            return tuple(found)

        def size_max(file: File, surviving: Sequence[Surviving]) -> int | None:
            if not surviving:
                return None
            durable_size = _size(file, [each.operation for each in surviving if each.ranges is None])
            ends = [end for each in surviving if _writes(each) for _, end in written_ranges(each)]
            end = max(ends, default=0)
            if end <= durable_size:
                return None
            # Often wholly, else somewhere in between.
            return end if growth < 1 / 2 else durable_size + int((end - durable_size) * (2 * growth - 1))

        return build_image(disk, keeps_name, survivors, size_max)

    def _units(self, file: File, write: Operation) -> list[_Unit]:
        units = []
        for begin, end in written_ranges(Surviving(write)):
            while begin < end:
                border = min(end, begin - begin % self.unit_bytes + self.unit_bytes)
                units.append(_Unit(file.number, write, begin, border))
                begin = border
        return units


def _writes(survivor: Surviving) -> bool:
    return survivor.operation.kind is Kind.WRITE


def _chosen(
    units: Sequence[_Unit], how: str, share: float, draw: random.Random
) -> dict[int, list[tuple[int, int]]]:
    """The ranges that survive, by the begin of their write."""
    if how in ("one lost", "one kept") and units:
        single = draw.randrange(len(units))
        keeps = [(index == single) is (how == "one kept") for index in range(len(units))]
    else:
        shares = {file: draw.choice(KEPT) for file in sorted({unit.file for unit in units})}
        keeps = [draw.random() < (shares[unit.file] if how == "each file" else share) for unit in units]
    chosen: dict[int, list[tuple[int, int]]] = {}
    for unit, is_kept in zip(units, keeps, strict=True):
        if is_kept:
            chosen.setdefault(unit.operation.begin, []).append((unit.begin, unit.end))
    return chosen


def _size(file: File, changes: Sequence[Operation]) -> int:
    size = file.base.size if file.base else 0
    for change in changes:
        size = size_after(size, change)
    return size
