"""The WAL and MANIFEST readers against RocksDB's own files and its own tool's reading of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from engines.rocksdb.log_format import BLOCK_BYTES, CompressedLog, records
from engines.rocksdb.log_reader import RocksdbLogReader
from engines.rocksdb.manifest import edits
from engines.rocksdb.wal import located_writes
from tests.engines_tests.rocksdb_tests.conftest import KilledDatabase, MakeDatabase

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def small(make_database: MakeDatabase) -> KilledDatabase:
    """Records of about a kilobyte, with a flush and so an edit of the MANIFEST in the middle."""
    return make_database({}, {}, provoke="flush@0.5")


@pytest.fixture(scope="module")
def large(make_database: MakeDatabase) -> KilledDatabase:
    """Records of 60,000 bytes: every one spans blocks."""
    return make_database({}, {"fieldlength": "6000", "writeallfields": "true"})


def tool(*command: str | Path) -> str:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("which", ["small", "large"])
def test_records_are_those_that_ldb_reads(which: str, ldb: str, request: pytest.FixtureRequest) -> None:
    """Sequence numbers, counts and sizes agree; an end offset lies before the next record's start."""
    database: KilledDatabase = request.getfixturevalue(which)
    log = max(database.logs, key=lambda path: path.stat().st_size)
    lines = tool(ldb, "dump_wal", f"--walfile={log}", "--header").splitlines()[1:]
    theirs = [tuple(map(int, line.split(",")[:4])) for line in lines if re.match(r"\d+,\d+,\d+,\d+,", line)]
    ours = list(records(log.read_bytes()))
    assert [
        (int.from_bytes(r.payload[:8], "little"), int.from_bytes(r.payload[8:12], "little"), len(r.payload))
        for r in ours
    ] == [(sequence, count, size) for sequence, count, size, _ in theirs]
    starts = [offset for *_, offset in theirs]
    assert len(ours) > 10
    for record, start, following in zip(ours, starts, [*starts[1:], log.stat().st_size + 7], strict=True):
        assert start + len(record.payload) + 7 <= record.end_offset <= following
    if which == "large":
        assert all(
            start // BLOCK_BYTES < r.end_offset // BLOCK_BYTES for r, start in zip(ours, starts, strict=True)
        )


@pytest.mark.parametrize("which", ["small", "large"])
def test_every_acknowledged_write_is_located(which: str, request: pytest.FixtureRequest) -> None:
    """With sync=false every ack's record was written before the ack, so the killed logs hold them all."""
    database: KilledDatabase = request.getfixturevalue(which)
    located = {
        (write.client, write.sequence): write
        for log in database.logs
        for write in located_writes(log.read_bytes())
    }
    acked = database.entries.acknowledged
    clients, sequences = database.entries.client[acked].tolist(), database.entries.sequence[acked].tolist()
    wanted = set(zip(clients, sequences, strict=True))
    assert len(wanted) > 100
    assert {write.family for write in located.values()} == {0}
    if which == "large":
        assert wanted <= set(located)
        return
    # The flush has removed the log before it: what is gone is older than all that is there.
    for client in set(clients):
        gone = [sequence for c, sequence in wanted - set(located) if c == client]
        kept = [sequence for c, sequence in located if c == client]
        assert max(gone, default=0) < min(kept, default=sys.maxsize)
    assert wanted - set(located)


def test_a_log_that_is_cut_short_loses_its_last_records_and_no_others(large: KilledDatabase) -> None:
    content = large.logs[-1].read_bytes()
    whole = list(records(content))
    for record in whole[:: max(1, len(whole) // 20)]:
        assert len(list(records(content[: record.end_offset]))) == whole.index(record) + 1
        assert len(list(records(content[: record.end_offset - 1]))) == whole.index(record)


def test_preallocated_zeros_end_a_log(small: KilledDatabase) -> None:
    content = small.logs[-1].read_bytes()
    assert list(records(content + bytes(100_000))) == list(records(content))
    assert list(records(bytes(100_000))) == []
    assert list(records(b"")) == []


def test_a_compressed_log_is_opaque(make_database: MakeDatabase) -> None:
    database = make_database({"DBOptions.wal_compression": "kZSTD"}, {})
    log = max(database.logs, key=lambda path: path.stat().st_size)
    with pytest.raises(CompressedLog):
        list(located_writes(log.read_bytes()))
    found = RocksdbLogReader().map_logs({3: f"db/{log.name}"}, lambda _: log.read_bytes())
    assert "wal_compression" in found.opaque
    assert (list(found.places), [(order.file, order.rank) for order in found.logs]) == (
        [],
        [(3, int(log.stem))],
    )


EDIT = re.compile(r"VersionEdit \{(.*?)\n\}", re.DOTALL)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"CFOptions.enable_blob_files": "true", "CFOptions.min_blob_size": "0"},
        {"DBOptions.track_and_verify_wals_in_manifest": "true"},
        {"DBOptions.write_dbid_to_manifest": "true", "CFOptions.write_buffer_size": "65536"},
    ],
    ids=["defaults", "blobs", "tracked WALs", "many flushes"],
)
def test_edits_say_of_logs_what_ldb_reads(
    make_database: MakeDatabase, ldb: str, settings: dict[str, str]
) -> None:
    database = make_database(settings, {}, provoke="flush@0.3,compact@0.5,flush@0.8")
    (manifest,) = database.manifests
    text = tool(ldb, "manifest_dump", "--verbose", f"--path={manifest}")
    theirs = []
    for body in EDIT.findall(text):
        numbers = {
            name: int(found[1]) if (found := re.search(rf"^  {name}: (\d+)$", body, re.MULTILINE)) else None
            for name in ("LogNumber", "MinLogNumberToKeep", "ColumnFamily")
        }
        if numbers["LogNumber"] is not None or numbers["MinLogNumberToKeep"] is not None:
            theirs.append((numbers["ColumnFamily"], numbers["LogNumber"], numbers["MinLogNumberToKeep"]))
    ours = [(edit.family, edit.log_number, edit.minimum_log) for edit in edits(manifest.read_bytes())]
    assert ours == theirs
    assert len(ours) >= 3


def test_a_flush_releases_the_logs_before_it(small: KilledDatabase) -> None:
    (manifest,) = small.manifests
    files = {7: f"db/{manifest.name}", 8: f"db/{small.logs[-1].name}"}
    paths = {7: manifest, 8: small.logs[-1]}
    found = RocksdbLogReader().map_logs(files, lambda number: paths[number].read_bytes())
    newest = int(small.logs[-1].stem)
    assert max(statement.rank for statement in found.released) == newest
    assert all(0 < s.end_offset <= manifest.stat().st_size and s.file == 7 for s in found.released)
    assert {statement.family for statement in found.released} == {0, None}
    assert [(order.file, order.rank) for order in found.logs] == [(8, newest)]
    assert found.opaque == ""
