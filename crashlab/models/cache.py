"""`cache`: a process crash between any two calls. The kernel keeps every byte that a call had written.

An operation that had begun and not ended has happened or not: the seed decides. It is never cut in
two, because a SIGKILL does not do that: 0 of 7,500 kills tore an append of 8 KiB to 1 MiB (1,500 for
each of 8, 16, 64, 256 and 1024 KiB; ext4, Linux 6.18). Torn writes belong to a power cut.
"""

from __future__ import annotations

import random

from crashlab.disk import Disk, File, Image, NameChange, Surviving, build_image
from crashlab.horizon import Horizons
from crashlab.verdict import CrashKind
from crashlab.write_log import Operation


class CacheModel:
    """Everything written before the position survives."""

    name = "cache"
    crash: CrashKind = "process-crash"

    def image(self, disk: Disk, horizons: Horizons, position: int, seed: int) -> Image:
        del horizons  # a process crash loses nothing that was written, synced or not

        def keeps_name(change: NameChange) -> bool:
            return _happened(change.operation, position, seed)

        def survivors(file: File) -> tuple[Surviving, ...]:
            return tuple(Surviving(change) for change in file.changes if _happened(change, position, seed))

        return build_image(disk, keeps_name, survivors)


def _happened(operation: Operation, position: int, seed: int) -> bool:
    if operation.begin >= position:
        return False
    if operation.end is not None and operation.end < position:
        return True
    return random.Random(f"{seed}/{operation.begin}").random() < 0.5
