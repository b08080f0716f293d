"""A fault that a recorded run meets: one sync or one write that fails, once.

`fsync-eio@N` fails the Nth sync of a file after the load began with EIO, `enospc@N` the Nth write with
ENOSPC; with `:ROLE` only calls on files of that role are counted (engines/engine.py, FileRole). The call is
not made. What a failed sync loses, crashlab/states/lost.py says.

Not covered: more than one fault in a run; failing syncs of folders, of ranges of a file and of whole file
systems, and of writes that are opened to be their own sync.
"""

from __future__ import annotations

import mmap
import re
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

from crashlab.recording.write_log import Operation
from engines.engine import FileRole, LogReader
from knobs.errors import InvalidInput, Undecided

FaultKind = Literal["fsync-eio", "enospc"]
KINDS: tuple[FaultKind, ...] = get_args(FaultKind)
FORM = "fsync-eio@N, enospc@N, or with :ROLE behind it"
NTH_MAX = 2**32
_CALLS: dict[FaultKind, str] = {"fsync-eio": "sync", "enospc": "write"}
_FAULT = re.compile(r"([a-z-]+)@([0-9]+)(?::([a-z-]+))?")
_ARMED, _COUNT, _POSITION, _END = 256, 264, 272, 280


@dataclass(frozen=True)
class Fault:
    """What is asked for: the ``nth`` call of its kind fails, of all files or (``role``) of some."""

    kind: FaultKind
    nth: int
    role: FileRole | None = None

    @staticmethod
    def parse(text: str, reader: LogReader, engine: str) -> Fault:
        """Read `KIND@N` or `KIND@N:ROLE`. Raises InvalidInput for anything else, and for a role of which the
        recorder sees no file of this engine."""
        match = _FAULT.fullmatch(text)
        kind = next((known for known in KINDS if match and match[1] == known), None)
        if match is None or kind is None:
            raise InvalidInput(f"'{text}' is no fault", where="--fault", hint=f"use {FORM}")
        nth = int(match[2])
        if not 1 <= nth <= NTH_MAX:
            raise InvalidInput(
                f"there is no {_CALLS[kind]} number {nth}", where="--fault", hint=f"count from 1 to {NTH_MAX}"
            )
        roles = [role for role in get_args(FileRole) if reader.files_of(role)]
        role = next((known for known in roles if known == match[3]), None)
        if match[3] is not None and role is None:
            raise InvalidInput(
                f"'{match[3]}' is no role of a recorded file of {engine}",
                where="--fault",
                hint=f"use one of {', '.join(roles)}",
            )
        return Fault(kind, nth, role)

    def __str__(self) -> str:
        return f"{self.kind}@{self.nth}" + (f":{self.role}" if self.role else "")

    @property
    def calls(self) -> str:
        """The calls that it counts, in words: `syncs of relation files`."""
        return f"{_CALLS[self.kind]}s" + (f" of {self.role} files" if self.role else "")

    def never_reached(self, count: int) -> Undecided:
        """The error of a run that made only so many of its calls."""
        return Undecided(
            f"UNKNOWN: the fault {self} was never reached: the load made {count} {self.calls}",
            where="recorded run",
            hint=f"choose N from 1 to {count}, or more --operations" if count else "choose another fault",
        )


class FaultSwitch:
    """The words of a write log's header by which a fault is armed, and tells that it has struck.

    Use as a context manager. Processes that are recorded may write the words meanwhile.
    """

    def __init__(self, log: Path) -> None:
        with log.open("r+b") as file:
            self._header = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def arm(self) -> None:
        """Calls are counted from now on."""
        self._header[_ARMED : _ARMED + 4] = (1).to_bytes(4, "little")

    @property
    def count(self) -> int:
        """How many of its calls were made since then."""
        return int.from_bytes(self._header[_COUNT:_POSITION], "little")

    @property
    def position(self) -> int:
        """Where the call that failed began; 0 while none did."""
        return int.from_bytes(self._header[_POSITION:_END], "little")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._header.close()


@dataclass(frozen=True)
class Struck:
    """Where a fault struck: the call that failed, its file under the name that it had then, and how many
    milliseconds after the load began. ``checkpoints`` are the positions at which the engine had made later
    ones complete."""

    asked: str
    operation: Operation
    path: str
    role: FileRole
    after_ms: float
    checkpoints: tuple[int, ...]

    @property
    def call(self) -> str:
        return self.operation.kind.name.lower()

    def as_json(self) -> dict[str, Any]:
        """The fault for a document."""
        return {
            "asked": self.asked,
            "call": self.call,
            "position": self.operation.begin,
            "file": self.path,
            "role": self.role,
            "after_ms": self.after_ms,
            "checkpoints": list(self.checkpoints),
        }

    def in_words(self) -> str:
        """What failed, where and when."""
        return (
            f"{self.asked}: {self.call} of {self.path} ({self.role}) failed at position "
            f"{self.operation.begin}, {self.after_ms / 1e3:.2f} s after the load began"
        )
