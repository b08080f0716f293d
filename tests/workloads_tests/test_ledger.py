"""The ledger: what is written is what is read, and nothing that is damaged is believed."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knobs.errors import InvalidInput, MachineLacks
from workloads.ledger import (
    ACKNOWLEDGED,
    BEGUN,
    FAILED,
    STOP_ASKED,
    STOP_LEDGER_FULL,
    STOP_NONE,
    Ledger,
    SyncSample,
    entries_offset,
    file_bytes,
)

# The layout once more, from docs/formats.md and not from the module: begin, begin_ns, end, end_ns, register,
# checksum, kind, status, extra.
ENTRY = struct.Struct("<6QIIQ")
Entry = tuple[int, ...]

u64 = st.integers(0, 2**64 - 1)


@st.composite
def entry(draw: st.DrawFn) -> Entry:
    begin = draw(st.integers(1, 2**40))
    status = draw(st.sampled_from([BEGUN, ACKNOWLEDGED, FAILED]))
    end = draw(st.integers(begin + 1, 2**41)) if status == ACKNOWLEDGED else 0
    end_ns = draw(u64) if status == ACKNOWLEDGED else 0
    return (begin, draw(u64), end, end_ns, draw(u64), draw(u64), draw(st.integers(1, 3)), status, draw(u64))


def write(path: Path, clients: list[list[Entry]], capacity: int, position: int = 2**42) -> None:
    """Write the entries as a client of the format would."""
    with path.open("r+b") as file:
        file.seek(64)
        file.write(struct.pack("<Q", position))
        for client, entries in enumerate(clients):
            file.seek(4096 + 64 * client)
            file.write(struct.pack("<Q", len(entries)))
            first = (4096 + 64 * len(clients) + 4095) // 4096 * 4096
            file.seek(first + client * capacity * 64)
            file.write(b"".join(ENTRY.pack(*values) for values in entries))


@given(st.lists(st.lists(entry(), max_size=5), min_size=1, max_size=70))
def test_round_trip(clients: list[list[Entry]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        Ledger.create(path, len(clients), 5).close()
        write(path, clients, 5)
        with Ledger.open(path) as ledger:
            read = ledger.entries()
    assert len(read) == sum(map(len, clients))
    columns = (
        read.client,
        read.sequence,
        read.begin,
        read.begin_ns,
        read.end,
        read.end_ns,
        read.register,
        read.checksum,
        read.kind,
        read.status,
        read.extra,
    )
    got = list(zip(*(column.tolist() for column in columns), strict=True))
    assert got == [
        (client, sequence, *values)
        for client, entries in enumerate(clients, start=1)
        for sequence, values in enumerate(entries, start=1)
    ]
    assert read.acknowledged.sum() == sum(
        values[7] == ACKNOWLEDGED for entries in clients for values in entries
    )


def test_a_new_ledger_is_empty_and_sparse(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "ledger", clients=3, capacity=1_000_000) as ledger:
        assert (ledger.clients, ledger.capacity) == (3, 1_000_000)
        assert (ledger.position, ledger.operations, ledger.stop) == (1, 0, STOP_NONE)
        assert ledger.sync_sample() is None
        assert len(ledger.entries()) == 0
    about = (tmp_path / "ledger").stat()
    assert about.st_size == 8192 + 3 * 1_000_000 * 64 == file_bytes(3, 1_000_000)
    assert about.st_blocks * 512 < 100_000


def test_an_end_without_its_status_does_not_count(tmp_path: Path) -> None:
    # The kill came between the two stores.
    Ledger.create(tmp_path / "ledger", 1, 2).close()
    write(tmp_path / "ledger", [[(1, 5, 2, 6, 7, 8, 1, BEGUN, 0)]], 2)
    with Ledger.open(tmp_path / "ledger") as ledger:
        read = ledger.entries()
    assert not read.acknowledged.any()
    assert read.end.tolist() == read.end_ns.tolist() == [0]


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ((1, 5, 0, 0, 7, 8, 1, ACKNOWLEDGED, 0), "acknowledged without an end"),
        ((5, 5, 4, 6, 7, 8, 1, ACKNOWLEDGED, 0), "ends before it begins"),
        ((0, 5, 0, 0, 7, 8, 1, BEGUN, 0), "begins at no position"),
        ((51, 5, 0, 0, 7, 8, 1, BEGUN, 0), "never reached"),
        ((1, 5, 50, 6, 7, 8, 1, ACKNOWLEDGED, 0), "never reached"),
        ((1, 5, 0, 0, 7, 8, 1, 3, 0), "unknown status"),
        ((1, 5, 0, 0, 7, 8, 0, BEGUN, 0), "unknown kind"),
    ],
)
def test_a_contradictory_entry_is_refused(tmp_path: Path, values: Entry, fault: str) -> None:
    Ledger.create(tmp_path / "ledger", 2, 2).close()
    good = (1, 5, 2, 6, 7, 8, 1, ACKNOWLEDGED, 0)
    write(tmp_path / "ledger", [[good], [good, values]], 2, position=50)
    with Ledger.open(tmp_path / "ledger") as ledger, pytest.raises(InvalidInput, match=fault) as caught:
        ledger.entries()
    assert "entry 2 of client 2" in caught.value.what


def test_a_write_may_begin_at_a_position_that_nothing_has_taken(tmp_path: Path) -> None:
    # It only read the counter; an acknowledgement that is the next event then takes that very value.
    Ledger.create(tmp_path / "ledger", 2, 1).close()
    begun, answered = (50, 5, 0, 0, 7, 8, 1, BEGUN, 0), (49, 5, 49, 6, 7, 8, 1, ACKNOWLEDGED, 0)
    write(tmp_path / "ledger", [[begun], [answered]], 1, position=50)
    with Ledger.open(tmp_path / "ledger") as ledger:
        read = ledger.entries()
    assert (read.begin.tolist(), read.end.tolist()) == ([50, 49], [0, 49])


def test_operations_are_summed_over_the_clients(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "ledger", 3, 1) as ledger:
        with ledger.path.open("r+b") as file:
            for client, operations in enumerate((5, 0, 700)):
                file.seek(4096 + 64 * client + 8)
                file.write(struct.pack("<Q", operations))
        assert ledger.operations == 705


@pytest.mark.parametrize(
    ("offset", "data"),
    [(0, b"DTWLOG01"), (8, b"\0\0\0\0"), (12, b"\x80"), (16, b"\0\0\0\0"), (16, b"\x05"), (24, b"\xff" * 8)],
)
def test_a_damaged_header_is_refused(tmp_path: Path, offset: int, data: bytes) -> None:
    path = tmp_path / "ledger"
    Ledger.create(path, 2, 10).close()
    Ledger.open(path).close()
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
    with pytest.raises(InvalidInput, match="no usable ledger"):
        Ledger.open(path)


@pytest.mark.parametrize("size", [0, 100, 4095, 4096, 8192 + 64 * 20 - 1])
def test_a_truncated_file_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "ledger"
    Ledger.create(path, 2, 10).close()
    with path.open("r+b") as file:
        file.truncate(size)
    with pytest.raises(InvalidInput, match="no usable ledger"):
        Ledger.open(path)


def test_more_entries_than_room_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    Ledger.create(path, 1, 10).close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(struct.pack("<Q", 11))
    with Ledger.open(path) as ledger, pytest.raises(InvalidInput, match="11 entries in room for 10"):
        ledger.entries()


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "ledger", 1, 1).close()
    with pytest.raises(InvalidInput, match="there already"):
        Ledger.create(tmp_path / "ledger", 1, 1)
    with pytest.raises(InvalidInput, match="cannot open"):
        Ledger.open(tmp_path / "absent")
    with pytest.raises(InvalidInput, match="at least one"):
        Ledger.create(tmp_path / "other", 0, 1)


def test_no_room_for_a_ledger_is_the_machines(tmp_path: Path) -> None:
    """An address space is smaller than this sparse file, as it is under any `ulimit -v` for a smaller one."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.truncate(1 << 50)
        with pytest.raises(MachineLacks, match="Cannot allocate memory") as caught:
            Ledger.open(Path(file.name))
    assert "ulimit -v" in caught.value.hint
    with pytest.raises(MachineLacks, match="File too large"):
        Ledger.create(tmp_path / "larger", 16, 1 << 52)


def test_asking_to_stop_keeps_the_first_reason(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger.create(path, 1, 1) as ledger:
        ledger.ask_stop()
        assert ledger.stop == STOP_ASKED
        with path.open("r+b") as file:
            file.seek(128)
            file.write(struct.pack("<I", STOP_LEDGER_FULL))
        ledger.ask_stop()
        assert ledger.stop == STOP_LEDGER_FULL


def test_sync_sample_is_whole_or_none(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger.create(path, 1, 1) as ledger, path.open("r+b", buffering=0) as file:
        file.seek(256)
        file.write(struct.pack("<4Q", 4, 10, 7, 12))
        assert ledger.sync_sample() == SyncSample(10, 7, 12)
        file.seek(256)
        file.write(struct.pack("<Q", 5))  # killed while writing the next one
        assert ledger.sync_sample() is None


def test_offsets() -> None:
    assert entries_offset(1) == entries_offset(64) == 8192
    assert entries_offset(65) == 12288


def test_entries_are_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger.create(path, 1, 1) as ledger:
        write(path, [[(1, 5, 0, 0, 7, 8, 1, BEGUN, 0)]], 1)
        before = ledger.entries()
        write(path, [[(1, 5, 0, 0, 9, 8, 1, BEGUN, 0)]], 1)
        assert before.register.tolist() == [7]
        assert np.array_equal(ledger.entries().register, [9])
