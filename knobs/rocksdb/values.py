"""RocksDB's spelling of values: what it accepts, what it means, and how one value is written.

The library reads leniently: it takes `12abc` as 12, `0x10` as 0, `-1` for an unsigned option as 2^64-1,
and `4G` for a 32-bit option as 0. A value that would be read as another one than it says is refused
here. Suffixes K, M, G and T are powers of 1024, and a B after them means nothing, as in the library
(rocksdb/convenience.h, "Integers"; ParseUint64 and ParseInt, seen on 7.8.3).
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping

from knobs.knob import Knob

# Every option under its full name, normalised: what the predicates of rules and changes look at.
InForce = Mapping[str, str]

# How the library prints an age that nobody chose: it then decides by the compaction style.
UNCHOSEN_AGE = str(2**64 - 2)

# What each integer type of the headers holds: (least, greatest).
INTEGER_TYPES: dict[str, tuple[int, int]] = {
    "int": (-(2**31), 2**31 - 1),
    "int32_t": (-(2**31), 2**31 - 1),
    "int64_t": (-(2**63), 2**63 - 1),
    "unsigned int": (0, 2**32 - 1),
    "uint32_t": (0, 2**32 - 1),
    "uint64_t": (0, 2**64 - 1),
    "size_t": (0, 2**64 - 1),
}

_INTEGER = re.compile(r"(?P<number>[+-]?\d+)(?:(?P<suffix>[kKmMgGtT])[bB]?)?")
_REAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_BOOLS = {"true": "true", "1": "true", "false": "false", "0": "false"}


def integer(text: str) -> int | None:
    """The whole number that the text says, suffix applied; None if it says none."""
    match = _INTEGER.fullmatch(text.strip())
    if match is None:
        return None
    return int(match["number"]) << _SHIFT[(match["suffix"] or "").lower()]


def boolean(text: str) -> bool | None:
    """True or False; None if the text is neither (RocksDB takes true, false, 1 and 0 only)."""
    word = _BOOLS.get(text.strip())
    return None if word is None else word == "true"


def real(text: str) -> float | None:
    """The finite number that the text says; None if it says none."""
    if _REAL.fullmatch(text.strip()) is None:
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def fault(knob: Knob, value: str) -> str | None:
    """What is wrong with ``value`` for ``knob``, as a clause; None if nothing is."""
    text = value.strip()
    if knob.kind == "bool":
        return None if boolean(text) is not None else f"'{text}' is neither true nor false"
    if knob.kind in ("integer", "size"):
        return _number_fault(knob, text)
    if knob.kind == "real":
        number = real(text)
        return f"'{text}' is no number" if number is None else _range_fault(knob, number)
    if knob.kind == "enum" and text not in knob.choices:
        return f"'{text}' is none of {', '.join(knob.choices)}"
    return _text_fault(text) or _nested_fault(knob, text)


def normalise(knob: Knob, value: str) -> str:
    """The one spelling that two equal values share; a value that is no such value stays as it is."""
    text = value.strip()
    if knob.kind == "bool":
        return _BOOLS.get(text, text)
    if knob.kind in ("integer", "size"):
        number = integer(text)
        return text if number is None else str(number)
    if knob.kind == "real":
        number_ = real(text)
        return text if number_ is None else f"{number_:.6f}"
    if is_nested(text):
        return "{" + "".join(f"{name}={item};" for name, item in sorted(fields(text).items())) + "}"
    return _spelled_out(knob.short_name, text)


def agrees(knob: Knob, stated: str, effective: str) -> bool:
    """Whether the stated value is in force; of a nested one only the stated members count."""
    if is_nested(stated.strip()) and is_nested(effective.strip()):
        theirs = fields(effective)
        return all(theirs.get(name) == value for name, value in fields(stated).items())
    return normalise(knob, stated) == normalise(knob, effective)


def is_on(in_force: InForce, name: str) -> bool:
    """Whether a boolean option is true."""
    return in_force.get(name) == "true"


def whole(in_force: InForce, name: str) -> int:
    """An integer option's value; 0 where it has none."""
    return integer(in_force.get(name, "0")) or 0


def is_nested(text: str) -> bool:
    """Whether the text has the form `{...}`."""
    return text.startswith("{") and text.endswith("}")


def fields(nested: str) -> dict[str, str]:
    """The members of `{name=value;name={...};}`, outermost level; a part without `=` maps to ""."""
    parts: dict[str, str] = {}
    for part in _split(nested.strip()[1:-1]):
        name, _, value = part.partition("=")
        parts[name.strip()] = value.strip()
    return parts


# The library prints the factories of these options under longer names than it takes (seen on 7.8.3).
_SPELLINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "filter_policy": (
        (r"bloomfilter:([\d.]+)(?::\w+)?", r"bloomfilter:\1:false"),
        (r"ribbonfilter:([\d.]+)", r"ribbonfilter:\1:0"),
    ),
    "prefix_extractor": (
        (r"fixed:(\d+)", r"rocksdb.FixedPrefix.\1"),
        (r"capped:(\d+)", r"rocksdb.CappedPrefix.\1"),
    ),
    "memtable_factory": ((r"skip_list(:\d+)?", r"SkipListFactory\1"),),
}


def _spelled_out(short_name: str, text: str) -> str:
    for pattern, printed in _SPELLINGS.get(short_name, ()):
        match = re.fullmatch(pattern, text)
        if match is not None:
            return match.expand(printed)
    return text


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == ";" and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part for part in parts if part.strip()]


def _number_fault(knob: Knob, text: str) -> str | None:
    if text.startswith("{") and "Cache" in knob.type:
        return _text_fault(text)
    number = integer(text)
    if number is None:
        return f"'{text}' is no whole number (suffixes K, M, G, T are allowed)"
    return _range_fault(knob, number)


def _nested_fault(knob: Knob, text: str) -> str | None:
    """Members that the default does not have, or whose value is of another kind than the default's."""
    if not (is_nested(text) and is_nested(knob.default)):
        return None
    members = fields(knob.default)
    for name, value in fields(text).items():
        if name not in members:
            near = ", ".join(difflib.get_close_matches(name, members, n=1))
            return f"it has no member '{name}'" + (f"; nearest: {near}" if near else "")
        wrong = _member_fault(members[name], value)
        if wrong is not None:
            return f"{name}: {wrong}"
    return None


def _member_fault(default: str, value: str) -> str | None:
    if default in ("true", "false"):
        return None if boolean(value) is not None else f"'{value}' is neither true nor false"
    if integer(default) is not None and integer(value) is None:
        return f"'{value}' is no whole number"
    return None


def _range_fault(knob: Knob, number: float) -> str | None:
    if knob.minimum is not None and number < knob.minimum:
        return f"{number} is below the least value {knob.minimum}"
    if knob.maximum is not None and number > knob.maximum:
        return f"{number} is above the greatest value {knob.maximum}"
    return None


def _text_fault(text: str) -> str | None:
    if any(ord(character) < 0x20 for character in text):
        return "the value holds a control character"
    depth = 0
    for character in text:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth < 0:
            break
    return "the braces do not match" if depth else None
