"""YCSB's key names: "user" and the hashed or plain key number (CoreWorkload.buildKeyName)."""

from __future__ import annotations

from collections.abc import Mapping

ENGINE = "engine"
"""The parameter of a workload that says what a register is: on PostgreSQL a field, else a record."""
_OFFSET_BASIS = 0xCBF29CE484222325
_PRIME = 1099511628211
_MASK = (1 << 64) - 1


def fnv_hash(number: int) -> int:
    """The 64-bit FNV-1a hash of the number's 8 bytes, least significant first, then Java's Math.abs."""
    value = _OFFSET_BASIS
    for shift in range(0, 64, 8):
        value = ((value ^ (number >> shift & 0xFF)) * _PRIME) & _MASK
    signed = value - (1 << 64) if value >> 63 else value
    return abs(signed)


def key_name(number: int, properties: Mapping[str, str]) -> str:
    """The name of the record with this key number under the workload's properties."""
    chosen = fnv_hash(number) if properties["insertorder"] == "hashed" else number
    return f"user{str(chosen).rjust(int(properties['zeropadding']), '0')}"


def register_name(register: int, parameters: Mapping[str, str]) -> str:
    """What a register of a workload with these parameters is called."""
    named = field_name if parameters.get(ENGINE) == "postgresql" else key_name
    return named(register, parameters)


def field_name(register: int, properties: Mapping[str, str]) -> str:
    """What a register of PostgreSQL is called: key and field, as in user6284781860667377211.field3."""
    number, field = divmod(register, int(properties["fieldcount"]))
    return f"{key_name(number, properties)}.{properties['fieldnameprefix']}{field}"
