"""The verdict table on the real RocksDB, one seed a row, judged under each contract from the same runs.

`make proof` does the same over twenty seeds (tests/proof/).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crashlab.controls import Control
from crashlab.judging.evidence import CrashEvidence
from crashlab.judging.judge import judge_states
from crashlab.judging.verdict import Verdict
from crashlab.validate import Lab
from knobs.contract import Contract
from tests.crashlab_tests.labs import open_lab
from tests.crashlab_tests.verdict_table import (
    MODELS,
    ROWS,
    Row,
    audit_faults,
    run_row,
    subject,
    wrong,
)
from workloads.ledger import Ledger

pytestmark = pytest.mark.slow

PROCESS, STRICT = Contract("process"), Contract("strict")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("table")) as lab:
        yield lab


@pytest.fixture(scope="module")
def controls(lab: Lab, seed: int) -> list[Control]:
    """The controls of this batch of rows."""
    return lab.controls(subject(), MODELS, seed)


def test_every_control_is_right(controls: list[Control]) -> None:
    wanted = {f"{name}.{kind}" for name in ("kill", *MODELS) for kind in ("lossy", "honest")}
    assert {control.name for control in controls} == wanted
    assert [control for control in controls if not control.right] == []


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_row(lab: Lab, controls: list[Control], row: Row, seed: int, tmp_path: Path) -> None:
    evidence = run_row(row, lab, tmp_path, controls, seed)
    assert evidence.recording.facts.faults == ()
    assert wrong(row, evidence) == []
    assert audit_faults(row, evidence) == []
    _every_ack_is_audited(evidence)
    _losses_are_stated(evidence)
    _the_worst_state_repeats_itself(row, lab, evidence)


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


def _the_worst_state_repeats_itself(row: Row, lab: Lab, evidence: CrashEvidence) -> None:
    """Rebuilt from log, position, model and seed it is the same; so is the same one judged again."""
    verdict = evidence.under(STRICT)
    worst = verdict.worst_state or verdict.states[-1]
    recording = evidence.recording
    (again,) = lab.recover(recording, subject(row.settings), [worst.planned])
    for _ in range(2):
        (judged,) = judge_states(recording, [again], STRICT)
        assert judged.judgement == worst.judgement
    same = evidence.under(STRICT)
    assert [state.judgement for state in same.states] == [state.judgement for state in verdict.states]
