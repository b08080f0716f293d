"""Version edits of a MANIFEST made by hand (RocksDB db/version_edit.h), and the record around one."""

from __future__ import annotations

from collections.abc import Sequence

_LOG_NUMBER, _DELETED_FILE, _NEW_FILE_4, _END = 2, 6, 103, 1


def varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def edit(added: Sequence[int] = (), deleted: Sequence[int] = (), log: int | None = None) -> bytes:
    """An edit that adds tables to level 0, takes tables from there, and names a log number."""
    parts = [] if log is None else [varint(_LOG_NUMBER), varint(log)]
    for number in deleted:
        parts += [varint(_DELETED_FILE), varint(0), varint(number)]
    for number in added:
        keys = varint(1) + b"a" + varint(1) + b"z"
        parts += [varint(_NEW_FILE_4), varint(0), varint(number), varint(4096), keys]
        parts += [varint(1), varint(2), varint(_END)]
    return b"".join(parts)


def framed(payload: bytes) -> bytes:
    """A record of the log format that is whole in one fragment."""
    return bytes(4) + len(payload).to_bytes(2, "little") + b"\x01" + payload
