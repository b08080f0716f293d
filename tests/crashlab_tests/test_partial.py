"""Power cuts that keep some of what no sync covers: each rule planted and seen."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashlab.models import MODELS
from crashlab.models.partial import PartialModel
from crashlab.recording.write_log import Kind
from crashlab.states.disk import BaseFile, Disk
from crashlab.states.horizon import Horizons
from tests.crashlab_tests.tapes import FOLDERS_FROM, Tape
from tests.crashlab_tests.test_models import histories

A, B = 11, 12
PAGE = 8192
SEEDS = range(400)
OLD, NEW = b"o" * PAGE, b"n" * PAGE


def torn(disk: Disk, position: int, seed: int, unit: int = 4096) -> dict[str, bytes]:
    image = PartialModel("torn", unit).image(disk, Horizons(disk), position, seed)
    return {path: file.content() for path, file in image.files.items()}


@pytest.fixture
def page(tmp_path: Path) -> BaseFile:
    (tmp_path / "page").write_bytes(OLD)
    return BaseFile.kept("a", A, tmp_path / "page")


@pytest.mark.parametrize(("unit", "kinds"), [(4096, 4), (512, 1 << 16)])
def test_an_overwritten_page_may_be_half_new(page: BaseFile, unit: int, kinds: int) -> None:
    tape = Tape()
    tape.write(A, 0, NEW)
    disk = tape.disk(page)
    found = {torn(disk, 100, seed, unit)["a"] for seed in SEEDS}
    assert {OLD, NEW} < found and len(found) <= kinds
    for content in found:
        units = [content[at : at + unit] for at in range(0, PAGE, unit)]
        assert all(each in (b"o" * unit, b"n" * unit) for each in units)
    if unit == 4096:
        assert found == {OLD, NEW, OLD[:4096] + NEW[4096:], NEW[:4096] + OLD[4096:]}
    else:
        assert any(content.count(b"n") == unit for content in found), "exactly one unit kept"
        assert any(content.count(b"o") == unit for content in found), "exactly one unit lost"


def test_units_lie_on_borders_of_the_file_and_not_of_the_write(page: BaseFile) -> None:
    tape = Tape()
    tape.write(A, 1000, b"n" * 4096)
    disk = tape.disk(page)
    first, second = b"n" * 3096, b"n" * 1000
    whole = {
        OLD[:1000] + (first if a else OLD[:3096]) + (second if b else OLD[:1000]) + OLD[5096:]
        for a in (0, 1)
        for b in (0, 1)
    }
    assert {torn(disk, 100, seed)["a"] for seed in SEEDS} == whole


def test_what_a_sync_covers_is_never_torn(page: BaseFile) -> None:
    tape = Tape()
    tape.write(A, 0, NEW)
    tape.fdatasync(A)
    assert {torn(tape.disk(page), 100, seed)["a"] for seed in SEEDS} == {NEW}


def test_a_later_write_of_the_same_page_may_be_there_without_the_earlier(page: BaseFile) -> None:
    tape = Tape()
    tape.write(A, 0, b"1" * PAGE)
    tape.write(A, 0, b"2" * 4096)
    found = {(content[0:1], content[4096:4097]) for content in _contents(tape.disk(page))}
    assert {(b"2", b"o"), (b"2", b"1"), (b"1", b"o"), (b"o", b"1"), (b"o", b"o")} <= found


def test_growth_survives_up_to_a_drawn_size_and_reads_zeros_where_nothing_was_written() -> None:
    tape = Tape()
    tape.create("a", A)
    tape.write(A, 0, b"x" * 100)
    tape.fsync(A)
    tape.write(A, 100, b"y" * (3 * 4096))
    contents = _contents(tape.disk())
    sizes = {len(content) for content in contents}
    assert min(sizes) == 100 and max(sizes) == 100 + 3 * 4096 and len(sizes) > 20
    assert all(content[:100] == b"x" * 100 for content in contents)
    assert {bytes(set(content[100:])) for content in contents} >= {b"", b"\0", b"y", b"\0y"}
    ends = {content[-1:] for content in contents if len(content) in (4096, 8192)}
    assert ends <= {b"y", b"\0"}


@pytest.mark.parametrize(("kept", "lost", "zeros"), [(100, 300, 300), (4000, 9000, 96), (4096, 300, 0)])
def test_zeros_stand_for_lost_growth_up_to_the_end_of_the_allocated_block(
    kept: int, lost: int, zeros: int
) -> None:
    """As measured on ext4 (data=ordered): 300 bytes appended to 100, 9,000 to 4,000."""
    tape = Tape()
    tape.create("a", A)
    tape.write(A, 0, b"x" * kept)
    tape.fsync(A)
    tape.write(A, kept, b"y" * lost)
    found = [content for content in _contents(tape.disk(), "reordered") if b"y" not in content]
    sizes = {len(content) for content in found}
    assert all(content == b"x" * kept + b"\0" * (len(content) - kept) for content in found)
    assert min(sizes) == kept and max(sizes) <= kept + zeros
    assert zeros == 0 or len(sizes) > 10


def test_a_space_that_was_only_allocated_does_not_grow_the_file() -> None:
    tape = Tape()
    tape.create("a", A)
    tape.fsync_folder()
    tape.add(Kind.FALLOCATE, A, a=0, b=9000)
    assert {len(content) for content in _contents(tape.disk())} == {0}


def test_names_are_a_prefix_between_the_last_commit_and_the_position() -> None:
    tape = Tape()
    tape.create("a", A)
    tape.fsync_folder()
    for number in range(3):
        tape.create(f"b{number}", 20 + number)
    disk = tape.disk()
    found = {tuple(sorted(torn(disk, 100, seed))) for seed in SEEDS}
    names = ("a", "b0", "b1", "b2")
    assert found == {names[:length] for length in range(1, 5)}


def test_one_seed_gives_one_state(page: BaseFile) -> None:
    tape = Tape()
    tape.write(A, 0, NEW)
    states = [torn(tape.disk(page), 100, seed, 512) for seed in range(50)]
    assert states == [torn(tape.disk(page), 100, seed, 512) for seed in range(50)]


@given(histories(), st.integers(0, 40), st.integers(0, 5))
def test_what_synced_keeps_is_kept_and_nothing_comes_from_after_the_position(
    disk: Disk, position: int, seed: int
) -> None:
    horizons = Horizons(disk)
    image = PartialModel("torn", 2).image(disk, horizons, position, seed)
    synced = MODELS["synced"].image(disk, horizons, position, seed)
    for path, file in synced.files.items():
        assert path in image.files, "no name is taken back in these histories"
        kept = {each.operation.begin for each in image.files[path].survivors if each.ranges is None}
        assert {each.operation.begin for each in file.survivors} <= kept
    for file in image.files.values():
        assert all(each.operation.begin < position for each in file.survivors)
        for each in file.survivors:
            written = (each.operation.a, each.operation.a + len(each.operation.data))
            assert all(written[0] <= a < b <= written[1] for a, b in each.ranges or ())


def _contents(disk: Disk, model: str = "torn") -> set[bytes]:
    chosen, horizons = MODELS[model], Horizons(disk)
    images = (chosen.image(disk, horizons, disk.last_position + 1, seed) for seed in SEEDS)
    return {image.files["a"].content() for image in images}


# Whole writes, and the pieces that survivors are drawn in.


def test_reordered_keeps_whole_writes_in_any_order(page: BaseFile) -> None:
    tape = Tape()
    for number in range(3):
        tape.write(A, number * 2000, bytes([49 + number]) * 2000)
    found = {content[::2000] for content in _contents(tape.disk(page), "reordered")}
    assert found == {bytes(kept) + b"oo" for kept in itertools.product(b"1o", b"2o", b"3o")}


def _kept(model: PartialModel, scope: str) -> set[tuple[frozenset[str], ...]]:
    """Of two logs and a table, each with two writes of two units: which units survive, file by file, in the
    states whose survivors are drawn in these pieces."""
    tape = Tape()
    for number, name in enumerate(("wal-1", "wal-2", "table")):
        tape.create(name, 20 + number)
    tape.fsync_folder()
    for inode in (20, 21, 22):
        for write in "01":
            tape.write(inode, 8192 * int(write), write.encode() * PAGE)
    disk = Disk([], {}, tape.operations, role=lambda path: path[:3])
    found = set()
    for seed in range(3_000):
        if model.how(100, seed).scope == scope:
            files = model.image(disk, Horizons(disk), 100, seed).files
            found.add(
                tuple(
                    frozenset(
                        f"{survivor.operation.a + begin % PAGE}"
                        for survivor in files[name].survivors
                        for begin, _ in survivor.ranges or ()
                    )
                    for name in ("wal-1", "wal-2", "table")
                )
            )
    return found


NONE, WHOLE = frozenset[str](), frozenset(("0", "4096", "8192", "12288"))


def test_the_pieces_of_a_torn_state() -> None:
    model = PartialModel("torn", 4096)
    units = _kept(model, "unit")
    assert any(len(kept) in (1, 3) for state in units for kept in state), "a write half kept"
    assert len(units) > 150
    writes = _kept(model, "write")
    halves = ({"0", "4096"}, {"8192", "12288"})
    assert all(kept & half in (half, set()) for state in writes for kept in state for half in halves)
    assert len(writes) > 30
    assert _kept(model, "file") == set(itertools.product((NONE, WHOLE), repeat=3))
    assert _kept(model, "class") == {(wal, wal, table) for wal in (NONE, WHOLE) for table in (NONE, WHOLE)}
    single = {sum(map(len, state)) for state in _kept(model, "one kept")}
    all_but_one = {sum(map(len, state)) for state in _kept(model, "one lost")}
    assert (single, all_but_one) == ({1}, {11})
    assert len({tuple(map(len, state)) for state in _kept(model, "each file")}) > 20


def test_the_pieces_of_a_reordered_state() -> None:
    model = PartialModel("reordered")
    for scope in ("write", "file", "class", "each file", "one lost", "one kept"):
        states = _kept(model, scope)
        assert len(states) > 1
        assert {kept for state in states for kept in state} <= {
            NONE,
            frozenset("0"),
            frozenset(("8192",)),
            frozenset(("0", "8192")),
        }
    assert _kept(model, "unit") == set()


@pytest.mark.parametrize(
    "model", [PartialModel("torn", 4096), PartialModel("reordered")], ids=lambda model: model.name
)
def test_telling_seeds_keep_half_lose_one_and_keep_one(model: PartialModel) -> None:
    for first in range(20):
        scopes = [model.how(77, seed).scope for seed in model.telling_seeds(77, first)]
        assert scopes == ["unit" if model.tears else "write", "one lost", "one kept", "file"]
        assert model.how(77, model.telling_seeds(77, first)[0]).share == 1 / 2


# Names, where no more is promised than the standard does.


def names(model: str, tape: Tape, seed: int = 1) -> set[str]:
    disk = tape.disk(folders=("", "db", "db/sub"))
    return set(MODELS[model].image(disk, Horizons(disk), tape.position + 1, seed).files)


ROOT, DB, SUB = (FOLDERS_FROM + number for number in range(3))


def test_an_entry_needs_its_own_folders_sync() -> None:
    tape = Tape()
    tape.create("db/a", A)
    tape.create("db/sub/b", B)
    tape.write(A, 0, b"bytes")
    tape.fsync(A)
    assert names("synced-posix", tape) == set() and names("synced", tape) == {"db/a", "db/sub/b"}
    tape.fsync_folder(SUB)
    assert names("synced-posix", tape) == {"db/sub/b"}
    tape.fsync_folder(ROOT)
    assert names("synced-posix", tape) == {"db/sub/b"}
    tape.fsync_folder(DB)
    assert names("synced-posix", tape) == {"db/a", "db/sub/b"}


def test_a_folder_that_no_sync_of_its_parent_covered_takes_what_is_in_it_along() -> None:
    tape = Tape()
    tape.add(Kind.MKDIR, 77, path="db/new")
    tape.create("db/new/a", A)
    tape.fsync_folder(77)
    assert names("synced-posix", tape) == set()
    tape.fsync_folder(DB)
    assert names("synced-posix", tape) == {"db/new/a"}


def test_a_renamed_folder_is_synced_under_its_new_name() -> None:
    tape = Tape()
    tape.rename("db/sub", "db/other", SUB)
    tape.fsync_folder(DB)
    tape.create("db/other/a", A)
    assert names("synced-posix", tape) == set()
    tape.fsync_folder(SUB)
    assert names("synced-posix", tape) == {"db/other/a"}


def test_a_sync_of_everything_covers_every_folder() -> None:
    tape = Tape()
    tape.create("db/a", A)
    tape.create("db/sub/b", B)
    tape.add(Kind.SYNCFS)
    assert names("synced-posix", tape) == {"db/a", "db/sub/b"}


def test_an_unlink_needs_its_folders_sync_too() -> None:
    tape = Tape()
    tape.create("db/a", A)
    tape.fsync_folder(DB)
    tape.unlink("db/a", A)
    tape.create("db/sub/b", B)
    tape.fsync(B)
    assert names("synced", tape) == {"db/sub/b"} and names("synced-posix", tape) == {"db/a"}


def test_each_folder_has_come_as_far_as_its_own_draw() -> None:
    tape = Tape()
    for number in range(2):
        tape.create(f"db/a{number}", 20 + number)
        tape.create(f"db/sub/b{number}", 30 + number)
    found = {frozenset(names("reordered-posix", tape, seed)) for seed in SEEDS}
    prefixes = [set[str](), {"db/a0"}, {"db/a0", "db/a1"}]
    others = [set[str](), {"db/sub/b0"}, {"db/sub/b0", "db/sub/b1"}]
    assert found == {frozenset(a | b) for a in prefixes for b in others}


def test_a_truncation_needs_the_files_own_sync_where_the_standard_alone_promises() -> None:
    tape = Tape()
    tape.create("db/a", A)
    tape.write(A, 0, b"one two")
    tape.fsync(A)
    tape.fsync_folder(DB)
    tape.truncate(A, 3)
    tape.fsync_folder(DB)
    contents = {}
    for model in ("synced", "synced-posix"):
        disk = tape.disk(folders=("", "db"))
        contents[model] = MODELS[model].image(disk, Horizons(disk), 100, 1).files["db/a"].content()
    assert contents == {"synced": b"one", "synced-posix": b"one two"}


@pytest.mark.parametrize(
    "model", [PartialModel("torn", 4096), PartialModel("torn-512", 512)], ids=lambda model: model.name
)
def test_a_telling_seed_tears_pages(model: PartialModel, tmp_path: Path) -> None:
    """Fifty overwritten pages: some are torn under a telling seed, whatever the first seed was."""
    (tmp_path / "pages").write_bytes(OLD * 50)
    tape = Tape()
    for number in range(50):
        tape.write(A, number * PAGE, NEW)
    disk = tape.disk(BaseFile.kept("a", A, tmp_path / "pages"))
    for first in range(10):
        seed = model.telling_seeds(1000, first)[0]
        assert seed >= first
        content = torn(disk, 1000, seed, model.unit_bytes)["a"]
        pages = [content[at : at + PAGE] for at in range(0, len(content), PAGE)]
        assert sum(page not in (OLD, NEW) for page in pages) > 10
