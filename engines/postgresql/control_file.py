"""What global/pg_control says of a cluster: where its last checkpoint lies, and how it was stopped.

Source: catalog/pg_control.h, struct ControlFileData, the same in its first fields from PostgreSQL 13 to
18; the server's own `pg_controldata` prints them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from knobs.errors import InvalidInput

PATH = "global/pg_control"
_HEAD = struct.Struct("<QIIIxxxxqQQI")
_SHUT_DOWN = 1
_VERSIONS = range(1300, 1900)


@dataclass(frozen=True)
class ControlFile:
    """``checkpoint`` is the LSN of the last checkpoint's record, ``redo`` where recovery begins."""

    system: int
    is_shut_down: bool
    checkpoint: int
    redo: int
    timeline: int

    @staticmethod
    def read(data: Path) -> ControlFile:
        """Read that of a data directory. Raises InvalidInput where there is none that is known."""
        path = data / PATH
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InvalidInput(
                f"no data directory of PostgreSQL: {error.strerror}", where=str(path)
            ) from error
        if len(content) < _HEAD.size:
            raise InvalidInput("cut short", where=str(path))
        system, version, _, state, _, checkpoint, redo, timeline = _HEAD.unpack_from(content)
        if version not in _VERSIONS:
            raise InvalidInput(f"a control file of an unknown version, {version}", where=str(path))
        return ControlFile(system, state == _SHUT_DOWN, checkpoint, redo, timeline)
