"""The verdict table over all seeds: `make proof`. Resumable; writes docs/verdicts.md at its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from crashlab.controls import Control
from crashlab.validate import Lab
from engines.provenance import commit
from tests.crashlab_tests.labs import open_lab
from tests.crashlab_tests.proof_journal import Journal
from tests.crashlab_tests.proof_report import render
from tests.crashlab_tests.verdict_table import (
    MODELS,
    ROWS,
    Row,
    audit_faults,
    run_row,
    subject,
    summary,
    wrong,
)

pytestmark = pytest.mark.proof

CHECKOUT = Path(__file__).resolve().parents[2]
SEEDS = range(1, 21)
CONTROLS = "controls"


@dataclass(frozen=True)
class Batch:
    """One session of the proof: its lab, its controls, and what is finished."""

    lab: Lab
    controls: list[Control]
    journal: Journal


@pytest.fixture(scope="session")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    journal = Journal(CHECKOUT / "results" / "proof" / "verdicts.jsonl", commit() or "no commit")
    with open_lab(tmp_path_factory.mktemp("proof")) as lab:
        controls = lab.controls(subject(), MODELS, seed=int(time.time()))
        yield Batch(lab, controls, journal)


def test_the_controls_of_this_batch_are_right(batch: Batch) -> None:
    assert [control for control in batch.controls if not control.right] == []


@pytest.mark.parametrize("seed_of_row", SEEDS)
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_every_row_is_right(batch: Batch, row: Row, seed_of_row: int, tmp_path: Path) -> None:
    result = batch.journal.finished(row.name, seed_of_row)
    if result is None:
        started_s = time.monotonic()
        evidence = run_row(row, batch.lab, tmp_path, batch.controls, seed_of_row)
        synced = [state for state in evidence.states if state.planned.model == "synced"]
        result = batch.journal.add(
            row.name,
            seed_of_row,
            {
                "contracts": summary(row, evidence),
                "faults": wrong(row, evidence),
                "audit_faults": audit_faults(row, evidence),
                "audit_states": len(synced),
                "acks_audited": evidence.recording.audit.acks,
                "states": len(evidence.states),
                "seconds": round(time.monotonic() - started_s, 2),
                "log_faults": list(evidence.recording.facts.faults),
            },
        )
    assert result["faults"] + result["audit_faults"] == []


def test_the_table_is_written(batch: Batch) -> None:
    """Last in this file: whatever is finished by now, right or wrong, is counted."""
    interruptions = Journal(CHECKOUT / "results" / "proof" / "interruptions.jsonl", commit() or "no commit")
    text = render(batch.journal, interruptions, batch.controls, len(SEEDS), CHECKOUT)
    (CHECKOUT / "docs" / "verdicts.md").write_text(text, encoding="utf-8")
    assert text.count("\n| ") >= len(ROWS)
