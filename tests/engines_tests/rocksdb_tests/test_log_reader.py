"""Roles of RocksDB's files, and the parts of its formats that a run does not always show."""

from __future__ import annotations

import pytest

from engines.engine import FileRole
from engines.rocksdb.engine import RocksdbEngine
from engines.rocksdb.launch import RocksdbLaunch
from engines.rocksdb.log_format import BLOCK_BYTES, records
from engines.rocksdb.log_reader import RocksdbLogReader
from engines.rocksdb.manifest import edits
from engines.rocksdb.readback import effective_settings
from engines.rocksdb.wal import located_writes
from knobs.contract import Contract
from knobs.errors import InvalidInput

READER = RocksdbLogReader()


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("000012.log", "wal"),
        ("000012.sst", "table"),
        ("000012.blob", "table"),
        ("MANIFEST-000005", "manifest"),
        ("CURRENT", "current"),
        ("000005.dbtmp", "current"),
        ("OPTIONS-000007", "options"),
        ("OPTIONS-000007.dbtmp", "options"),
        ("IDENTITY", "identity"),
        ("LOCK", "lock"),
        ("LOG", "info-log"),
        ("LOG.old.1795966333979211", "info-log"),
        ("CURRENT.bak", "other"),
        ("x000012.log", "other"),
    ],
)
def test_roles(name: str, role: FileRole) -> None:
    for path in (name, f"db/{name}", f"db/archive/{name}"):
        assert READER.role(path) == role
    assert READER.unrecorded(f"db/{name}") == (role == "info-log")


def test_logs_are_ranked_by_their_number() -> None:
    assert (
        READER.log_rank("db/000009.log")
        < READER.log_rank("db/000010.log")
        < READER.log_rank("db/1000000.log")
    )


def fragment(kind: int, payload: bytes, log_number: int | None = None) -> bytes:
    recyclable = b"" if log_number is None else log_number.to_bytes(4, "little")
    return bytes(4) + len(payload).to_bytes(2, "little") + bytes([kind]) + recyclable + payload


def test_a_block_whose_end_has_no_room_for_a_header_is_padded() -> None:
    first = fragment(1, b"x" * (BLOCK_BYTES - 7 - 5))
    content = first + bytes(5) + fragment(1, b"second")
    found = list(records(content))
    assert [record.payload for record in found] == [b"x" * (BLOCK_BYTES - 12), b"second"]
    assert [record.end_offset for record in found] == [BLOCK_BYTES - 5, BLOCK_BYTES + 13]


def test_a_record_of_three_fragments_ends_with_its_last() -> None:
    room = BLOCK_BYTES - 7
    content = fragment(2, b"a" * room) + fragment(3, b"b" * room) + fragment(4, b"c")
    (record,) = records(content)
    assert record.payload == b"a" * room + b"b" * room + b"c"
    assert record.end_offset == len(content)
    assert list(records(content[:-1])) == []


def test_recyclable_fragments_have_a_longer_header() -> None:
    (record,) = records(fragment(5, b"payload", log_number=12))
    assert (record.payload, record.end_offset) == (b"payload", 18)


def batch(*operations: bytes) -> bytes:
    return fragment(1, bytes(8) + len(operations).to_bytes(4, "little") + b"".join(operations))


def stored(client: int, sequence: int) -> bytes:
    value = b"DTV1" + client.to_bytes(4, "little") + sequence.to_bytes(8, "little") + b"the rest"
    return bytes([len(value)]) + value


def test_a_batch_of_every_kind_of_operation_is_walked_to_its_end() -> None:
    content = batch(
        b"\x01\x01k" + stored(1, 5),  # put
        b"\x00\x01k",  # delete
        b"\x05\x07\x01k" + stored(2, 6),  # put into family 7
        b"\x03\x04blob",  # log data
        b"\x0d",  # no operation
        b"\x04\x07\x01k",  # delete from family 7
        b"\x01\x01k\x03abc",  # a value that is not ours
        b"\x01\x01k" + stored(3, 7),
    )
    found = [(write.client, write.sequence, write.family) for write in located_writes(content)]
    assert found == [(1, 5, 0), (2, 6, 7), (3, 7, 0)]


def test_behind_an_unknown_operation_nothing_is_located() -> None:
    content = batch(b"\x01\x01k" + stored(1, 5), b"\x7f", b"\x01\x01k" + stored(1, 6))
    assert [write.sequence for write in located_writes(content)] == [5]


def test_an_edit_with_an_unknown_field_is_left_out() -> None:
    known = fragment(1, b"\x02\x09" + b"\xc8\x01\x04")  # log number 9, family 4
    unknown = fragment(1, b"\x02\x0a\x7e\x01")
    (edit,) = edits(unknown + known)
    assert (edit.family, edit.log_number, edit.minimum_log) == (4, 9, None)
    assert edit.end_offset == len(unknown) + len(known)


def test_the_reference_is_the_fewest_settings_that_hold_the_contract() -> None:
    engine = RocksdbEngine()
    assert engine.reference_settings(Contract("process")) == {}
    for contract in (Contract("strict"), Contract.parse("bounded:1s")):
        assert engine.reference_settings(contract) == {"WriteOptions.sync": "true"}


def test_a_launch_says_how_the_driver_opens_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("launch")
    settings = {
        "WriteOptions.sync": "true",
        "WriteOptions.disableWAL": "false",
        "Application.flush_wal_every_ms": "50",
        "DBOptions.manual_wal_flush": "true",
    }
    launch = RocksdbEngine().launch(settings, folder)
    spec = launch.spec()
    assert (spec["write.sync"], spec["write.disableWAL"]) == ("true", "false")
    assert (spec["application.flush_wal_every_ms"], spec["application.sync_wal_every_ms"]) == ("50", "0")
    assert spec["db.path"] == str(folder / "db")
    written = effective_settings((folder / "OPTIONS").read_text(), "default")
    assert written["DBOptions.manual_wal_flush"] == "true"
    assert not any(name.startswith(("WriteOptions", "Application")) for name in written)


def test_an_unknown_write_option_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(InvalidInput, match="synch"):
        RocksdbLaunch(tmp_path_factory.mktemp("launch"), write_options={"synch": True})
