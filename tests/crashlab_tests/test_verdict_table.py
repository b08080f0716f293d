"""The verdict tables on the real engines, one seed a row, judged under each contract from the same runs.

`make proof` does the same over twenty seeds (tests/proof/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from crashlab.controls import Control
from crashlab.judging.evidence import CrashEvidence
from crashlab.judging.judge import judge_states
from crashlab.judging.verdict import Verdict
from crashlab.validate import Lab
from knobs.contract import Contract
from tests.crashlab_tests import postgresql_table, rocksdb_table
from tests.crashlab_tests.labs import open_lab
from tests.crashlab_tests.verdict_table import Row, Table, audit_faults, run_row, wrong
from workloads.ledger import Ledger

pytestmark = pytest.mark.slow

STRICT = Contract("strict")
STATES_MAX = 18
"""Enough for each row's verdict; `make proof` looks at more."""


TABLES = (rocksdb_table.TABLE, postgresql_table.TABLE)


@dataclass(frozen=True)
class Batch:
    """One engine's table, a lab for it, and the controls of these rows."""

    table: Table
    lab: Lab
    controls: list[Control]


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory, seed: int) -> Iterator[Callable[[Table], Batch]]:
    """Each table's batch, made when it is first asked for: its controls serve all of its rows."""
    made: dict[str, Batch] = {}
    with ExitStack() as stack:

        def batch_of(table: Table) -> Batch:
            if table.engine not in made:
                folder = tmp_path_factory.mktemp(table.engine)
                lab = stack.enter_context(open_lab(folder, needs_reach=table.needs_reach))
                controls = lab.controls(table.subject(lab), table.models, seed)
                made[table.engine] = Batch(table, lab, controls)
            return made[table.engine]

        yield batch_of


@pytest.mark.parametrize("table", TABLES, ids=[table.engine for table in TABLES])
def test_every_control_is_right(batches: Callable[[Table], Batch], table: Table) -> None:
    batch = batches(table)
    wanted = {f"{name}.{kind}" for name in ("kill", *batch.table.models) for kind in ("lossy", "honest")}
    assert {control.name for control in batch.controls} == wanted
    assert [control for control in batch.controls if not control.right] == []


@pytest.mark.parametrize(
    ("table", "row"),
    [pytest.param(table, row, id=f"{table.engine}-{row.name}") for table in TABLES for row in table.rows],
)
def test_row(batches: Callable[[Table], Batch], table: Table, row: Row, seed: int, tmp_path: Path) -> None:
    batch = batches(table)
    states = min(STATES_MAX, batch.table.states)
    evidence = run_row(batch.table, row, batch.lab, tmp_path, batch.controls, seed, states)
    assert evidence.recording.facts.faults == ()
    assert wrong(batch.table, row, evidence) == []
    assert audit_faults(row, evidence) == []
    _every_ack_is_audited(evidence)
    _losses_are_stated(evidence)
    _the_worst_state_repeats_itself(batch, row, evidence)


def _every_ack_is_audited(evidence: CrashEvidence) -> None:
    recording = evidence.recording
    with Ledger.open(recording.folder / "ledger") as ledger:
        acked = int(ledger.entries().acknowledged.sum())
    audit = recording.audit
    assert acked == audit.acks == audit.covered + audit.exposed + audit.unlocated
    assert acked > 500


def _losses_are_stated(evidence: CrashEvidence) -> None:
    verdict = evidence.under(STRICT)
    for summary in (verdict.process_crash, verdict.power_cut):
        if summary.verdict is Verdict.BROKEN:
            assert summary.lost > 0
            assert summary.loss_ms > 0
            assert summary.first_lost is not None
    assert verdict.recovery_s_max > 0


def _the_worst_state_repeats_itself(batch: Batch, row: Row, evidence: CrashEvidence) -> None:
    """Rebuilt from log, position, model and seed it is the same; so is the same one judged again."""
    verdict = evidence.under(STRICT)
    worst = verdict.worst_state or verdict.states[-1]
    recording = evidence.recording
    (again,) = batch.lab.recover(recording, batch.table.subject(batch.lab, row), [worst.planned])
    for _ in range(2):
        (judged,) = judge_states(recording, [again], STRICT)
        assert judged.judgement == worst.judgement
    same = evidence.under(STRICT)
    assert [state.judgement for state in same.states] == [state.judgement for state in verdict.states]
