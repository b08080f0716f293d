"""The catalogue as text and as JSON: what `duratune knobs` prints. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from knobs.knob import Knob, TuningRange

WIDTH = 100
_LABEL = 12


def table(knobs: Iterable[Knob]) -> str:
    """One line a knob: name, kind, default, and marks; grouped as the catalogue orders them.

    `d` marks a durability meaning, `s` that tuners search it, `x` that it is deprecated.
    """
    rows = [(knob.name, _kind(knob), knob.default or "-", _marks(knob)) for knob in knobs if knob.settable]
    names = max((len(row[0]) for row in rows), default=0)
    kinds = max((len(row[1]) for row in rows), default=0)
    lines = [
        f"{marks:<3} {name:<{names}}  {kind:<{kinds}}  {_shortened(default)}"
        for name, kind, default, marks in rows
    ]
    legend = "d: durability meaning   s: searched by tuners   x: deprecated"
    return "\n".join([legend, *lines])


def page(knob: Knob, version: str, notes: Sequence[str] = ()) -> str:
    """Everything about one knob."""
    lines = [knob.name]
    lines += _field("kind", _kind(knob) + (f" ({knob.type})" if knob.type else ""))
    lines += _field("default", knob.default or "-")
    lines += _field("takes", takes(knob)) if takes(knob) else []
    if knob.category:
        lines += _field("category", knob.category)
    if not knob.settable:
        lines += _field("set by", "a program only, not by text")
    if knob.dynamic is not None:
        lines += _field("changes", _changes(knob))
    lines += _field("durability", knob.meaning or "none that the catalogue knows")
    lines += _field("searched", range_text(knob.tuning))
    for note in notes:
        lines += _field("note", note)
    lines += _field("source", f"{knob.source} of version {version}" if knob.source.file else "the library")
    if knob.documentation:
        lines += ["", textwrap.indent(knob.documentation, "  ")]
    return "\n".join(lines)


def takes(knob: Knob) -> str:
    """The values that a knob takes in words; "" where nothing but its kind says so."""
    if knob.choices:
        return ", ".join(knob.choices)
    if knob.minimum is None or knob.maximum is None:
        return ""
    pages = "x " if knob.unit[:1].isdigit() else ""
    found = f"{knob.minimum} to {knob.maximum} {pages}{knob.unit}".rstrip()
    return found + (f", or a number with one of {', '.join(knob.units)}" if knob.units else "")


def document(knob: Knob, notes: Sequence[str] = ()) -> dict[str, Any]:
    """The same as a value for JSON."""
    searched = knob.tuning
    return {
        "name": knob.name,
        "kind": knob.kind,
        "type": knob.type,
        "default": knob.default,
        "unit": knob.unit,
        "minimum": knob.minimum,
        "maximum": knob.maximum,
        "choices": list(knob.choices),
        "units": list(knob.units),
        "takes": takes(knob),
        "dynamic": knob.dynamic,
        "spellings": dict(knob.spellings),
        "category": knob.category,
        "context": knob.context,
        "settable": knob.settable,
        "deprecated": knob.deprecated,
        "outside": knob.outside,
        "durability": knob.meaning,
        "searched": None
        if searched is None
        else {
            "low": searched.low,
            "high": searched.high,
            "log": searched.log,
            "choices": list(searched.choices),
            "why": searched.why,
        },
        "notes": list(notes),
        "documentation": knob.documentation,
        "source": str(knob.source),
    }


def range_text(searched: TuningRange | None) -> str:
    """A tuning range in words."""
    if searched is None:
        return "no"
    if searched.choices:
        return f"{', '.join(searched.choices)}: {searched.why}"
    scale = " on a logarithmic scale" if searched.log else ""
    return f"{_plain(searched.low)} to {_plain(searched.high)}{scale}: {searched.why}"


def _plain(number: float | None) -> str:
    if number is None:
        return "-"
    return str(int(number)) if float(number).is_integer() else str(number)


def _kind(knob: Knob) -> str:
    return f"{knob.kind}, {knob.unit}" if knob.unit and knob.kind != "size" else knob.kind


def _changes(knob: Knob) -> str:
    when = "while the engine runs" if knob.dynamic else "only when the engine starts"
    return f"{when} (context {knob.context})" if knob.context else when


def _marks(knob: Knob) -> str:
    marks = (("d", knob.meaning), ("s", knob.tuning), ("x", knob.deprecated))
    return "".join(mark for mark, holds in marks if holds)


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _field(label: str, text: str) -> list[str]:
    # Long words are option names and values: breaking them would make them useless to copy.
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"  {label:<{_LABEL}}",
        subsequent_indent=" " * (_LABEL + 2),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [f"  {label}"]
