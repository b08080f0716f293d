"""The lives of files under their names."""

from __future__ import annotations

from crashlab.recording.write_log import Kind
from crashlab.states.lives import NEVER_ENDS, lives
from tests.crashlab_tests.tapes import Tape

A, B = 11, 12


def told(tape: Tape) -> list[tuple[int, str, bool]]:
    """Number, name and whether it is still one, of every life."""
    return [(life.number, life.path, life.end == NEVER_ENDS) for life in lives(tape.disk()).values()]


def test_a_rename_ends_one_life_and_begins_another() -> None:
    tape = Tape()
    tape.create("a", A)
    tape.write(A, 0, b"first")
    tape.rename("a", "b", A)
    tape.write(A, 0, b"sec")
    assert told(tape) == [(0, "a", False), (1, "b", True)]
    first, second = lives(tape.disk()).values()
    assert (first.final_content, second.final_content) == (b"first", b"secst")
    assert [len(list(life.changes)) for life in (first, second)] == [1, 1]


def test_a_link_is_a_life_beside_the_other() -> None:
    tape = Tape()
    tape.create("a", A)
    tape.create("c", B)
    tape.add(Kind.LINK, A, path="a", new_path="b")
    tape.unlink("a", A)
    assert told(tape) == [(0, "a", False), (1, "c", True), (2, "b", True)]


def test_a_rename_over_a_file_ends_its_life() -> None:
    tape = Tape()
    tape.create("a", A)
    tape.create("b", B)
    tape.rename("b", "a", B)
    assert told(tape) == [(0, "a", False), (1, "b", False), (2, "a", True)]
