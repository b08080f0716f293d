"""PostgreSQL's write-ahead log, read from the bytes of its segments: which transaction committed where.

Sources: access/xlog_internal.h (page headers), access/xlogrecord.h (record header), catalog/pg_control.h
and access/xact.h (kinds), all of them the same from PostgreSQL 13 to 18. Only headers are read, so neither
wal_compression nor a full page image hides anything. A record counts only where the chain holds: it names
its predecessor's place, and every page the place that it is for; what a recycled segment still holds from
its earlier life fits neither.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

SEGMENT_NAME = re.compile(r"([0-9A-F]{8})([0-9A-F]{8})([0-9A-F]{8})")
_PAGE = struct.Struct("<HHIQI")
_LONG_PAGE = struct.Struct("<QII")
_RECORD = struct.Struct("<IIQBBxxI")
_PAGE_HEADER_BYTES, _LONG_HEADER_BYTES, _LONG_HEADER = 24, 40, 0x0002
_CONTINUES = 0x0001
_RECORD_BYTES_MAX = 1 << 30
RM_XLOG, RM_XACT = 0, 1
_INFO_OF_RM, _XACT_KIND = 0xF0, 0x70
_SWITCH = 0x40
_COMMIT, _COMMIT_PREPARED = 0x00, 0x30


@dataclass(frozen=True)
class Record:
    """One record: where it begins and where the byte after its last one is, as LSNs."""

    begin: int
    end: int
    xid: int
    resource_manager: int
    info: int

    @property
    def is_commit(self) -> bool:
        """Whether it makes its transaction durable once it is. A prepared one's xid stands elsewhere."""
        return self.resource_manager == RM_XACT and self.info & _XACT_KIND == _COMMIT


class Stream:
    """The log as one space of LSNs over the segments that are known."""

    def __init__(self, segments: Mapping[int, bytes], page_bytes: int, segment_bytes: int) -> None:
        """``segments`` by number: LSN // segment size."""
        self._segments = segments
        self.page_bytes = page_bytes
        self.segment_bytes = segment_bytes
        self._page_at = -1  # the last page that was seen to be of its place

    @staticmethod
    def of(segments: Mapping[str, bytes]) -> Stream | None:
        """The stream of segments by file name; None where no segment's first page can be read."""
        for content in segments.values():
            if len(content) < _LONG_HEADER_BYTES:
                continue
            _, info, _, _, _ = _PAGE.unpack_from(content)
            _, segment_bytes, page_bytes = _LONG_PAGE.unpack_from(content, _PAGE_HEADER_BYTES)
            if info & _LONG_HEADER and _is_power_of_two(page_bytes) and _is_power_of_two(segment_bytes):
                numbered = {
                    segment_number(name, segment_bytes): content for name, content in segments.items()
                }
                return Stream(numbered, page_bytes, segment_bytes)
        return None

    def records(self, start: int) -> Iterator[Record]:
        """The records from the LSN of one on, as far as the chain holds."""
        previous: int | None = None
        at = start
        while True:
            record, before = self._record(at)
            if record is None or (previous is not None and before != previous):
                return
            yield record
            previous, at = record.begin, self._next(record)

    def _record(self, at: int) -> tuple[Record | None, int]:
        """The record at an LSN and the LSN of the one before it; None where none can be read."""
        found = self._record_within_page(at)
        if found is not None:
            return found
        header = self._read(at, _RECORD.size, is_whole=False)
        if header is None:
            return None, 0
        data, _ = header
        length, xid, before, info, manager, _ = _RECORD.unpack(data)
        if not _RECORD.size <= length <= _RECORD_BYTES_MAX or before >= at:
            return None, 0
        whole = self._read(at, length)
        if whole is None:
            return None, 0
        return Record(at, whole[1], xid, manager, info), before

    def _record_within_page(self, at: int) -> tuple[Record, int] | None:
        """The same where no page ends in it, which is most of them; None for `_record` to look closer."""
        page_at, offset = at - at % self.page_bytes, at % self.segment_bytes
        segment = self._segments.get(at // self.segment_bytes)
        is_inside = page_at + _LONG_HEADER_BYTES <= at <= page_at + self.page_bytes - _RECORD.size
        if segment is None or not is_inside:
            return None
        if page_at != self._page_at and self._page_body(at, 1, is_continued=False, is_whole=False) is None:
            return None
        self._page_at = page_at
        length, xid, before, info, manager, _ = _RECORD.unpack_from(segment, offset)
        if length < _RECORD.size or at + length > page_at + self.page_bytes or before >= at:
            return None
        return Record(at, at + length, xid, manager, info), before

    def _read(self, at: int, length: int, *, is_whole: bool = True) -> tuple[bytes, int] | None:
        """So many bytes of a record from its LSN on, page headers left out, and the LSN behind them."""
        data = bytearray()
        while len(data) < length:
            missing = length - len(data)
            body = self._page_body(at, missing, is_continued=bool(data), is_whole=is_whole)
            if body is None:
                return None
            begin, content = body
            data += content
            at = begin + len(content)
        return bytes(data), at

    def _page_body(
        self, at: int, missing: int, *, is_continued: bool, is_whole: bool
    ) -> tuple[int, bytes] | None:
        """What a page holds from an LSN on, up to ``missing`` bytes; None where it is not of this place.

        A page on which a record goes on says how much of it is left: the missing bytes of a whole one.
        """
        page_at = at - at % self.page_bytes
        segment = self._segments.get(at // self.segment_bytes)
        offset = page_at % self.segment_bytes
        if segment is None or offset + self.page_bytes > len(segment):
            return None
        _, info, _, address, remaining = _PAGE.unpack_from(segment, offset)
        if address != page_at:
            return None
        header_bytes = _LONG_HEADER_BYTES if info & _LONG_HEADER else _PAGE_HEADER_BYTES
        if is_continued and (not info & _CONTINUES or (is_whole and remaining != missing)):
            return None
        begin = max(at, page_at + header_bytes)
        end = min(page_at + self.page_bytes, begin + missing)
        inside = offset + begin - page_at
        return begin, segment[inside : inside + end - begin]

    def _next(self, record: Record) -> int:
        """Where the next record begins: aligned, behind a page's header, in a new segment after a switch."""
        at = (record.end + 7) & ~7
        if record.resource_manager == RM_XLOG and record.info & _INFO_OF_RM == _SWITCH:
            at = -(-at // self.segment_bytes) * self.segment_bytes
        if at % self.page_bytes == 0:
            at += _LONG_HEADER_BYTES if at % self.segment_bytes == 0 else _PAGE_HEADER_BYTES
        return at


def segment_number(name: str, segment_bytes: int) -> int:
    """The number of a segment by its file name: LSN // segment size. Raises ValueError for another name."""
    found = SEGMENT_NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name} is no segment of the log")
    return (int(found[2], 16) << 32) // segment_bytes + int(found[3], 16)


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
