"""The log of a real cluster, read as pg_waldump and pg_controldata read it."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.postgresql.cluster import Cluster
from engines.postgresql.control_file import ControlFile
from engines.postgresql.log_reader import PostgresqlLogReader
from engines.postgresql.server import start
from engines.postgresql.session import Session
from engines.postgresql.wal import SEGMENT_NAME, Record, Stream
from engines.scratch import Scratch
from knobs.errors import InvalidInput

PAGE, SEGMENT = 8192, 1 << 20
_LINE = re.compile(r"rmgr: (\S+).*tx:\s*(\d+), lsn: ([0-9A-F]+)/([0-9A-F]+), prev .* desc: (\S+)")


def lsn(high: str, low: str) -> int:
    return (int(high, 16) << 32) + int(low, 16)


def segments(data: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in (data / "pg_wal").iterdir()
        if SEGMENT_NAME.fullmatch(path.name)
    }


@pytest.fixture
def killed(cluster: Cluster) -> tuple[Cluster, ControlFile, Mapping[int, int]]:
    """A cluster that wrote and was killed: what its control file said before, and each number's xid."""
    before = ControlFile.read(cluster.data)
    with (
        Scratch() as scratch,
        start(
            cluster, {"wal_compression": "on", "wal_keep_size": "1GB"}, scratch=scratch, watcher=None
        ) as server,
        Session(server.address) as session,
    ):
        session.query("CREATE TABLE t (n bigint, filler text)")
        for number in range(200):
            session.query("INSERT INTO t VALUES ($1, repeat('x', 3000))", [str(number)])
            if number == 60:
                session.query("SELECT pg_switch_wal()")
            if number == 120:
                session.query("CHECKPOINT")
        session.query("BEGIN")
        session.query("INSERT INTO t VALUES (999, 'rolled back')")
        session.query("ROLLBACK")
        xids = {int(xid or 0): int(n or 0) for xid, n in session.query("SELECT xmin, n FROM t")}
        server.kill()
    return cluster, before, xids


@pytest.mark.slow
def test_every_record_is_read_as_pg_waldump_reads_it(
    killed: tuple[Cluster, ControlFile, Mapping[int, int]],
) -> None:
    cluster, before, xids = killed
    assert before.is_shut_down
    stream = Stream.of(segments(cluster.data))
    assert stream is not None
    records = list(stream.records(before.checkpoint))
    first = f"{before.checkpoint >> 32:X}/{before.checkpoint & 0xFFFFFFFF:X}"
    with cluster.seen() as seen:
        said = cluster.run("pg_waldump", ["-p", f"{seen.path}/pg_wal", "-s", first], seen, 60.0).stdout
    theirs = [found.groups() for line in said.splitlines() if (found := _LINE.match(line))]
    assert [(record.xid, record.begin) for record in records] == [
        (int(xid), lsn(high, low)) for _, xid, high, low, _ in theirs
    ]
    assert [record.begin for record in records if record.is_commit] == [
        lsn(high, low)
        for manager, _, high, low, what in theirs
        if (manager, what) == ("Transaction", "COMMIT")
    ]
    assert xids.keys() <= {record.xid for record in records if record.is_commit}
    assert {"SWITCH", "CHECKPOINT_ONLINE"} <= {what for *_, what in theirs}


@pytest.mark.slow
def test_every_commit_is_placed_in_its_segment(
    killed: tuple[Cluster, ControlFile, Mapping[int, int]],
) -> None:
    cluster, before, xids = killed
    names = dict(enumerate(sorted(segments(cluster.data))))
    reader = PostgresqlLogReader(before.checkpoint, {xid: [(1, n + 1)] for xid, n in xids.items()})
    found = reader.map_logs(
        {number: f"db/pg_wal/{name}" for number, name in names.items()},
        lambda number: (cluster.data / "pg_wal" / names[number]).read_bytes(),
    )
    assert found.opaque == ""
    assert [place.sequence for place in found.places] == list(range(1, 201))
    assert len({place.file for place in found.places}) > 1
    assert [(place.file, place.end_offset) for place in found.places] == sorted(
        (place.file, place.end_offset) for place in found.places
    )
    first = next(order for order in found.logs if order.file == found.places[0].file)
    assert 0 < (first.base_bytes or 0) < found.places[0].end_offset
    assert [order.base_bytes for order in found.logs[1:]] == [0] * (len(found.logs) - 1)


@pytest.mark.slow
def test_the_control_file_is_read_as_pg_controldata_reads_it(cluster: Cluster) -> None:
    with cluster.seen() as seen:
        said = cluster.run("pg_controldata", [seen.path], seen, 60.0).stdout
    values = {
        name.strip(): value.strip() for name, _, value in (line.partition(":") for line in said.splitlines())
    }
    found = ControlFile.read(cluster.data)
    assert str(found.system) == values["Database system identifier"]
    assert found.is_shut_down and values["Database cluster state"] == "shut down"
    assert found.checkpoint == lsn(*values["Latest checkpoint location"].split("/"))
    assert found.redo == lsn(*values["Latest checkpoint's REDO location"].split("/"))
    assert str(found.timeline) == values["Latest checkpoint's TimeLineID"]


@pytest.mark.parametrize("content", [None, b"", b"\0" * 100, struct.pack("<QI", 1, 1899) + b"\0" * 60])
def test_what_is_no_control_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "global").mkdir()
    if content is not None:
        (tmp_path / "global" / "pg_control").write_bytes(content)
    if content is not None and len(content) > 60 and content[8]:
        assert not ControlFile.read(tmp_path).is_shut_down
        return
    with pytest.raises(InvalidInput):
        ControlFile.read(tmp_path)


# A log made by hand.


def written(lengths: list[int]) -> tuple[bytes, list[Record]]:
    """Records of these lengths from the first place on, as the server lays them out."""
    log, at, previous, records = bytearray(SEGMENT), 40, 0, []
    for page in range(0, SEGMENT, PAGE):
        struct.pack_into("<HHIQI", log, page, 0xD110, 2 if page == 0 else 0, 1, page, 0)
    struct.pack_into("<QII", log, 24, 7, SEGMENT, PAGE)
    for number, length in enumerate(lengths):
        body = struct.pack("<IIQBBxxI", length, number + 1, previous, 0, 1, 0) + bytes([number % 255 + 1]) * (
            length - 24
        )
        begin, left = at, memoryview(body)
        while left:
            if at % PAGE == 0:
                struct.pack_into("<HHIQI", log, at, 0xD110, 1, 1, at, len(left))
                at += 24
            step = min(len(left), PAGE - at % PAGE)
            log[at : at + step] = left[:step]
            at, left = at + step, left[step:]
        records.append(Record(begin, at, number + 1, 1, 0))
        previous, at = begin, (at + 7) & ~7
        at += 24 if at % PAGE == 0 else 0
    return bytes(log), records


@given(st.lists(st.integers(24, 20_000), min_size=1, max_size=30))
def test_records_across_pages_are_read_to_the_last(lengths: list[int]) -> None:
    log, records = written(lengths)
    stream = Stream.of({"000000010000000000000000": log})
    assert stream is not None and list(stream.records(40)) == records


@pytest.mark.parametrize("fault", ["page of another place", "chain", "length", "rest"])
def test_what_does_not_fit_ends_the_log(fault: str) -> None:
    log, records = written([5000] * 10)
    broken = bytearray(log)
    third = records[3]
    if fault == "page of another place":
        struct.pack_into("<Q", broken, third.end - third.end % PAGE + 8, 12345)
    elif fault == "chain":
        struct.pack_into("<Q", broken, third.begin + 8, records[1].begin)
    elif fault == "length":
        struct.pack_into("<I", broken, third.begin, 3)
    else:
        struct.pack_into("<I", broken, third.end - third.end % PAGE + 16, 1)
    stream = Stream.of({"000000010000000000000000": bytes(broken)})
    assert stream is not None
    assert list(stream.records(40)) == records[:3]


def test_a_file_that_is_no_log_makes_no_stream() -> None:
    assert Stream.of({}) is None
    assert Stream.of({"000000010000000000000000": bytes(SEGMENT)}) is None
