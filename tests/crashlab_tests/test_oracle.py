"""The oracle: each reason planted and seen, and its arithmetic held against a slow, literal reading."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashlab.judging.oracle import Cut, judge
from crashlab.judging.verdict import Verdict, worst
from knobs.contract import Contract
from tests.crashlab_tests.histories import W, history, initial_rows, rows
from workloads.workload import CHECKSUM_RIGHT, HEADER_READABLE

STRICT, PROCESS = Contract.parse("strict"), Contract.parse("process")
BOUNDED = Contract.parse("bounded:500ms")


def cut(position: int, ms: int | None = None) -> Cut:
    return Cut(position, (position if ms is None else ms) * 1_000_000, position)


def test_everything_there_is_held() -> None:
    past = history([W(1, 0, 1, 2), W(2, 1, 3, 4)], initial_records=2)
    found = judge(past, rows((0, 1, 1), (1, 2, 1)), cut(10), STRICT, "power-cut")
    assert (found.verdict, found.acks, found.decidable, found.lost) == (Verdict.HELD, 2, 2, 0)


@pytest.mark.parametrize(
    ("contract", "crash", "reasons"),
    [
        (STRICT, "power-cut", ("lost-ack",)),
        (STRICT, "process-crash", ("lost-ack",)),
        (PROCESS, "process-crash", ("lost-ack",)),
        (PROCESS, "power-cut", ()),
        (BOUNDED, "power-cut", ()),
        (BOUNDED, "process-crash", ()),
    ],
)
def test_the_newest_ack_lost(contract: Contract, crash: str, reasons: tuple[str, ...]) -> None:
    past = history([W(1, 0, 1, 2), W(1, 1, 3, 4)], initial_records=2)
    found = judge(past, rows((0, 1, 1), (1, 0, 2)), cut(10), contract, crash)  # type: ignore[arg-type] # a literal
    assert found.reasons == reasons
    assert found.lost == 1
    assert found.loss_ms == 6.0
    assert found.first_lost is not None
    assert (found.first_lost.register, found.first_lost.client, found.first_lost.sequence) == (1, 1, 2)


def test_a_loss_outside_the_window_is_over_bound() -> None:
    past = history([W(1, 0, 1, 2)], initial_records=1)
    found = judge(past, rows((0, 0, 1)), cut(10, ms=503), BOUNDED, "process-crash")
    assert found.reasons == ("over-bound",)
    assert judge(past, rows((0, 0, 1)), cut(10, ms=502), BOUNDED, "process-crash").verdict is Verdict.HELD


def test_a_hole_is_never_allowed() -> None:
    past = history([W(1, 0, 1, 2), W(2, 1, 3, 4)], initial_records=2)
    found = judge(past, rows((0, 0, 1), (1, 2, 1)), cut(10), PROCESS, "power-cut")
    assert found.reasons == ("hole",)


def test_a_concurrent_survivor_is_no_hole() -> None:
    past = history([W(1, 0, 1, 4), W(2, 1, 3, 5)], initial_records=2)
    found = judge(past, rows((0, 0, 1), (1, 2, 1)), cut(10), PROCESS, "power-cut")
    assert found.verdict is Verdict.HELD


def test_a_lost_base_record_is_lost_under_every_contract() -> None:
    past = history([W(1, 0, 1, 2)], initial_records=2)
    for contract in (STRICT, PROCESS, BOUNDED):
        found = judge(past, rows((0, 1, 1)), cut(10), contract, "power-cut")
        assert "lost-ack" in found.reasons
        assert "hole" in found.reasons
        assert found.lost_initial == 1


def test_phantoms_of_every_kind() -> None:
    past = history([W(1, 0, 1, 2), W(1, 1, 30, 40)], initial_records=3)
    whole = [(0, 1, 1), (1, 0, 2), (2, 0, 3)]
    for wrong in [(0, 1, 9), (0, 7, 1), (2, 1, 1), (1, 1, 2), (2, 0, 99)]:
        held = rows(*[wrong if row[0] == wrong[0] else row for row in whole])
        assert "phantom" in judge(past, held, cut(10), STRICT, "power-cut").reasons, wrong
    assert judge(past, rows(*whole), cut(10), STRICT, "power-cut").verdict is Verdict.HELD
    forged = rows(*whole)
    forged["checksum"][0] += 1
    assert "phantom" in judge(past, forged, cut(10), STRICT, "power-cut").reasons


@pytest.mark.parametrize("flags", [0, HEADER_READABLE, HEADER_READABLE | CHECKSUM_RIGHT])
def test_a_damaged_record_is_corrupt(flags: int) -> None:
    past = history([W(1, 0, 1, 2)], initial_records=1)
    damaged = rows((0, 1, 1))
    damaged["flags"] = flags
    found = judge(past, damaged, cut(10), PROCESS, "power-cut")
    assert "corrupt" in found.reasons


def test_a_key_twice_is_corrupt() -> None:
    past = history([W(1, 0, 1, 2)], initial_records=1)
    assert "corrupt" in judge(past, rows((0, 1, 1), (0, 1, 1)), cut(10), STRICT, "power-cut").reasons


def test_unanswered_and_failed_writes_are_in_doubt() -> None:
    past = history([W(1, 0, 1, 2), W(2, 0, 3, None), W(3, 0, 4, None, failed=True)], initial_records=1)
    for version in [(0, 1, 1), (0, 2, 1), (0, 3, 1)]:
        assert judge(past, rows(version), cut(10), STRICT, "power-cut").verdict is Verdict.HELD
    assert judge(past, rows((0, 0, 1)), cut(10), STRICT, "power-cut").reasons == ("lost-ack",)


def test_an_insert_that_was_never_acknowledged_may_be_missing() -> None:
    past = history([W(1, 5, 1, None)], initial_records=1)
    assert judge(past, rows((0, 0, 1)), cut(10), STRICT, "power-cut").verdict is Verdict.HELD


def test_decidable_leaves_out_the_overwritten() -> None:
    past = history(
        [W(1, 0, 1, 2), W(1, 0, 3, 4), W(1, 1, 5, 6), W(2, 1, 5, 7), W(3, 2, 8, 9), W(3, 3, 10, None)]
    )
    assert past.decidable_before(100) == 2  # the second write to 0, and the only one to 2
    assert past.decidable_before(3) == 1


def test_the_worst_verdict_wins_and_nothing_is_unknown() -> None:
    assert worst([]) is Verdict.UNKNOWN
    assert worst([Verdict.HELD, Verdict.UNKNOWN]) is Verdict.UNKNOWN
    assert worst([Verdict.UNKNOWN, Verdict.BROKEN, Verdict.HELD]) is Verdict.BROKEN


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[W], int, dict[int, tuple[int, int] | None], int]:
    """Some writes, a number of initial records, a recovered version for each register, and a cut."""
    initial = draw(st.integers(0, 3))
    positions = draw(st.permutations(range(1, 41)))
    writes = []
    for number in range(draw(st.integers(0, 12))):
        begin, end = sorted(positions[2 * number : 2 * number + 2])
        writes.append(
            W(
                draw(st.integers(1, 3)),
                draw(st.integers(0, 4)),
                begin,
                draw(st.sampled_from([end, end, None])),
            )
        )
    past = history(writes, initial)
    recovered: dict[int, tuple[int, int] | None] = {}
    for register in range(past.registers):
        versions: list[tuple[int, int] | None] = [None]
        if register < initial:
            versions.append((0, register + 1))
        versions += [
            (int(past.client[i]), int(past.sequence[i])) for i in np.flatnonzero(past.register == register)
        ]
        recovered[register] = draw(st.sampled_from(versions))
    return writes, initial, recovered, draw(st.integers(1, 45))


@given(runs())
@settings(max_examples=300, deadline=None)
def test_losses_holes_and_decidables_as_a_literal_reading_counts_them(
    run: tuple[list[W], int, dict[int, tuple[int, int] | None], int],
) -> None:
    writes, initial, recovered, position = run
    past = history(writes, initial)
    present = [(register, *version) for register, version in recovered.items() if version is not None]
    found = judge(past, rows(*present), Cut(position, position * 1_000_000), STRICT, "power-cut")

    by_name = {(int(c), int(s)): i for i, (c, s) in enumerate(zip(past.client, past.sequence, strict=True))}
    acked = [i for i in range(len(past)) if past.end[i] < position]
    lost = []
    for i in acked:
        version = recovered[int(past.register[i])]
        if version is None or version[0] == 0 or past.begin[i] > past.end[by_name[version]]:
            lost.append(i)
    lost_initial = sum(1 for register in range(initial) if recovered[register] is None)
    survivors = [past.begin[by_name[v]] for v in recovered.values() if v is not None and v[0] > 0]
    oldest = 0 if lost_initial else min((past.end[i] for i in lost), default=None)
    hole = oldest is not None and any(begin > oldest for begin in survivors)
    decidable = [
        i
        for i in acked
        if not any(
            j != i
            and past.register[j] == past.register[i]
            and past.begin[j] < position
            and past.end[j] > past.begin[i]
            for j in range(len(past))
        )
    ]

    assert set(found.lost_indices) == set(lost)
    assert found.lost_initial == lost_initial
    assert ("hole" in found.reasons) == hole
    assert found.decidable == len(decidable)
    assert found.acks == len(acked)


def test_initial_rows_are_what_a_fresh_load_holds() -> None:
    past = history([], initial_records=4)
    assert judge(past, rows(*initial_rows(4)), cut(1), STRICT, "power-cut").verdict is Verdict.HELD
