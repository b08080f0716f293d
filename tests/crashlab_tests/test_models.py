"""What survives: each rule of the crash model that `cache` and `synced` need, planted and seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashlab.models import MODELS
from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import BaseFile, Disk, Image
from crashlab.states.horizon import Horizons
from tests.crashlab_tests.tapes import Tape

A, B = 11, 12


def image(model: str, disk: Disk, position: int, seed: int = 1) -> Image:
    return MODELS[model].image(disk, Horizons(disk), position, seed)


def synced(tape: Tape, *base: BaseFile, at: int | None = None) -> dict[str, bytes]:
    found = image("synced", tape.disk(*base), tape.position + 1 if at is None else at)
    return {path: file.content() for path, file in found.files.items()}


@pytest.fixture
def tape() -> Tape:
    """A file `a`, created and its name committed by a sync of its folder."""
    tape = Tape()
    tape.create("a", A)
    tape.fsync_folder()
    return tape


def test_only_what_a_sync_covers_is_there(tape: Tape) -> None:
    tape.write(A, 0, b"old")
    tape.fdatasync(A)
    tape.write(A, 3, b"new")
    assert synced(tape) == {"a": b"old"}


def test_a_sync_covers_only_what_had_ended_before_it_began(tape: Tape) -> None:
    first, last = tape.position + 1, tape.position + 8
    tape.add(Kind.WRITE, A, at=(first, first + 3), data=b"one")
    tape.add(Kind.FSYNC, A, at=(first + 2, first + 5))
    assert synced(tape, at=last) == {"a": b""}
    tape.add(Kind.FSYNC, A, at=(first + 4, first + 6))
    assert synced(tape, at=last) == {"a": b"one"}


def test_a_sync_counts_from_its_end_on(tape: Tape) -> None:
    tape.write(A, 0, b"one")
    sync = tape.fsync(A)
    assert sync.end is not None
    assert synced(tape, at=sync.end) == {"a": b""}
    assert synced(tape, at=sync.end + 1) == {"a": b"one"}


def test_a_sync_covers_its_own_file_only(tape: Tape) -> None:
    tape.create("b", B)
    tape.fsync_folder()
    tape.write(A, 0, b"one")
    tape.write(B, 0, b"two")
    tape.fsync(B)
    assert synced(tape) == {"a": b"", "b": b"two"}


def test_a_failed_sync_covers_nothing(tape: Tape) -> None:
    tape.write(A, 0, b"one")
    tape.add(Kind.FSYNC, A, result=-5)
    assert synced(tape) == {"a": b""}


def test_sync_file_range_and_msync_make_nothing_else_durable(tape: Tape) -> None:
    tape.write(A, 0, b"one")
    tape.add(Kind.SYNC_FILE_RANGE, A, a=0, b=3)
    tape.add(Kind.MSYNC, A, a=4096, b=4096)
    assert synced(tape) == {"a": b""}


def test_syncfs_covers_every_file_and_name(tape: Tape) -> None:
    tape.create("b", B)
    tape.write(B, 0, b"two")
    assert synced(tape) == {"a": b""}
    tape.add(Kind.SYNCFS)
    assert synced(tape) == {"a": b"", "b": b"two"}


def test_a_write_that_is_its_own_sync_covers_its_own_range(tape: Tape) -> None:
    tape.write(A, 0, b"buffered")
    tape.write(A, 4, b"DSYNC", own_sync=True)
    assert synced(tape) == {"a": b"\0\0\0\0DSYNC"}


def test_an_open_write_that_is_its_own_sync_is_not_there_yet(tape: Tape) -> None:
    tape.add(Kind.WRITE, A, data=b"DSYNC", flags=1, answered=False)
    assert synced(tape) == {"a": b""}


def test_a_name_without_synced_bytes_is_an_empty_file(tape: Tape) -> None:
    tape.create("b", B)
    tape.write(B, 0, b"never synced")
    tape.fsync_folder()
    assert synced(tape) == {"a": b"", "b": b""}


def test_bytes_that_never_reached_the_disk_before_synced_ones_read_as_zeros(tape: Tape) -> None:
    first = tape.position + 1
    tape.add(Kind.WRITE, A, at=(first, first + 9), a=0, data=b"one")
    tape.add(Kind.WRITE, A, at=(first + 1, first + 2), a=3, data=b"two")
    tape.add(Kind.FSYNC, A, at=(first + 3, first + 4))
    assert synced(tape) == {"a": b"\0\0\0two"}


# Names.


@pytest.mark.parametrize("sync", ["fdatasync", "fsync"])
def test_a_sync_of_a_created_file_commits_its_name(sync: str) -> None:
    tape = Tape()
    tape.create("a", A)
    tape.write(A, 0, b"one")
    tape.create("b", B)
    getattr(tape, sync)(A)
    assert synced(tape) == {"a": b"one", "b": b""}, (
        "and every name before it, because names are journaled in order"
    )


def test_an_fdatasync_inside_the_synced_size_commits_no_names(tape: Tape) -> None:
    tape.write(A, 0, b"one")
    tape.fdatasync(A)
    tape.rename("a", "b", A)
    for _ in range(200):
        tape.write(A, 0, b"two")
        tape.fdatasync(A)
    assert synced(tape) == {"a": b"two"}
    tape.write(A, 0, b"333")
    tape.fsync(A)
    assert synced(tape) == {"b": b"333"}


def test_an_fsync_of_an_unmodified_file_commits_no_names(tape: Tape) -> None:
    tape.write(A, 0, b"one")
    tape.fsync(A)
    tape.rename("a", "b", A)
    tape.fsync(A)
    assert synced(tape) == {"a": b"one"}


@pytest.mark.parametrize(
    ("kind", "a", "b"),
    [(Kind.WRITE, 3, 0), (Kind.TRUNCATE, 1, 0), (Kind.TRUNCATE, 9, 0), (Kind.FALLOCATE, 0, 99)],
)
def test_an_fdatasync_after_a_change_of_size_commits_names(tape: Tape, kind: Kind, a: int, b: int) -> None:
    tape.write(A, 0, b"one")
    tape.fdatasync(A)
    tape.rename("a", "b", A)
    tape.add(kind, A, a=a, b=b, data=b"x" if kind is Kind.WRITE else b"")
    tape.fdatasync(A)
    assert list(synced(tape)) == ["b"]


def test_growth_that_is_under_way_when_the_sync_begins_commits_no_names(tape: Tape) -> None:
    tape.write(A, 0, b"one")
    tape.fdatasync(A)
    tape.rename("a", "b", A)
    first = tape.position + 1
    tape.add(Kind.WRITE, A, at=(first, first + 2), a=3, data=b"x")
    tape.add(Kind.FDATASYNC, A, at=(first + 1, first + 3))
    assert synced(tape) == {"a": b"one"}


def test_a_sync_of_a_folder_commits_names_and_no_bytes(tape: Tape) -> None:
    tape.write(A, 0, b"one")
    tape.rename("a", "b", A)
    tape.fsync_folder()
    assert synced(tape) == {"b": b""}


def test_names_survive_as_a_prefix(tape: Tape) -> None:
    tape.create("b", B)
    tape.unlink("a", A)
    tape.fsync_folder()
    tape.create("c", 13)
    tape.unlink("b", B)
    assert synced(tape) == {"b": b""}


def test_a_rename_over_a_file_is_old_or_new_and_never_neither(tape: Tape) -> None:
    tape.write(A, 0, b"old")
    tape.fsync(A)
    tape.create("new", B)
    tape.write(B, 0, b"new")
    tape.fsync(B)
    tape.rename("new", "a", B)
    assert synced(tape) == {"a": b"old", "new": b"new"}
    tape.fsync_folder()
    assert synced(tape) == {"a": b"new"}


def test_a_rename_over_a_file_without_a_sync_of_its_bytes_is_empty(tape: Tape) -> None:
    tape.write(A, 0, b"old")
    tape.fsync(A)
    tape.create("new", B)
    tape.write(B, 0, b"new")
    tape.rename("new", "a", B)
    tape.fsync_folder()
    assert synced(tape) == {"a": b""}


def test_a_rename_between_two_names_of_one_file_changes_nothing(tape: Tape) -> None:
    tape.add(Kind.LINK, A, path="a", new_path="b")
    tape.add(Kind.RENAME, A, a=A, path="a", new_path="b")
    tape.fsync_folder()
    assert sorted(synced(tape)) == ["a", "b"]


def test_a_truncation_is_journaled_with_the_names(tape: Tape) -> None:
    tape.write(A, 0, b"one two")
    tape.fsync(A)
    tape.truncate(A, 3)
    assert synced(tape) == {"a": b"one two"}
    tape.fsync_folder()
    assert synced(tape) == {"a": b"one"}


def test_an_inode_that_is_used_again_is_another_file(tape: Tape) -> None:
    tape.write(A, 0, b"first life")
    tape.fsync(A)
    tape.unlink("a", A)
    tape.create("b", A)
    tape.write(A, 0, b"second")
    tape.fsync_folder()
    assert synced(tape) == {"b": b""}
    tape.fsync(A)
    assert synced(tape) == {"b": b"second"}


def test_a_file_that_is_unlinked_while_open_goes_on_without_a_name(tape: Tape) -> None:
    tape.unlink("a", A)
    tape.write(A, 0, b"nowhere")
    tape.fsync(A)
    tape.create("a", B)
    tape.write(B, 0, b"here")
    tape.fsync(B)
    assert synced(tape) == {"a": b"here"}


def test_the_base_is_durable(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"base bytes")
    base = BaseFile.kept("a", A, tmp_path / "kept")
    tape = Tape()
    tape.write(A, 0, b"BASE")
    assert synced(tape, base) == {"a": b"base bytes"}
    tape.fsync(A)
    assert synced(tape, base) == {"a": b"BASE bytes"}


# The process crash.


def cache(tape: Tape, position: int, seed: int) -> dict[str, bytes]:
    return {path: file.content() for path, file in image("cache", tape.disk(), position, seed).files.items()}


def test_cache_keeps_what_was_written_before_the_position(tape: Tape) -> None:
    first = tape.write(A, 0, b"one")
    second = tape.write(A, 3, b"two")
    assert first.end is not None and second.end is not None
    for seed in range(20):
        assert cache(tape, first.begin, seed) == {"a": b""}
        assert cache(tape, second.begin, seed) == {"a": b"one"}
        assert cache(tape, second.end + 1, seed) == {"a": b"onetwo"}


def test_an_open_write_has_happened_or_not(tape: Tape) -> None:
    write = tape.add(Kind.WRITE, A, a=4000, data=b"x" * 9000)
    sizes = {len(cache(tape, write.begin + 1, seed)["a"]) for seed in range(200)}
    assert sizes == {0, 13000}


def test_an_open_name_change_is_there_or_not(tape: Tape) -> None:
    change = tape.rename("a", "b", A)
    names = {tuple(cache(tape, change.begin + 1, seed)) for seed in range(100)}
    assert names == {("a",), ("b",)}


def test_one_seed_gives_one_state(tape: Tape) -> None:
    for offset in range(0, 80_000, 10_000):
        tape.add(Kind.WRITE, A, a=offset, data=b"x" * 10_000, answered=False)
    states = [tuple(cache(tape, 10_000, seed).values()) for seed in range(30)]
    assert states == [tuple(cache(tape, 10_000, seed).values()) for seed in range(30)]
    assert len(set(states)) > 10


# The rules again, read literally, over random histories.

KINDS = [Kind.CREATE, Kind.WRITE, Kind.WRITE, Kind.TRUNCATE, Kind.FSYNC, Kind.FDATASYNC, Kind.SYNCFS]


@st.composite
def histories(draw: st.DrawFn) -> Disk:
    """Two files and overlapping operations on them at random positions, some of them unanswered."""
    tape = Tape()
    tape.create("a", A)
    tape.create("b", B)
    count = draw(st.integers(1, 12))
    positions = [position + 5 for position in draw(st.permutations(range(2 * count)))]
    for number in range(count):
        begin, end = sorted(positions[2 * number : 2 * number + 2])
        kind = draw(st.sampled_from(KINDS))
        inode = draw(st.sampled_from([A, B]))
        tape.add(
            kind,
            0 if kind is Kind.SYNCFS else 100 + number if kind is Kind.CREATE else inode,
            at=(begin, draw(st.sampled_from([end, end, end, None]))),
            a=draw(st.integers(0, 6)),
            data=bytes([65 + number]) * draw(st.integers(1, 4)) if kind is Kind.WRITE else b"",
            flags=draw(st.sampled_from([0, 0, 1])) if kind is Kind.WRITE else 0,
            path=f"c{number}" if kind is Kind.CREATE else "",
        )
    return tape.disk()


def _literally_covered(disk: Disk, change: Operation, position: int) -> bool:
    if change.end is None or change.end >= position:
        return False
    if change.kind is Kind.WRITE and change.flags:
        return True
    return any(
        sync.begin > change.end and sync.end is not None and sync.end < position
        for sync in disk.operations
        if sync.kind is Kind.SYNCFS
        or (sync.kind in (Kind.FSYNC, Kind.FDATASYNC) and sync.inode == change.inode)
    )


@given(histories())
@settings(max_examples=80, deadline=None)
def test_what_is_covered_is_what_a_literal_reading_covers(disk: Disk) -> None:
    for position in range(1, disk.last_position + 2):
        for file in image("synced", disk, position).files.values():
            kept = {survivor.operation.begin for survivor in file.survivors}
            for change in file.file.changes:
                covered = _literally_covered(disk, change, position)
                if covered:
                    assert change.begin in kept
                elif change.kind is Kind.WRITE:
                    assert change.begin not in kept


@given(histories())
@settings(max_examples=80, deadline=None)
def test_what_one_sync_covered_stays_covered(disk: Disk) -> None:
    earlier: dict[int, set[int]] = {}
    names: set[str] = set()
    for position in range(1, disk.last_position + 2):
        state = image("synced", disk, position)
        assert names <= set(state.files), "nothing here removes a name"
        names = set(state.files)
        for file in state.files.values():
            kept = {survivor.operation.begin for survivor in file.survivors}
            assert earlier.get(file.file.number, set()) <= kept
            earlier[file.file.number] = kept


@given(histories(), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_a_power_cut_keeps_no_operation_that_a_process_crash_would_not(disk: Disk, seed: int) -> None:
    for position in range(1, disk.last_position + 2):
        whole = image("cache", disk, position, seed)
        cut = image("synced", disk, position)
        assert set(cut.files) <= set(whole.files)
        for path, file in cut.files.items():
            there = {survivor.operation.begin for survivor in whole.files[path].survivors}
            assert {survivor.operation.begin for survivor in file.survivors} <= there
