"""One thing that may be set, and everything we know about it.

A knob's full name is the engine's own: of RocksDB `SECTION.name`, with the section as its headers spell it
("DBOptions.manual_wal_flush"), of PostgreSQL the setting's name. Values are the engine's own text everywhere;
`kind` says how to read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["bool", "integer", "real", "size", "enum", "string", "list", "object"]


@dataclass(frozen=True, slots=True)
class TuningRange:
    """Where a tuner searches; a value outside is allowed, it is only not proposed.

    Numbers use ``low``, ``high`` and ``log`` (a logarithmic scale); others use ``choices``.
    ``why`` is one sentence for the report. ``needs`` are choices that the engine takes only together with a
    value of another setting: each choice, that setting and that value.
    """

    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: tuple[str, ...] = ()
    why: str = ""
    needs: tuple[tuple[str, str, str], ...] = ()


def log(low: float, high: float, why: str) -> TuningRange:
    """A range searched on a logarithmic scale."""
    return TuningRange(low, high, True, (), why)


def linear(low: float, high: float, why: str) -> TuningRange:
    """A range searched evenly."""
    return TuningRange(low, high, False, (), why)


def choice(why: str, *choices: str, needs: tuple[tuple[str, str, str], ...] = ()) -> TuningRange:
    """One of these values."""
    return TuningRange(None, None, False, choices, why, needs)


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
    ``outside`` marks a knob that names a path, command or library outside the data folder, which a run never
    takes over, with the reason in ``outside_why``. ``spellings`` are words that the engine takes for a choice
    of another name, each with that choice. ``category`` and ``context`` are the engine's own words for what
    the knob belongs to and who may change it when.
    ``units`` are those that a value may be given in instead of ``unit``, where the engine takes any.
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
    spellings: tuple[tuple[str, str], ...] = ()
    category: str = ""
    context: str = ""
    units: tuple[str, ...] = ()
    outside_why: str = "it names something outside the data folder and is overridden to the private folder"

    @property
    def section(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]
