"""The torn power cut: each rule planted and seen, and what holds of every image."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashlab.models import MODELS
from crashlab.models.torn import TornModel
from crashlab.recording.write_log import Kind
from crashlab.states.disk import BaseFile, Disk
from crashlab.states.horizon import Horizons
from tests.crashlab_tests.tapes import Tape
from tests.crashlab_tests.test_models import histories

A, B = 11, 12
PAGE = 8192
SEEDS = range(400)
OLD, NEW = b"o" * PAGE, b"n" * PAGE


def torn(disk: Disk, position: int, seed: int, unit: int = 4096) -> dict[str, bytes]:
    image = TornModel(unit_bytes=unit).image(disk, Horizons(disk), position, seed)
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
    assert {bytes(set(content[100:])) for content in contents} >= {b"", b"y", b"\0y"}
    ends = {content[-1:] for content in contents if len(content) in (4096, 8192)}
    assert ends <= {b"y", b"\0"}


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
    image = TornModel(unit_bytes=2).image(disk, horizons, position, seed)
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


def _contents(disk: Disk) -> set[bytes]:
    return {torn(disk, disk.last_position + 1, seed)["a"] for seed in SEEDS}


@pytest.mark.parametrize("model", [TornModel(), TornModel("torn-512", 512)], ids=lambda model: model.name)
def test_a_telling_seed_tears_pages(model: TornModel, tmp_path: Path) -> None:
    """Fifty overwritten pages: some are torn under a telling seed, whatever the first seed was."""
    (tmp_path / "pages").write_bytes(OLD * 50)
    tape = Tape()
    for number in range(50):
        tape.write(A, number * PAGE, NEW)
    disk = tape.disk(BaseFile.kept("a", A, tmp_path / "pages"))
    for first in range(10):
        seed = model.telling_seed(1000, first)
        assert seed >= first
        content = torn(disk, 1000, seed, model.unit_bytes)["a"]
        pages = [content[at : at + PAGE] for at in range(0, len(content), PAGE)]
        assert sum(page not in (OLD, NEW) for page in pages) > 10
