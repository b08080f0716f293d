"""What a failed sync has lost: as a page cache that is modelled by itself has it, and by hand."""

from __future__ import annotations

import errno
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashlab.judging.audit import audit_run
from crashlab.judging.oracle import NEVER
from crashlab.models import MODELS
from crashlab.models.covering import changes_before
from crashlab.recording.write_log import Kind
from crashlab.states.disk import Disk
from crashlab.states.horizon import Horizons
from crashlab.states.lives import lives
from crashlab.states.lost import PAGE_BYTES
from engines.engine import LogMap, LogOrder, LogPlace
from tests.crashlab_tests.histories import W, history
from tests.crashlab_tests.tapes import FOLDERS_FROM, Tape

FILE, PATH = 1, "db/a"
DRAWING = [name for name, model in MODELS.items() if model.draws]
SEEDS = range(20)


def tape_of_a_file() -> Tape:
    tape = Tape()
    tape.create(PATH, FILE)
    tape.fsync(FILE)
    tape.fsync_folder(FOLDERS_FROM)
    return tape


def fail(tape: Tape, kind: Kind = Kind.FSYNC, error: int = errno.EIO) -> None:
    tape.add(kind, FILE, result=-error)


def content(tape: Tape, model: str = "synced", position: int | None = None, seed: int = 1) -> bytes:
    disk = tape.disk()
    at = tape.position + 1 if position is None else position
    return MODELS[model].image(disk, Horizons(disk), at, seed).files[PATH].content()


# Against a page cache.


class PageCache:
    """One file as the kernel has it: what calls read, which pages are dirty, and what the disk holds."""

    def __init__(self) -> None:
        self.cached, self.disk = bytearray(), bytearray()
        self.dirty: set[int] = set()

    def write(self, offset: int, data: bytes) -> None:
        self.cached.extend(bytes(max(0, offset - len(self.cached))))
        self.cached[offset : offset + len(data)] = data
        self.dirty |= set(range(offset // PAGE_BYTES, -(-(offset + len(data)) // PAGE_BYTES)))

    def sync(self) -> None:
        for page in sorted(self.dirty):
            begin = page * PAGE_BYTES
            piece = self.cached[begin : begin + PAGE_BYTES]
            self.disk.extend(bytes(max(0, begin - len(self.disk))))
            self.disk[begin : begin + len(piece)] = piece
        self.dirty.clear()

    def fail(self) -> None:
        """The pages are clean now, and their content is in the cache alone."""
        self.dirty.clear()


STEP = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 4 * PAGE_BYTES), st.integers(1, 2 * PAGE_BYTES + 100)),
    st.tuples(st.sampled_from(["sync", "fail"]), st.just(0), st.just(0)),
)


@given(st.lists(STEP, max_size=30))
@settings(max_examples=150, deadline=None)
def test_what_is_left_is_what_a_page_cache_leaves(steps: list[tuple[str, int, int]]) -> None:
    tape, kernel = tape_of_a_file(), PageCache()
    for number, (step, offset, length) in enumerate(steps):
        if step == "write":
            data = bytes([1 + number]) * length
            tape.write(FILE, offset, data)
            kernel.write(offset, data)
        elif step == "sync":
            tape.fsync(FILE)
            kernel.sync()
        else:
            fail(tape)
            kernel.fail()
    # Between lost pieces and later ones a page may hold zeros that nobody wrote: the same as none.
    assert content(tape).rstrip(b"\0") == bytes(kernel.disk).rstrip(b"\0")
    assert content(tape, "cache") == bytes(kernel.cached)


@given(st.lists(STEP, max_size=20), st.sampled_from(DRAWING), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_survivors_that_are_drawn_come_on_top_of_what_is_left(
    steps: list[tuple[str, int, int]], model: str, seed: int
) -> None:
    """Every byte is what the disk holds, or what some write to it that is not there for certain wrote."""
    tape = tape_of_a_file()
    for number, (step, offset, length) in enumerate(steps):
        if step == "write":
            tape.write(FILE, offset, bytes([1 + number]) * length)
        else:
            tape.add(Kind.FSYNC, FILE, result=0 if step == "sync" else -errno.EIO)
    left, drawn = content(tape), content(tape, model, seed=seed)
    disk = tape.disk()
    (file,) = disk.files
    allowed = [{byte} for byte in left.ljust(8 * PAGE_BYTES, b"\0")]
    for change, durable in changes_before(file, Horizons(disk), tape.position + 1, 0):
        if change.kind is Kind.WRITE and (durable is None or durable.ranges is not None):
            for at in range(change.a, change.a + len(change.data)):
                allowed[at].add(change.data[0])
    assert all(byte in allowed[at] for at, byte in enumerate(drawn))


# By hand.


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("kind", [Kind.FSYNC, Kind.FDATASYNC])
def test_the_next_sync_succeeds_and_does_not_bring_it_back(kind: Kind, error: int) -> None:
    tape = tape_of_a_file()
    tape.write(FILE, 0, b"lost")
    fail(tape, kind, error)
    tape.fsync(FILE)
    tape.add(Kind.SYNCFS)
    assert content(tape) == b""
    assert content(tape, "cache") == b"lost"


@pytest.mark.parametrize("error", [errno.EINTR, errno.EBADF, errno.EINVAL])
def test_a_sync_that_was_not_tried_has_lost_nothing(error: int) -> None:
    tape = tape_of_a_file()
    tape.write(FILE, 0, b"kept")
    fail(tape, error=error)
    assert content(tape) == b""
    tape.fsync(FILE)
    assert content(tape) == b"kept"


def test_a_failed_sync_of_a_folder_or_of_another_file_has_lost_nothing() -> None:
    tape = tape_of_a_file()
    tape.create("db/b", 2)
    tape.write(FILE, 0, b"kept")
    tape.add(Kind.FSYNC, 2, result=-errno.EIO)
    tape.add(Kind.FSYNC, 999, flags=2, result=-errno.EIO)
    tape.fsync(FILE)
    assert content(tape) == b"kept"


def test_what_was_covered_before_stays() -> None:
    tape = tape_of_a_file()
    tape.write(FILE, 0, b"kept")
    tape.fsync(FILE)
    fail(tape)
    assert content(tape) == b"kept"


def test_a_failed_sync_covers_nothing_by_itself() -> None:
    tape = tape_of_a_file()
    tape.write(FILE, 0, b"lost")
    before = tape.position + 1
    fail(tape)
    assert content(tape, position=before) == content(tape) == b""


def test_what_is_written_again_is_kept_as_it_was_written_then() -> None:
    tape = tape_of_a_file()
    tape.write(FILE, 0, b"first")
    fail(tape)
    tape.write(FILE, 0, b"again")
    assert content(tape) == b""
    tape.fsync(FILE)
    assert content(tape) == b"again"


def test_a_write_to_the_same_page_takes_the_rest_of_the_page_along() -> None:
    tape = tape_of_a_file()
    tape.write(FILE, 0, b"a" * PAGE_BYTES + b"b" * PAGE_BYTES)
    fail(tape)
    tape.write(FILE, PAGE_BYTES + 5, b"X")
    tape.fsync(FILE)
    assert content(tape) == bytes(PAGE_BYTES) + b"bbbbbX".ljust(PAGE_BYTES, b"b")


def test_what_is_lost_again_with_its_page_is_lost() -> None:
    tape = tape_of_a_file()
    tape.write(FILE, 0, b"abc")
    fail(tape)
    tape.write(FILE, 1, b"X")
    fail(tape)
    tape.fsync(FILE)
    assert content(tape) == b""
    tape.write(FILE, 2, b"Y")
    tape.fsync(FILE)
    assert content(tape) == b"aXY"


def test_a_write_that_is_its_own_sync_is_not_lost() -> None:
    tape = tape_of_a_file()
    tape.write(FILE, 0, b"kept", own_sync=True)
    fail(tape)
    assert content(tape) == b"kept"


def test_a_write_that_is_under_way_when_a_sync_fails_is_not_lost() -> None:
    tape = tape_of_a_file()
    first = tape.position + 1
    tape.add(Kind.WRITE, FILE, at=(first, first + 2), data=b"kept")
    tape.add(Kind.FSYNC, FILE, at=(first + 1, first + 3), result=-errno.EIO)
    assert content(tape) == b""
    tape.fsync(FILE)
    assert content(tape) == b"kept"


@pytest.mark.parametrize(("begins_first", "left"), [(True, b"data"), (False, b"")])
def test_a_sync_beside_the_failed_one_covers_if_it_began_earlier(begins_first: bool, left: bytes) -> None:
    """It had waited for what was written before it, and was told of no error."""
    tape = tape_of_a_file()
    tape.write(FILE, 0, b"data")
    first = tape.position + 1
    good, bad = ((first, first + 3), (first + 1, first + 2))[:: 1 if begins_first else -1]
    tape.add(Kind.FSYNC, FILE, at=good)
    tape.add(Kind.FSYNC, FILE, at=bad, result=-errno.EIO)
    assert content(tape) == left


def test_a_truncation_is_journaled_whatever_the_data() -> None:
    tape = tape_of_a_file()
    tape.write(FILE, 0, b"0123456789")
    tape.fsync(FILE)
    tape.truncate(FILE, 4)
    fail(tape)
    assert content(tape) == b"0123456789"
    tape.fsync_folder()
    assert content(tape) == b"0123"


@pytest.mark.parametrize("model", DRAWING)
def test_a_power_cut_may_leave_any_part_of_what_is_lost(model: str) -> None:
    """A page that failed is told by the same error as a thousand that were written."""
    tape = tape_of_a_file()
    tape.write(FILE, 0, b"L" * 4 * PAGE_BYTES)
    fail(tape)
    tape.fsync(FILE)
    seen = {content(tape, model, seed=seed).count(b"L") for seed in SEEDS}
    assert {0, 4 * PAGE_BYTES} <= seen


@pytest.mark.parametrize("model", DRAWING)
def test_what_is_left_for_certain_is_not_drawn_once_more(model: str) -> None:
    tape = tape_of_a_file()
    tape.write(FILE, 0, b"L" * 3 * PAGE_BYTES)
    fail(tape)
    tape.write(FILE, PAGE_BYTES + 5, b"X")
    tape.fsync(FILE)
    disk = tape.disk()
    for seed in SEEDS:
        image = MODELS[model].image(disk, Horizons(disk), tape.position + 1, seed)
        ranges = image.files[PATH].survivors[0].ranges or ()
        assert (PAGE_BYTES, 2 * PAGE_BYTES) in ranges
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ranges))


def audited(tape: Tape, *lengths: int) -> list[int]:
    """From when on writes are durable that lie in the file, one behind the other."""
    disk: Disk = tape.disk()
    ends = [sum(lengths[: number + 1]) for number in range(len(lengths))]
    places = [LogPlace(1, number + 1, 0, end) for number, end in enumerate(ends)]
    past = history([W(1, number, number, tape.position + number + 1) for number in range(len(lengths))])
    log_map = LogMap(places, [LogOrder(0, 1)], [])
    return [int(each) for each in audit_run(lives(disk), Horizons(disk), log_map, past).covered_from]


def test_the_audit_calls_exposed_for_ever_what_is_lost_and_all_behind_it() -> None:
    tape = tape_of_a_file()
    tape.write(FILE, 0, b"k" * PAGE_BYTES)
    first = tape.fsync(FILE)
    tape.write(FILE, PAGE_BYTES, b"l" * PAGE_BYTES)
    fail(tape)
    tape.write(FILE, 2 * PAGE_BYTES, b"m" * PAGE_BYTES)
    tape.fsync(FILE)
    assert first.end is not None
    assert audited(tape, *[PAGE_BYTES] * 3) == [first.end + 1, NEVER, NEVER]


def test_the_audit_calls_covered_what_is_written_again() -> None:
    tape = tape_of_a_file()
    tape.write(FILE, 0, b"l" * PAGE_BYTES)
    fail(tape)
    tape.write(FILE, 0, b"l" * PAGE_BYTES)
    last = tape.fsync(FILE)
    assert last.end is not None and audited(tape, PAGE_BYTES) == [last.end + 1]
