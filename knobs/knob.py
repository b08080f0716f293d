"""One thing that may be set, and everything we know about it.

A knob's full name is `SECTION.name`, with the section as the engine's headers spell it
("DBOptions.manual_wal_flush"). Values are the engine's own text everywhere; `kind` says how to read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["bool", "integer", "real", "size", "enum", "string", "list", "object"]


@dataclass(frozen=True, slots=True)
class TuningRange:
    """Where a tuner searches; a value outside is allowed, it is only not proposed.

    Numbers use ``low``, ``high`` and ``log`` (a logarithmic scale); others use ``choices``.
    ``why`` is one sentence for the report.
    """

    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a statement comes from: a file of the engine and the line that declares or says it."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Knob:
    """One knob.

    ``default`` is the text that the engine prints ("" where it prints none). ``minimum`` and ``maximum``
    are what the C++ type or the engine allows, in ``unit``. ``dynamic`` says whether a running engine
    takes a change (None: not known). ``settable`` is False for what only a program can set.
    ``outside`` marks a knob that names a path, command or library outside the data folder.
    ``meaning`` is the durability meaning in a sentence, None where there is none.
    """

    name: str
    kind: Kind
    type: str
    default: str
    documentation: str
    source: Source
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool | None = None
    settable: bool = True
    deprecated: bool = False
    outside: bool = False
    tuning: TuningRange | None = None
    meaning: str | None = None

    @property
    def section(self) -> str:
        return self.name.partition(".")[0]

    @property
    def short_name(self) -> str:
        return self.name.partition(".")[2]
