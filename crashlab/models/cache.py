"""`cache`: a process crash between any two calls. The kernel keeps every byte that a call had written.

An operation that had begun and not ended has happened or not: the seed decides. Not covered: a write
that the kill cuts in two. The kernel copies page by page, and a SIGKILL does end a write between two
pages: of 60 kills each, 5 tore writes of 1,000 bytes, 40 of 19,200, 59 of 1 MiB + 100, always at a page
boundary of the file, and none tore writes of whole pages (ext4, Linux 6.18). What engines make of a torn
write after a process crash, only the real kill of the measured run can show.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from crashlab.judging.verdict import CrashKind
from crashlab.models.names import Metadata
from crashlab.models.survivors import Reach
from crashlab.recording.write_log import Operation
from crashlab.states.disk import Disk, File, Image, NameChange, Surviving, build_image
from crashlab.states.horizon import Horizons


@dataclass(frozen=True)
class CacheModel:
    """Everything written before the position survives."""

    name: str = "cache"
    metadata: Metadata = "ordered"
    crash: CrashKind = "process-crash"
    tears: bool = False
    draws: bool = False

    def telling_seeds(self, position: int, seed: int, names: Reach = "least") -> tuple[int, ...]:
        """The seed itself."""
        del position, names
        return (seed,)

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
