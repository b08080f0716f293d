"""Write batches in a WAL: which client writes lie where.

A WAL record is a write batch: sequence number (8 bytes), count (4), then operations. Source:
RocksDB db/write_batch.cc and db/dbformat.h (ValueType).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from engines.rocksdb.log_format import length_prefixed, records, varint

_BATCH_HEADER_BYTES = 12
_DELETION, _VALUE, _MERGE, _LOG_DATA = 0x0, 0x1, 0x2, 0x3
_CF_DELETION, _CF_VALUE, _CF_MERGE = 0x4, 0x5, 0x6
_SINGLE_DELETION, _CF_SINGLE_DELETION = 0x7, 0x8
_NOOP = 0xD
_KEY_ONLY = {_DELETION, _SINGLE_DELETION, _CF_DELETION, _CF_SINGLE_DELETION}
_KEY_AND_VALUE = {_VALUE, _MERGE, _CF_VALUE, _CF_MERGE}
_WITH_FAMILY = {_CF_DELETION, _CF_VALUE, _CF_MERGE, _CF_SINGLE_DELETION}

_STORED_VALUE = struct.Struct("<4sIQ")  # docs/formats.md: magic, client, sequence
_MAGIC = b"DTV1"


@dataclass(frozen=True)
class LocatedWrite:
    """A client's write in a WAL: its column family, and the offset behind the record that holds it."""

    client: int
    sequence: int
    family: int
    end_offset: int


def located_writes(content: bytes | memoryview) -> Iterator[LocatedWrite]:
    """Every client write that the WAL's bytes hold, in the order of the log.

    Raises log_format.CompressedLog under wal_compression.
    """
    for record in records(content):
        for family, value in _values(record.payload):
            if len(value) >= _STORED_VALUE.size:
                magic, client, sequence = _STORED_VALUE.unpack_from(value)
                if magic == _MAGIC:
                    yield LocatedWrite(client, sequence, family, record.end_offset)


def _values(batch: bytes) -> Iterator[tuple[int, bytes | memoryview]]:
    view = memoryview(batch)
    at = _BATCH_HEADER_BYTES
    while at < len(view):
        kind = view[at]
        at += 1
        family = 0
        if kind in _WITH_FAMILY:
            family, at = varint(view, at)
        if kind in _KEY_AND_VALUE:
            _, at = length_prefixed(view, at)
            value, at = length_prefixed(view, at)
            yield family, value
        elif kind in _KEY_ONLY or kind == _LOG_DATA:
            _, at = length_prefixed(view, at)
        elif kind != _NOOP:
            return  # a kind that no client of ours writes: what follows stays unlocated
