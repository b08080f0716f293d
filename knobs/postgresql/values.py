"""PostgreSQL's spelling of values: what the server accepts, what it means, and how one value is written.

The rules are the server's own, of 13 to 18 (src/backend/utils/misc/guc.c parse_int, parse_real,
convert_to_base_unit; src/backend/utils/adt/bool.c parse_bool), and the tests compare them with a server:

- kB is 1024 bytes, and units are case sensitive: `1gb` and `1 GB` differ in that the first is refused.
- A whole number is read as C's strtol does with base 0: `0x10` is 16, `010` is 8, `08` is refused. A fraction
  or an exponent makes it decimal (`010.5` is 10.5), then it is rounded to a whole number, half to even.
- A value with a unit is rounded to a multiple of the next smaller unit (30.1GB is a whole number of MB).
- Blanks may stand before a number, between number and unit, and at the end; not in booleans and enums.
- A boolean is any unambiguous beginning of true, false, yes, no, on, off in any case, or 1 or 0.

A value is normalised to what `postgres -C` prints: numbers in the setting's own unit (shared_buffers in 8kB
pages), on and off, an enum's listed spelling. postgresql.conf takes that text as it is.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from fractions import Fraction

from knobs.knob import Knob

# Every setting, normalised: what the predicates of rules and durability meanings look at.
InForce = Mapping[str, str]

KIB = 1024

MEMORY_UNITS = {"B": 1, "kB": KIB, "MB": KIB**2, "GB": KIB**3, "TB": KIB**4}
TIME_UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}

INT_MAX = 2**31 - 1
INT_MIN = -(2**31)

_BLANKS = " \t\n\v\f\r"
_WHOLE = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?")
_UNIT = re.compile(rf"[{_BLANKS}]*(?P<unit>[^{_BLANKS}]*)[{_BLANKS}]*")
_LEAST_NORMAL = 2.0**-1022
_BASE_UNIT = re.compile(r"(?P<count>\d*)(?P<unit>[A-Za-z]+)")


def fault(knob: Knob, value: str) -> str | None:
    """What is wrong with ``value`` for ``knob``, as a clause; None if the server takes it."""
    if knob.kind == "bool":
        return None if boolean(value) is not None else f"'{value}' is no Boolean value (on, off)"
    if knob.kind == "enum":
        if _chosen(knob, value) is not None:
            return None
        near = difflib.get_close_matches(value.lower(), knob.choices, n=1)
        return f"'{value}' is none of {', '.join(knob.choices)}" + (f"; nearest: {near[0]}" if near else "")
    if knob.kind in ("integer", "real"):
        number = _number(knob, value)
        return _number_fault(knob, value) if number is None else _range_fault(knob, number)
    return "the value holds a NUL character" if "\0" in value else None


def normalise(knob: Knob, value: str) -> str:
    """The one spelling that two equal values share; a value that is no such value stays as it is."""
    if knob.kind == "bool":
        truth = boolean(value)
        return value if truth is None else ("on" if truth else "off")
    if knob.kind == "enum":
        return _chosen(knob, value) or value
    if knob.kind in ("integer", "real"):
        number = _number(knob, value)
        return value if number is None else number_text(number)
    return value


def spelled(knob: Knob, value: str) -> str:
    """A value as people write it: with the largest unit that keeps it whole (16384 pages are 128MB)."""
    number = _number(knob, value)
    if number is None or not knob.unit or number <= 0 or knob.kind not in ("integer", "real"):
        return value
    units, amount = _scale(knob.unit)
    exact = Fraction(number) * amount
    for unit, size in reversed(units.items()):
        if (exact / size).denominator == 1:
            return f"{exact / size}{unit}"
    return value


def units_of(knob: Knob) -> tuple[str, ...]:
    """The units that a value may be given in, the smallest first; none where the setting takes none."""
    return tuple(_scale(knob.unit)[0]) if knob.unit and knob.kind in ("integer", "real") else ()


def integer(text: str, unit: str = "") -> int | None:
    """The whole number that the server reads, in ``unit``; None where it reads none."""
    begun, rest = _strtol(text)
    number: float | None = begun
    if begun is None or rest[:1] in (".", "e", "E"):
        number, rest = _strtod(text)
    converted = None if number is None else _converted(number, rest, unit)
    if converted is None or not math.isfinite(converted):
        return None
    rounded = round(converted)
    return rounded if INT_MIN <= rounded <= INT_MAX else None


def real(text: str, unit: str = "") -> float | None:
    """The number that the server reads, in ``unit``; None where it reads none."""
    number, rest = _strtod(text)
    return None if number is None else _converted(number, rest, unit)


def boolean(text: str) -> bool | None:
    """True or False; None where the server reads neither."""
    word = text.lower()
    if word in ("1", "0"):
        return word == "1"
    for name, truth, least in (
        ("true", True, 1),
        ("false", False, 1),
        ("yes", True, 1),
        ("no", False, 1),
        ("on", True, 2),
        ("off", False, 2),
    ):
        if len(word) >= least and name.startswith(word):
            return truth
    return None


def number_text(number: float) -> str:
    """A number as `postgres -C` prints it, with as many digits as it needs to stay the same."""
    if isinstance(number, int) or (float(number).is_integer() and abs(number) < 1e15):
        return str(int(number))
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def is_on(in_force: InForce, name: str) -> bool:
    """Whether a boolean setting is on; False where this version has none of that name."""
    return in_force.get(name) == "on"


def whole(in_force: InForce, name: str, absent: int = 0) -> int:
    """An integer setting's normalised value; ``absent`` where this version has none of that name."""
    text = in_force.get(name)
    return absent if text is None or text == "" else int(text)


def bytes_of(in_force: InForce, name: str, unit: str) -> int:
    """A memory setting in bytes; ``unit`` is the setting's own ("8kB", "kB", "MB")."""
    return whole(in_force, name) * _scale(unit)[1]


def _number(knob: Knob, text: str) -> float | None:
    return integer(text, knob.unit) if knob.kind == "integer" else real(text, knob.unit)


def _number_fault(knob: Knob, text: str) -> str:
    parsed = _strtod(text) if knob.kind == "real" else _strtol(text)
    unit = parsed[1].strip(_BLANKS)
    kind = "whole number" if knob.kind == "integer" else "number"
    if parsed[0] is None:
        return f"'{text}' is no {kind}"
    if not knob.unit and re.fullmatch(r"[A-Za-z]+", unit):
        return f"'{text}' has a unit, and this setting takes none"
    if knob.unit and re.fullmatch(r"[A-Za-z]+", unit):
        units = [*_scale(knob.unit)[0]]
        close = [known for known in units if known.lower() == unit.lower()]
        if close and unit not in units:
            return f"'{text}': the unit is spelled {close[0]}, upper and lower case matter"
        if unit not in units:
            return f"'{text}': the units of this setting are {', '.join(units)}"
    if (knob.unit == "" and not unit) or re.fullmatch(r"[A-Za-z]*", unit):
        return f"'{text}' exceeds the integer range"
    if re.match(r"\s*[+-]?0[0-9]", text):
        return f"'{text}' is no {kind}: a number that begins with 0 is octal"
    return f"'{text}' is no {kind}"


def _range_fault(knob: Knob, number: float) -> str | None:
    low, high = knob.minimum, knob.maximum
    if (low is None or number >= low) and (high is None or number <= high):
        return None
    unit = f" {knob.unit}" if knob.unit else ""
    bounds = f"{number_text(low or 0)}{unit} .. {number_text(high or 0)}{unit}"
    return f"{number_text(number)}{unit} is outside the valid range ({bounds})"


def _chosen(knob: Knob, text: str) -> str | None:
    word = text.lower()
    # A word that the server lists may still be another's name: wal_compression=on is pglz.
    chosen = {choice.lower(): choice for choice in knob.choices}
    chosen |= {spelling.lower(): value for spelling, value in knob.spellings}
    return chosen.get(word)


def _strtol(text: str) -> tuple[int | None, str]:
    """C's strtol with base 0: the number and what follows; None where there is none or it overflows."""
    stripped = text.lstrip(_BLANKS)
    match = _WHOLE.match(stripped)
    if match is None:
        return None, stripped
    digits = match[0].lower().lstrip("+-")
    base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
    number = int(digits, base) * (-1 if match[0].startswith("-") else 1)
    if not -(2**63) <= number < 2**63:
        return None, stripped
    return number, stripped[match.end() :]


def _strtod(text: str) -> tuple[float | None, str]:
    """C's strtod without its words: infinite is over any setting's maximum, and the server refuses nan."""
    stripped = text.lstrip(_BLANKS)
    match = _HEXADECIMAL.match(stripped) or _DECIMAL.match(stripped)
    if match is None:
        return None, stripped
    try:
        number = float.fromhex(match[0]) if "x" in match[0].lower() else float(match[0])
    except OverflowError:
        return None, stripped
    # C reports what is too great, and what is too small to be kept in full, as out of range.
    is_zero = not re.search(r"[1-9a-f]", re.split(r"[ep]", match[0].lower().replace("0x", ""))[0])
    if math.isinf(number) or (not is_zero and abs(number) < _LEAST_NORMAL):
        return None, stripped
    return number, stripped[match.end() :]


def _converted(number: float, rest: str, unit: str) -> float | None:
    """The number in ``unit``, after the unit that ``rest`` names; None where it names a wrong one."""
    match = _UNIT.fullmatch(rest)
    if match is None:
        return None
    if not match["unit"]:
        return float(number)
    if not unit:
        return None
    units, amount = _scale(unit)
    if match["unit"] not in units:
        return None
    value = number * (units[match["unit"]] / amount)
    smaller = [size for size in units.values() if size < units[match["unit"]]]
    if smaller:
        step = max(smaller) / amount
        steps = value / step
        return float(round(steps)) * step if math.isfinite(steps) else None
    return value


def _scale(unit: str) -> tuple[dict[str, int], int]:
    """The units that a setting of this unit takes, and the size of its own among them."""
    match = _BASE_UNIT.fullmatch(unit)
    assert match is not None, f"the server has no unit like {unit}"
    units = MEMORY_UNITS if match["unit"] in MEMORY_UNITS else TIME_UNITS_US
    return units, int(match["count"] or 1) * units[match["unit"]]
