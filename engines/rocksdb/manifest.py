"""The MANIFEST's version edits: which tables came and went, and when a flush made a WAL unnecessary.

An edit that names log number N for a column family says that every write to that family in a WAL
below N is in the table files. Source: RocksDB db/version_edit.h (Tag, NewFileCustomTag).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engines.rocksdb.log_format import length_prefixed, records, varint

_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE = 1, 2, 3, 4
_COMPACT_CURSOR, _DELETED_FILE, _PREVIOUS_LOG, _MINIMUM_LOG = 5, 6, 9, 10
_NEW_FILE_4 = 103
_BLOB_FILE_ADDITION, _BLOB_FILE_GARBAGE = 400, 401
_FAMILY, _FAMILY_ADD, _FAMILY_DROP, _MAX_FAMILY, _ATOMIC_GROUP = 200, 201, 202, 203, 300
_SAFE_TO_IGNORE = 1 << 13
_NUMBERS = {
    _LOG_NUMBER,
    _NEXT_FILE,
    _LAST_SEQUENCE,
    _PREVIOUS_LOG,
    _MINIMUM_LOG,
    _FAMILY,
    _MAX_FAMILY,
    _ATOMIC_GROUP,
}
_END_OF_FILE_FIELDS, _END_OF_BLOB_FIELDS = 1, 0


@dataclass(frozen=True)
class Edit:
    """What one edit says of WALs, from ``end_offset`` on, and of tables by their numbers.

    ``family`` needs no WAL below ``log_number``; no family needs one below ``minimum_log``. Either
    is None where the edit does not say.
    """

    family: int
    log_number: int | None
    minimum_log: int | None
    end_offset: int
    added: tuple[int, ...] = ()
    deleted: tuple[int, ...] = ()


def edits(content: bytes | memoryview) -> Iterator[Edit]:
    """Every edit of the MANIFEST that says something of WALs."""
    for edit in every_edit(content):
        if edit.log_number is not None or edit.minimum_log is not None:
            yield edit


def every_edit(content: bytes | memoryview) -> Iterator[Edit]:
    """Every edit of the MANIFEST.

    One with a tag that is not known here is left out: its family cannot be told.
    """
    for record in records(content):
        edit = _read(record.payload, record.end_offset)
        if edit is not None:
            yield edit


def _read(edit: bytes, end_offset: int) -> Edit | None:
    at = 0
    numbers: dict[int, int] = {}
    added, deleted = list[int](), list[int]()
    while at < len(edit):
        tag, at = varint(edit, at)
        if tag in _NUMBERS:
            numbers[tag], at = varint(edit, at)
        elif tag in (_COMPARATOR, _FAMILY_ADD) or tag & _SAFE_TO_IGNORE:
            _, at = length_prefixed(edit, at)
        elif tag == _DELETED_FILE:
            _, at = varint(edit, at)  # level
            number, at = varint(edit, at)
            deleted.append(number)
        elif tag == _COMPACT_CURSOR:
            _, at = varint(edit, at)
            _, at = length_prefixed(edit, at)
        elif tag == _NEW_FILE_4:
            number, at = _new_file(edit, at)
            added.append(number)
        elif tag in (_BLOB_FILE_ADDITION, _BLOB_FILE_GARBAGE):
            at = _skip_blob_file(edit, at, checksummed=tag == _BLOB_FILE_ADDITION)
        elif tag != _FAMILY_DROP:
            return None
    return Edit(
        numbers.get(_FAMILY, 0),
        numbers.get(_LOG_NUMBER),
        numbers.get(_MINIMUM_LOG),
        end_offset,
        tuple(added),
        tuple(deleted),
    )


def _new_file(edit: bytes, at: int) -> tuple[int, int]:
    """A new table's number, and the offset behind the whole field."""
    _, at = varint(edit, at)  # level
    number, at = varint(edit, at)
    _, at = varint(edit, at)  # size
    for _ in range(2):  # smallest and largest key
        _, at = length_prefixed(edit, at)
    for _ in range(2):  # smallest and largest sequence number
        _, at = varint(edit, at)
    return number, _skip_fields(edit, at, _END_OF_FILE_FIELDS)


def _skip_blob_file(edit: bytes, at: int, *, checksummed: bool) -> int:
    """Source: db/blob/blob_file_addition.cc and blob_file_garbage.cc, EncodeTo."""
    for _ in range(3):  # number, count, bytes
        _, at = varint(edit, at)
    for _ in range(2 if checksummed else 0):  # checksum method and value
        _, at = length_prefixed(edit, at)
    return _skip_fields(edit, at, _END_OF_BLOB_FIELDS)


def _skip_fields(edit: bytes, at: int, end: int) -> int:
    """Skip tagged fields up to the tag that ends them."""
    while True:
        tag, at = varint(edit, at)
        if tag == end:
            return at
        _, at = length_prefixed(edit, at)
