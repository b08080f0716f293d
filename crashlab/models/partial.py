"""`torn` and `reordered`: a power cut that leaves what syncs cover, and some of the rest.

The page cache is written back in any order and in pieces of the disk's own size. `reordered` keeps or loses
whole writes; `torn` units of the disk, so that a page of 8 KiB may be half new. Which of them survive is
drawn (survivors.py); of two writes to one unit the later survivor is what the disk holds.

Names survive as the metadata rule says (names.py). Growth that no sync committed survives up to a drawn size
between the committed one and the end of the last survivor; what lies below it and was not written reads as
before, or as zeros. Where the bytes behind the committed size are lost, zeros may stand in their place up to
the end of the block that was allocated already (measured on ext4: 300 bytes appended to 100 came back as 300
zeros, 9,000 to 4,000 as 96). A space that was only allocated does not grow a file (measured on ext4).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from crashlab.judging.verdict import CrashKind
from crashlab.models.covering import changes_before, is_whole
from crashlab.models.names import Metadata, surviving_names
from crashlab.models.survivors import KEPT, How, Reach, Scope, Unit, chosen
from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import (
    Disk,
    File,
    Image,
    Surviving,
    build_image,
    size_after,
    written_ranges,
)
from crashlab.states.horizon import Horizons

FILE_BLOCK_BYTES = 4096
"""What ext4 and XFS allocate at once by default (mkfs.ext4(8), mkfs.xfs(8))."""


@dataclass(frozen=True)
class PartialModel:
    """Uncovered writes survive in part; ``unit_bytes`` is what the disk writes wholly or not at all, 0 where
    every write does."""

    name: str
    unit_bytes: int = 0
    metadata: Metadata = "ordered"
    crash: CrashKind = "power-cut"
    draws: bool = True

    @property
    def tears(self) -> bool:
        """Whether a part of a write may survive."""
        return self.unit_bytes > 0

    def telling_seeds(self, position: int, seed: int, names: Reach = "least") -> tuple[int, ...]:
        """The first seeds from this one on that keep half of everything uncovered, wherever it lies; that
        lose exactly one piece; that keep exactly one; and that keep half of the files. Names come as far as
        ``names`` says, by default no further than they must."""
        smallest: Scope = "unit" if self.tears else "write"

        def first(scope: Scope, share: float | None = None) -> int:
            return next(
                each
                for each in count(seed)
                if (how := self.how(position, each)).scope == scope
                and how.names == names
                and share in (None, how.share)
            )

        return first(smallest, 1 / 2), first("one lost"), first("one kept"), first("file", 1 / 2)

    def how(self, position: int, seed: int) -> How:
        """How survivors are drawn under this seed."""
        draw = random.Random(f"{seed}/{position}/{self.unit_bytes}/how")
        own: tuple[Scope, ...] = ("unit", "unit") if self.tears else ("write",)
        others: tuple[Scope, ...] = ("write", "file", "class", "each file", "one lost", "one kept")
        return How(draw.choice(own + others), draw.choice(KEPT), draw.choice(("least", "drawn", "most")))

    def image(self, disk: Disk, horizons: Horizons, position: int, seed: int) -> Image:
        """The image that a crash at the position leaves, under this seed."""
        draw = random.Random(f"{seed}/{position}/{self.unit_bytes}")
        how = self.how(position, seed)

        def reached(least: int) -> int:
            drawn = {"least": least, "drawn": draw.randint(0, position), "most": position}
            return max(least, drawn[how.names])

        names = surviving_names(self.metadata, horizons, position, reached)
        changes = {
            file.number: list(changes_before(file, horizons, position, names.truncated_to))
            for file in disk.files
        }
        units = [
            unit
            for file in disk.files
            for change, durable in changes[file.number]
            if not is_whole(durable) and change.kind is Kind.WRITE
            for unit in self._units(disk, file, change, durable)
        ]
        kept = chosen(units, how, draw)
        growth = draw.random()

        def survivors(file: File) -> tuple[Surviving, ...]:
            found = []
            for change, durable in changes[file.number]:
                ranges = (*(durable.ranges or () if durable else ()), *kept.get(change.begin, ()))
                if is_whole(durable) or ranges:
                    found.append(Surviving(change, None if is_whole(durable) else tuple(sorted(ranges))))
            return tuple(found)

        def size(file: File, surviving: Sequence[Surviving]) -> int | None:
            durable = _size(file, [durable for _, durable in changes[file.number] if durable is not None])
            written = [change for change, _ in changes[file.number] if change.kind is Kind.WRITE]
            return _drawn_size(durable, surviving, written, growth)

        return build_image(disk, names.keeps, survivors, size)

    def _units(self, disk: Disk, file: File, write: Operation, durable: Surviving | None) -> list[Unit]:
        """The pieces of what is not durable of a write."""
        units = []
        for begin, end in _but(written_ranges(Surviving(write))[0], durable):
            while begin < end:
                border = end
                if self.tears:
                    border = min(end, begin - begin % self.unit_bytes + self.unit_bytes)
                units.append(Unit(file.number, disk.class_of(file), write, begin, border))
                begin = border
        return units


def _but(whole: tuple[int, int], durable: Surviving | None) -> Iterator[tuple[int, int]]:
    """What is left of a range without the durable parts of it, which are in order."""
    begin, end = whole
    for from_, to in written_ranges(durable) if durable is not None else ():
        if begin < from_:
            yield begin, from_
        begin = to
    if begin < end:
        yield begin, end


def _drawn_size(
    durable: int, surviving: Sequence[Surviving], written: Sequence[Operation], growth: float
) -> int | None:
    """The size of a file, None where what survives gives it.

    ``written`` is every write to it, lost ones too; ``growth`` from 0 to 1 is the draw.
    """
    ends = [end for each in surviving if each.operation.kind is Kind.WRITE for _, end in written_ranges(each)]
    survived = max(ends, default=0)
    block_end = -(-durable // FILE_BLOCK_BYTES) * FILE_BLOCK_BYTES
    lost = max((end for write in written for _, end in written_ranges(Surviving(write))), default=0)
    end = max(survived, min(lost, block_end))
    if end <= durable:
        return None
    # Often wholly, else somewhere in between.
    if growth < 1 / 2:
        return survived if survived > durable else durable
    return durable + int((end - durable) * (2 * growth - 1))


def _size(file: File, durable: Sequence[Surviving]) -> int:
    size = file.base.size if file.base else 0
    for each in durable:
        if each.ranges is None:
            size = size_after(size, each.operation)
        else:
            size = max(size, *(end for _, end in each.ranges))
    return size
