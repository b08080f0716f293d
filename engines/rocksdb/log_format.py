"""RocksDB's log format, in which both the WAL and the MANIFEST are written.

A file is a sequence of blocks of 32 KiB. A block holds fragments: crc32c (4 bytes), length (2),
type (1), for recyclable types also the low half of the log number (4), then the payload. A record
is a full fragment, or a first one, middles and a last one. Source: RocksDB db/log_format.h.

Checksums are not verified here: the bytes are what the engine itself wrote, taken from a write log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

BLOCK_BYTES = 32768
_HEADER_BYTES = 7
_RECYCLABLE_HEADER_BYTES = 11

_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_RECYCLABLE_FULL, _RECYCLABLE_LAST = 5, 8
_SET_COMPRESSION, _RECYCLABLE_SET_COMPRESSION = 9, 10
_USER_DEFINED_TIMESTAMP_SIZE = (11, 12, 13, 14)


@dataclass(frozen=True)
class LogRecord:
    """One reassembled record: its payload, and the file offset just past its last fragment."""

    payload: bytes
    end_offset: int


class CompressedLog(Exception):
    """The records are compressed (wal_compression), so offsets can be known but contents cannot."""


def records(content: bytes | memoryview) -> Iterator[LogRecord]:
    """The records of a log file, in order, up to the first place that was never written.

    Raises CompressedLog where the file says that its records are compressed.
    """
    parts: list[bytes] = []
    offset, size = 0, len(content)
    while True:
        left_in_block = BLOCK_BYTES - offset % BLOCK_BYTES
        if left_in_block < _HEADER_BYTES:
            offset += left_in_block
            continue
        if offset + _HEADER_BYTES > size:
            return
        length = int.from_bytes(content[offset + 4 : offset + 6], "little")
        kind = content[offset + 6]
        if kind == 0 and length == 0:
            return  # preallocated or padding: nothing was written from here on
        header = _HEADER_BYTES
        if _RECYCLABLE_FULL <= kind <= _RECYCLABLE_LAST:
            header, kind = _RECYCLABLE_HEADER_BYTES, kind - 4
        if kind in (_SET_COMPRESSION, _RECYCLABLE_SET_COMPRESSION):
            raise CompressedLog
        end = offset + header + length
        if end > size:
            return
        if kind in (_FULL, _FIRST):
            parts.clear()
        if kind not in _USER_DEFINED_TIMESTAMP_SIZE:
            parts.append(bytes(content[offset + header : end]))
            if kind in (_FULL, _LAST):
                yield LogRecord(b"".join(parts) if len(parts) > 1 else parts[0], end)
                parts.clear()
        offset = end


def varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """A varint and the offset behind it (RocksDB util/coding.h)."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def length_prefixed(data: bytes | memoryview, at: int) -> tuple[bytes | memoryview, int]:
    """A varint length, that many bytes, and the offset behind them."""
    length, at = varint(data, at)
    return data[at : at + length], at + length
