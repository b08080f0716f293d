"""The verdict tables over all seeds: `make proof`. Resumable; writes docs/verdicts.md at its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engines.provenance import commit
from tests.crashlab_tests import postgresql_table, rocksdb_table
from tests.crashlab_tests.labs import open_lab
from tests.crashlab_tests.proof_journal import Journal
from tests.crashlab_tests.proof_report import render
from tests.crashlab_tests.verdict_table import Batch, Row, audit_faults, run_row, summary, wrong

pytestmark = pytest.mark.proof

CHECKOUT = Path(__file__).resolve().parents[2]
SEEDS = range(1, 21)
TABLES = (rocksdb_table.TABLE, postgresql_table.TABLE)


@dataclass(frozen=True)
class ProvenBatch(Batch):
    """One session of the proof for one engine: beside the batch what is finished."""

    journal: Journal = field(kw_only=True)


@pytest.fixture(scope="session")
def batches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ProvenBatch]]:
    """Every engine's batch; its controls are run once, at the begin."""
    with ExitStack() as stack:
        found = {}
        for table in TABLES:
            folder = tmp_path_factory.mktemp(table.engine)
            lab = stack.enter_context(open_lab(folder, needs_reach=table.needs_reach))
            controls = lab.controls(table.subject(lab), table.models, seed=int(time.time()))
            journal = Journal(_results(f"verdicts-{table.engine}.jsonl"), commit() or "no commit")
            found[table.engine] = ProvenBatch(table, lab, controls, journal=journal)
        yield found


def _results(name: str) -> Path:
    return CHECKOUT / "results" / "proof" / name


@pytest.mark.parametrize("engine", [table.engine for table in TABLES])
def test_the_controls_of_this_batch_are_right(batches: dict[str, ProvenBatch], engine: str) -> None:
    assert [control for control in batches[engine].controls if not control.right] == []


@pytest.mark.parametrize("seed_of_row", SEEDS)
@pytest.mark.parametrize(
    ("engine", "row"),
    [
        pytest.param(table.engine, row, id=f"{table.engine}-{row.name}")
        for table in TABLES
        for row in table.rows
    ],
)
def test_every_row_is_right(
    batches: dict[str, ProvenBatch], engine: str, row: Row, seed_of_row: int, tmp_path: Path
) -> None:
    batch = batches[engine]
    result = batch.journal.finished(row.name, seed_of_row)
    if result is None:
        started_s = time.monotonic()
        evidence = run_row(batch, row, tmp_path, seed_of_row)
        synced = [state for state in evidence.states if state.planned.model == "synced"]
        result = batch.journal.add(
            row.name,
            seed_of_row,
            {
                "contracts": summary(row, evidence),
                "faults": wrong(batch.table, row, evidence),
                "audit_faults": audit_faults(row, evidence),
                "audit_states": len(synced),
                "acks_audited": evidence.recording.audit.acks,
                "unlocated": evidence.recording.audit.unlocated,
                "states": len(evidence.states),
                "seconds": round(time.monotonic() - started_s, 2),
                "log_faults": list(evidence.recording.facts.faults),
            },
        )
    assert result["faults"] + result["audit_faults"] == []


def test_the_table_is_written(batches: dict[str, ProvenBatch]) -> None:
    """Last in this file: whatever is finished by now, right or wrong, is counted."""
    interruptions = Journal(_results("interruptions.jsonl"), commit() or "no commit")
    counted = [(batch.table, batch.journal, batch.controls) for batch in batches.values()]
    text = render(counted, interruptions, len(SEEDS), CHECKOUT)
    (CHECKOUT / "docs" / "verdicts.md").write_text(text, encoding="utf-8")
    assert text.count("\n| ") >= sum(len(table.rows) for table in TABLES)
