"""A load whose every write is a register of its own, as pgbench's is: rows are found by who wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from crashlab.judging.judge import judge_recovered
from crashlab.judging.oracle import Cut, History, judge
from crashlab.judging.verdict import Judgement, Verdict
from knobs.contract import Contract
from tests.crashlab_tests.histories import SOUND, W, entries
from tests.crashlab_tests.runs import recovered
from tests.crashlab_tests.tapes import MILLISECOND
from workloads.workload import HEADER_READABLE, ROW

STRICT, PROCESS = Contract("strict"), Contract("process")
CUT = Cut(100, 100 * MILLISECOND, 100)

WRITES = [W(1, 0, 1, 2), W(1, 0, 5, 6), W(2, 0, 3, 4), W(3, 0, 9, None)]
"""The ledger names register 0 for all of them, as one that pgbench's backends stamp does."""


def own_registers(writes: Sequence[W] = WRITES) -> History:
    return History(entries(writes, checksums=False), 0, register_per_write=True)


def tokens(*written: tuple[int, int]) -> npt.NDArray[np.void]:
    """Rows as the verifier of pgbench gives them: numbered as they came, without a checksum."""
    return np.array(
        [(number, sequence, client, SOUND, 0) for number, (client, sequence) in enumerate(written)], dtype=ROW
    )


def judged(*written: tuple[int, int], contract: Contract = STRICT, base_rows_lost: int = 0) -> Judgement:
    return judge(own_registers(), tokens(*written), CUT, contract, "power-cut", base_rows_lost)


def test_each_write_has_a_register_of_its_own() -> None:
    past = own_registers()
    assert past.register.tolist() == [0, 1, 2, 3] and past.registers == 4
    assert past.decidable_before(100) == 3, "none is written over"


def test_rows_are_found_by_the_write_that_they_name() -> None:
    keyed = own_registers().keyed(tokens((2, 1), (3, 1), (1, 2), (1, 1)))
    assert keyed["key"].tolist() == [2, 3, 1, 0]
    assert keyed["client"].tolist() == [2, 3, 1, 1]


def test_a_row_of_nobody_gets_a_register_that_nobody_has() -> None:
    keyed = own_registers().keyed(tokens((9, 1), (1, 1), (1, 3), (0, 0)))
    assert keyed["key"].tolist() == [4, 0, 6, 7]


def test_rows_of_shared_registers_stay_as_they_are() -> None:
    shared = History(entries(WRITES), 0)
    rows = tokens((2, 1), (9, 1))
    assert shared.keyed(rows) is rows


@pytest.mark.parametrize("order", [((1, 1), (1, 2), (2, 1)), ((2, 1), (1, 2), (1, 1))])
def test_all_there_is_held_in_any_order(order: Sequence[tuple[int, int]]) -> None:
    found = judged(*order)
    assert (found.verdict, found.acks, found.decidable, found.lost) == (Verdict.HELD, 3, 3, 0)


def test_an_unanswered_write_may_be_there() -> None:
    assert judged((1, 1), (1, 2), (2, 1), (3, 1)).verdict is Verdict.HELD


def test_a_token_that_is_gone_is_lost() -> None:
    found = judged((1, 1), (2, 1))
    assert (found.reasons, found.lost, found.lost_indices) == (("lost-ack",), 1, (1,))
    assert found.first_lost is not None and (found.first_lost.client, found.first_lost.sequence) == (1, 2)
    assert judged((1, 1), (2, 1), contract=PROCESS).verdict is Verdict.HELD


def test_a_survivor_behind_a_lost_one_is_a_hole() -> None:
    assert "hole" in judged((1, 2), (2, 1), contract=PROCESS).reasons
    # The other order: what began before the lost one was acknowledged is none.
    assert "hole" not in judged((1, 1), (2, 1), contract=PROCESS).reasons


@pytest.mark.parametrize("phantom", [(4, 1), (1, 3), (2, 2), (999_999, 10**11)])
def test_a_token_that_nobody_sent_is_a_phantom(phantom: tuple[int, int]) -> None:
    found = judged((1, 1), (1, 2), (2, 1), phantom)
    assert found.reasons == ("phantom",)
    assert f"client {phantom[0]} sequence {phantom[1]}" in found.evidence[0]


def test_a_token_of_a_write_behind_the_cut_is_a_phantom() -> None:
    early = replace(CUT, position=5, begun_before=5)
    found = judge(own_registers(), tokens((1, 1), (2, 1), (1, 2)), early, STRICT, "power-cut")
    assert found.reasons == ("phantom",)
    assert judge(own_registers(), tokens((1, 1), (2, 1)), early, STRICT, "power-cut").verdict is Verdict.HELD


def test_a_token_twice_is_corrupt() -> None:
    found = judged((1, 1), (1, 2), (2, 1), (1, 1))
    assert found.reasons == ("corrupt",) and "twice" in found.evidence[0]


def test_a_row_without_a_token_is_corrupt() -> None:
    rows = tokens((1, 1), (1, 2), (2, 1), (0, 0))
    rows["flags"][3] = 0
    found = judge(own_registers(), rows, CUT, STRICT, "power-cut")
    assert found.reasons == ("corrupt",) and found.lost == 0


def test_half_a_row_is_corrupt_and_its_write_is_lost() -> None:
    rows = tokens((1, 1), (1, 2), (2, 1))
    rows["flags"][1] = HEADER_READABLE
    assert judge(own_registers(), rows, CUT, STRICT, "power-cut").reasons == ("corrupt", "lost-ack")


@pytest.mark.parametrize("contract", [STRICT, PROCESS, Contract.parse("bounded:10min")])
def test_loaded_rows_that_are_gone_are_lost_under_every_contract(contract: Contract) -> None:
    found = judged((1, 1), (1, 2), (2, 1), contract=contract, base_rows_lost=7)
    assert "lost-ack" in found.reasons and found.lost_initial == 7 and found.lost == 0
    assert "7 records of the loaded base are gone" in found.evidence


# What the verifier notes explains a loss; where nothing is lost it explains nothing.


UNLOGGED = "pgbench_history is an unlogged table, which PostgreSQL empties after a crash"


def noted(base_rows_lost: int, *written: tuple[int, int]) -> Judgement:
    made = replace(recovered(tokens(*written)), notes=(UNLOGGED,), base_rows_lost=base_rows_lost)
    return judge_recovered(own_registers(), made, CUT, STRICT, "process-crash")


def test_notes_are_evidence_of_a_loss_only() -> None:
    assert noted(0, (1, 1), (1, 2), (2, 1)).evidence == ()
    assert noted(0).evidence[0] == UNLOGGED and noted(0).lost == 3
    assert noted(5, (1, 1), (1, 2), (2, 1)).evidence[0] == UNLOGGED
    # A phantom is no loss.
    assert UNLOGGED not in noted(0, (1, 1), (1, 2), (2, 1), (8, 8)).evidence
