"""The reader of write logs: what was recorded comes back, what is damaged is refused and never skipped."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crashlab.recording.write_log import BLOCK_BYTES, Kind, Operation, WriteLog
from knobs.errors import InvalidInput, MachineLacks, Undecided

NONCE = 0x1234_5678_9ABC_DEF1
PATHS = {Kind.CREATE: 1, Kind.UNLINK: 1, Kind.MKDIR: 1, Kind.RMDIR: 1, Kind.RENAME: 2, Kind.LINK: 2}


def encode(
    kind: int,
    position: int,
    *,
    phase: int = 0,
    ns: int = 0,
    begin: int = 0,
    inode: int = 0,
    a: int = 0,
    b: int = 0,
    flags: int = 0,
    payload: bytes = b"",
) -> bytes:
    """One record as docs/formats.md has it, written down a second time, apart from the reader."""
    size = -(-(64 + len(payload)) // 8) * 8
    head = struct.pack(
        "<IHHQQQQqqII", size, kind, phase, position, ns, begin, inode, a, b, len(payload), flags
    )
    return (head + payload).ljust(size, b"\0")


@dataclass
class LogFile:
    """A log built by hand: chunks of records, and blocks that were claimed and never begun."""

    path: Path
    capacity: int = 64 * BLOCK_BYTES
    tail: int = BLOCK_BYTES
    body: bytes = b""

    def chunk(self, records: list[bytes], pid: int = 7, tid: int = 8, nonce: int = NONCE) -> None:
        content = b"".join(records)
        blocks = max(1, -(-(24 + len(content)) // BLOCK_BYTES))
        head = struct.pack("<QIIII", nonce, blocks, pid, tid, 0)
        self.add((head + content).ljust(blocks * BLOCK_BYTES, b"\0"))

    def unbegun(self, blocks: int) -> None:
        self.add(bytes(blocks * BLOCK_BYTES))

    def add(self, data: bytes) -> None:
        self.body += data
        self.tail += len(data)

    def write(self, *, full: int = 0, counts: tuple[int, ...] = ()) -> WriteLog:
        header = bytearray(BLOCK_BYTES)
        struct.pack_into("<8sQQI", header, 0, b"DTWLOG01", self.capacity, NONCE, BLOCK_BYTES)
        struct.pack_into("<Q", header, 64, self.tail)
        struct.pack_into("<I", header, 128, full)
        struct.pack_into(f"<{len(counts)}I", header, 192, *counts)
        with self.path.open("wb") as file:
            file.write(bytes(header) + self.body)
            file.truncate(max(self.capacity, BLOCK_BYTES + len(self.body)))
        return WriteLog.read(self.path)


@pytest.fixture
def log_file(tmp_path: Path) -> LogFile:
    return LogFile(tmp_path / "write.log")


# ---- what is recorded comes back ----


def test_answered_and_open_operations(log_file: LogFile) -> None:
    log_file.chunk(
        [
            encode(1, 1, ns=10, a=7, b=99, payload=b"/data/root"),
            encode(2, 2, ns=20, payload=b"db/000004.log"),
            encode(2, 3, ns=30, phase=1, begin=2, inode=55, a=9),
            encode(3, 5, ns=50, inode=55, a=4096, flags=1, payload=b"hello"),
        ]
    )
    log_file.chunk([encode(6, 4, ns=40, inode=55, a=66, payload=b"db/a\0db/b")], pid=7, tid=9)
    log = log_file.write(full=1, counts=(2, 0, 0, 0, 0, 3))
    attach, create, rename, write = log.operations
    assert attach == Operation(1, 1, 10, 10, 7, 8, Kind.ATTACH, 0, 7, 99, 0, 0, b"", "/data/root", "")
    assert create == Operation(2, 3, 20, 30, 7, 8, Kind.CREATE, 55, 0, 0, 0, 9, b"", "db/000004.log", "")
    assert rename == Operation(4, None, 40, None, 7, 9, Kind.RENAME, 55, 66, 0, 0, None, b"", "db/a", "db/b")
    assert (write.a, write.flags, write.result, bytes(write.data)) == (4096, 1, None, b"hello")
    assert log.full and log.attached_pids == [7] and log.record_count == 5
    assert log.unsupported == {"shared-writable-mapping": 2, "stdio-writer": 3}


def test_operations_cannot_be_changed(log_file: LogFile) -> None:
    log_file.chunk([encode(11, 1)])
    (operation,) = log_file.write().operations
    assert type(operation) is Operation
    with pytest.raises(FrozenInstanceError):
        operation.begin = 2  # type: ignore[misc]  # what mypy refuses must also fail when it runs


def test_blocks_that_were_claimed_and_never_begun_are_passed_over(log_file: LogFile) -> None:
    log_file.unbegun(3)
    log_file.chunk([encode(11, 1, inode=5)])
    log_file.unbegun(1)
    log_file.chunk([encode(3, 2, inode=5, payload=bytes(3 * BLOCK_BYTES))])
    log_file.chunk([encode(11, 3, inode=6)])
    assert [o.begin for o in log_file.write().operations] == [1, 2, 3]


def test_log_that_filled_up_has_a_tail_beyond_its_end(log_file: LogFile) -> None:
    log_file.capacity = 3 * BLOCK_BYTES
    log_file.chunk([encode(11, 1)])
    log_file.unbegun(1)
    log_file.tail += 5 * BLOCK_BYTES
    assert len(log_file.write(full=1).operations) == 1


def test_name_that_is_no_text_comes_back_as_the_system_has_it(log_file: LogFile) -> None:
    log_file.chunk([encode(8, 1, inode=1, payload=b"db/\xff\xfe")])
    assert log_file.write().operations[0].path == "db/\udcff\udcfe"


def test_new_log_is_empty_and_sparse(tmp_path: Path) -> None:
    path = tmp_path / "log"
    WriteLog.create(path, 1 << 30)
    assert path.stat().st_size == 1 << 30 and path.stat().st_blocks * 512 <= 65536
    log = WriteLog.read(path)
    assert (log.operations, log.used_bytes, log.full) == ([], BLOCK_BYTES, False)


def test_first_part_can_have_its_memory_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    WriteLog.create(path, 1 << 30, ready_bytes=1 << 20)
    assert 1 << 20 <= path.stat().st_blocks * 512 < 1 << 21
    assert WriteLog.read(path).operations == []


def test_log_that_finds_no_room_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(MachineLacks, match="no room"):
        WriteLog.create(tmp_path / "log", 1 << 43, ready_bytes=1 << 43)
    assert list(tmp_path.iterdir()) == []


def test_two_logs_have_different_nonces(tmp_path: Path) -> None:
    for name in ("a", "b"):
        WriteLog.create(tmp_path / name, 2 * BLOCK_BYTES)
    assert WriteLog.read(tmp_path / "a").nonce != WriteLog.read(tmp_path / "b").nonce


@pytest.mark.parametrize("capacity", [0, BLOCK_BYTES, 2 * BLOCK_BYTES + 8, -BLOCK_BYTES])
def test_capacity_that_cannot_be_is_refused(tmp_path: Path, capacity: int) -> None:
    with pytest.raises(InvalidInput):
        WriteLog.create(tmp_path / "log", capacity)
    assert not (tmp_path / "log").exists()


def test_log_is_never_overwritten(tmp_path: Path) -> None:
    WriteLog.create(tmp_path / "log", 2 * BLOCK_BYTES)
    with pytest.raises(InvalidInput, match="exists"):
        WriteLog.create(tmp_path / "log", 2 * BLOCK_BYTES)


def test_compacted_log_reads_the_same_and_is_small(log_file: LogFile, tmp_path: Path) -> None:
    log_file.chunk([encode(3, 1, inode=5, payload=b"x" * 5000)])
    log_file.unbegun(2)
    log_file.chunk([encode(3, 2, phase=1, begin=1, inode=5, a=5000)])
    log_file.chunk([encode(3, 3, inode=5, payload=b"y" * 100_000)])
    log = log_file.write(full=1, counts=(0, 0, 0, 0, 1))
    kept_bytes = WriteLog.compact(log_file.path, tmp_path / "kept")
    kept = WriteLog.read(tmp_path / "kept")
    assert kept.operations == log.operations
    assert (kept.full, kept.unsupported, kept.nonce) == (log.full, log.unsupported, log.nonce)
    assert kept_bytes < 150_000 < log.used_bytes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "write.log"]
    WriteLog.compact(tmp_path / "kept", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "kept").read_bytes()


# ---- what is damaged is refused ----

DAMAGE: dict[str, tuple[list[bytes], str]] = {
    "same position twice": ([encode(11, 1), encode(12, 1)], "two records have the position 1"),
    "end without a begin": ([encode(11, 1), encode(11, 3, phase=1, begin=2)], "the end at position 3"),
    "only an end": ([encode(11, 3, phase=1, begin=2)], "the end at position 3 has no begin"),
    "two ends": ([encode(11, 1), *(encode(11, p, phase=1, begin=1) for p in (2, 3))], "two ends"),
    "end of another kind": ([encode(11, 1), encode(12, 2, phase=1, begin=1)], "of another operation"),
    "end before its begin": ([encode(11, 3), encode(11, 2, phase=1, begin=3)], "answers itself"),
    "unknown kind": ([encode(17, 1)], "unknown kind"),
    "kind 0": ([encode(0, 1)], "unknown kind"),
    "unknown phase": ([encode(11, 1, phase=2)], "unknown phase"),
    "ended attach": ([encode(1, 2, phase=1, begin=1)], "unknown phase"),
    "position 0": ([encode(11, 0)], "the position 0"),
    "short record": ([struct.pack("<IHH", 56, 11, 0) + bytes(56)], "claims 56 bytes"),
    "odd record": ([struct.pack("<IHH", 65, 11, 0) + bytes(64)], "claims 65 bytes"),
    "record beyond its chunk": ([struct.pack("<IHH", 65536, 11, 0) + bytes(64)], "claims 65536 bytes"),
    "payload that is not there": ([encode(3, 1)[:56] + struct.pack("<II", 9, 0)], "does not fit"),
    "more written than given": (
        [encode(3, 1, payload=b"abc"), encode(3, 2, phase=1, begin=1, a=4)],
        "wrote more than it was given",
    ),
    "rename to nowhere": ([encode(6, 1, payload=b"only one")], "no usable path"),
    "three paths": ([encode(7, 1, payload=b"a\0b\0c")], "no usable path"),
    "empty path": ([encode(2, 1)], "no usable path"),
    "path out of the root": ([encode(2, 1, payload=b"db/../../etc/passwd")], "no usable path"),
    "absolute path": ([encode(6, 1, payload=b"a\0/etc/passwd")], "no usable path"),
}


@pytest.mark.parametrize(("records", "words"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_told(log_file: LogFile, records: list[bytes], words: str) -> None:
    log_file.chunk(records)
    with pytest.raises(Undecided, match=words) as caught:
        _ = log_file.write().operations
    assert caught.value.where == str(log_file.path) and caught.value.hint


def test_end_by_another_thread_is_told(log_file: LogFile) -> None:
    log_file.chunk([encode(11, 1)], tid=8)
    log_file.chunk([encode(11, 2, phase=1, begin=1)], tid=9)
    with pytest.raises(Undecided, match="of another operation"):
        _ = log_file.write().operations


def test_block_of_another_log_is_told(log_file: LogFile) -> None:
    log_file.chunk([encode(11, 1)], nonce=NONCE + 1)
    with pytest.raises(Undecided, match="belongs to another log"):
        log_file.write()


@pytest.mark.parametrize("blocks", [0, 2, 2**32 - 1])
def test_chunk_beyond_the_tail_is_told(log_file: LogFile, blocks: int) -> None:
    log_file.add(struct.pack("<QIIII", NONCE, blocks, 7, 8, 0).ljust(BLOCK_BYTES, b"\0"))
    with pytest.raises(Undecided, match=f"claims {blocks} blocks"):
        log_file.write()


def _cut(content: bytes) -> bytes:
    return content[: 2 * BLOCK_BYTES]


def _patch(offset: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content[:offset] + value + content[offset + len(value) :]


FOREIGN: dict[str, tuple[Callable[[bytes], bytes], type[Exception]]] = {
    "empty": (lambda _: b"", InvalidInput),
    "header only in part": (lambda content: content[:1000], InvalidInput),
    "another magic": (_patch(0, b"DTWLOG02"), InvalidInput),
    "another block size": (_patch(24, b"\0\x10\0\0"), InvalidInput),
    "no nonce": (_patch(16, bytes(8)), InvalidInput),
    "cut": (_cut, Undecided),
    "longer than it says": (lambda content: content + b"x", Undecided),
    "tail in the header": (_patch(64, bytes(8)), Undecided),
    "tail off a boundary": (_patch(64, struct.pack("<Q", BLOCK_BYTES + 8)), Undecided),
}


@pytest.mark.parametrize(("change", "error"), FOREIGN.values(), ids=FOREIGN)
def test_foreign_and_cut_files_are_refused(
    log_file: LogFile, change: Callable[[bytes], bytes], error: type[Exception]
) -> None:
    log_file.capacity = 4 * BLOCK_BYTES
    log_file.chunk([encode(11, 1)])
    log_file.chunk([encode(11, 2)])
    log_file.write()
    log_file.path.write_bytes(change(log_file.path.read_bytes()))
    with pytest.raises(error):
        WriteLog.read(log_file.path)


def test_log_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        WriteLog.read(tmp_path / "absent")


# ---- properties ----

NAME = st.binary(min_size=1, max_size=40).filter(
    lambda name: b"\0" not in name and not name.startswith(b"/") and b".." not in name.split(b"/")
)


@dataclass(frozen=True)
class Drawn:
    """One operation: who did it, what, and its result (None: open at the kill)."""

    thread: int
    kind: Kind
    payload: bytes
    inode: int
    a: int
    b: int
    flags: int
    result: int | None


@st.composite
def drawn_operations(draw: st.DrawFn) -> Drawn:
    kind = draw(st.sampled_from([k for k in Kind if k is not Kind.ATTACH]))
    payload = b""
    if kind is Kind.WRITE:
        payload = draw(st.binary(max_size=200)) * draw(st.sampled_from([1, 1, 500]))
    elif kind in PATHS:
        payload = b"\0".join(draw(NAME) for _ in range(PATHS[kind]))
    results = st.integers(-133, len(payload) if kind is Kind.WRITE else 0)
    return Drawn(
        draw(st.integers(0, 3)),
        kind,
        payload,
        draw(st.integers(1, 2**64 - 1)),
        draw(st.integers(-(2**63), 2**63 - 1)),
        draw(st.integers(-(2**63), 2**63 - 1)),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.none() | results),
    )


def lay_out(log_file: LogFile, drawn: list[Drawn], chunk_records: int) -> list[Operation]:
    """Write the operations as four threads would, and say what must be read."""
    streams: dict[int, list[bytes]] = {}
    wanted = []
    for number, d in enumerate(drawn):
        begin = 10 * number + 1
        end = None if d.result is None else begin + 3
        late = d.kind in (Kind.CREATE, Kind.MKDIR)
        records = streams.setdefault(d.thread, [])
        inode = 0 if late else d.inode
        records.append(
            encode(d.kind, begin, ns=begin * 7, inode=inode, a=d.a, b=d.b, flags=d.flags, payload=d.payload)
        )
        if end is not None and d.result is not None:
            records.append(encode(d.kind, end, phase=1, ns=end * 7, begin=begin, inode=d.inode, a=d.result))
        names = [n.decode("utf-8", "surrogateescape") for n in d.payload.split(b"\0")]
        names = [*names, ""][:2] if d.kind in PATHS else ["", ""]
        data = d.payload if d.kind is Kind.WRITE else b""
        owner = d.inode if end is not None or not late else 0
        wanted.append(
            Operation(
                begin,
                end,
                begin * 7,
                end * 7 if end else None,
                7,
                d.thread,
                d.kind,
                owner,
                d.a,
                d.b,
                d.flags,
                d.result,
                data,
                names[0],
                names[1],
            )
        )
    for thread, records in streams.items():
        for first in range(0, len(records), chunk_records):
            log_file.chunk(records[first : first + chunk_records], tid=thread)
    log_file.capacity = log_file.tail + BLOCK_BYTES
    return wanted


SLOW_FILES = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SLOW_FILES
@given(drawn=st.lists(drawn_operations(), max_size=30), chunk_records=st.integers(1, 40))
def test_what_was_recorded_is_read(tmp_path: Path, drawn: list[Drawn], chunk_records: int) -> None:
    log_file = LogFile(tmp_path / "log")
    wanted = lay_out(log_file, drawn, chunk_records)
    assert log_file.write().operations == wanted
    (tmp_path / "kept").unlink(missing_ok=True)
    WriteLog.compact(log_file.path, tmp_path / "kept")
    assert WriteLog.read(tmp_path / "kept").operations == wanted


@SLOW_FILES
@given(
    drawn=st.lists(drawn_operations(), min_size=1, max_size=12),
    where=st.floats(0, 1, exclude_max=True),
    value=st.binary(min_size=1, max_size=8),
    cut=st.booleans(),
)
def test_damaged_log_gives_an_answer_or_a_reason(
    tmp_path: Path, drawn: list[Drawn], where: float, value: bytes, cut: bool
) -> None:
    log_file = LogFile(tmp_path / "log")
    lay_out(log_file, drawn, 4)
    log_file.write()
    content = log_file.path.read_bytes()
    at = int(where * len(content))
    if where < 0.7:  # aim at records, not at the empty ends of chunks
        at = at // BLOCK_BYTES * BLOCK_BYTES + int(where * 1000) % 400
    changed = content[:at] if cut else content[:at] + value + content[at + len(value) :]
    log_file.path.write_bytes(changed)
    try:
        operations = WriteLog.read(log_file.path).operations
    except (InvalidInput, Undecided):
        return
    assert len(operations) <= 2 * len(drawn)
    assert [o.begin for o in operations] == sorted({o.begin for o in operations})
