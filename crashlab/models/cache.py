"""`cache`: a process crash. The kernel keeps every byte that a call had written.

An operation that had begun and not ended may have happened wholly, in part or not at all: the seed
decides. A write that is cut short keeps a prefix that ends on a page boundary of the file, because
the kernel copies page by page.
"""

from __future__ import annotations

import random

from crashlab.disk import Disk, File, Image, NameChange, Surviving, build_image, written_bytes
from crashlab.horizon import Horizons
from crashlab.verdict import CrashKind
from crashlab.write_log import Kind, Operation

PAGE_BYTES = 4096


class CacheModel:
    """Everything written before the position survives."""

    name = "cache"
    crash: CrashKind = "process-crash"

    def image(self, disk: Disk, horizons: Horizons, position: int, seed: int) -> Image:
        del horizons  # a process crash loses nothing that was written, synced or not

        def keeps_name(change: NameChange) -> bool:
            return _fate(change.operation, position, seed) != "absent"

        def survivors(file: File) -> tuple[Surviving, ...]:
            kept = []
            for change in file.changes:
                if change.begin >= position:
                    break
                fate = _fate(change, position, seed)
                if fate == "partial":
                    kept.append(Surviving(change, _prefix_bytes(change, seed)))
                elif fate == "whole":
                    kept.append(Surviving(change))
            return tuple(kept)

        return build_image(disk, keeps_name, survivors)


def _fate(operation: Operation, position: int, seed: int) -> str:
    if operation.begin >= position:
        return "absent"
    if operation.end is not None and operation.end < position:
        return "whole"
    fates = ["absent", "whole", "partial"] if operation.kind is Kind.WRITE else ["absent", "whole"]
    return random.Random(f"{seed}/{operation.begin}").choice(fates)


def _prefix_bytes(write: Operation, seed: int) -> int:
    """A length at which the write may have been cut: up to a page boundary of the file."""
    size = written_bytes(write)
    first_boundary = PAGE_BYTES - write.a % PAGE_BYTES
    boundaries = range(first_boundary, size, PAGE_BYTES)
    return random.Random(f"{seed}/{write.begin}/bytes").choice(boundaries) if boundaries else 0
