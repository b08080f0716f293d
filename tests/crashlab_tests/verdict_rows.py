"""What each row of a verdict table must show on its real engine, one seed a row, under each of its contracts.

`make proof` does the same over twenty seeds (tests/proof/).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crashlab.judging.evidence import CrashEvidence
from crashlab.judging.judge import judge_states
from crashlab.judging.verdict import Verdict
from knobs.contract import Contract
from tests.crashlab_tests.labs import open_lab
from tests.crashlab_tests.verdict_table import Batch, Row, Table, audit_faults, run_row, wrong
from workloads.ledger import Ledger

STRICT = Contract("strict")
STATES_MAX = 18
"""Enough for each row's verdict; `make proof` looks at more."""


@dataclass(frozen=True)
class CheckedBatch(Batch):
    """A batch whose rows are looked at from every side."""

    def assert_controls_are_right(self) -> None:
        """Each model's, and the kill's: of both kinds, and all of them right."""
        wanted = {f"{name}.{kind}" for name in ("kill", *self.table.models) for kind in ("lossy", "honest")}
        assert {control.name for control in self.controls} == wanted
        assert [control for control in self.controls if not control.right] == []

    def assert_row_is_right(self, row: Row, seed: int, folder: Path) -> None:
        """Run it: its verdicts are the table's, and the evidence is whole and can be repeated."""
        evidence = self.run(row, seed, folder)
        assert evidence.recording.facts.faults == ()
        assert wrong(self.table, row, evidence) == []
        assert audit_faults(row, evidence) == []
        _every_ack_is_audited(evidence)
        _losses_are_stated(evidence)
        self._the_worst_state_repeats_itself(row, evidence)

    def run(self, row: Row, seed: int, folder: Path) -> CrashEvidence:
        """One killed and one recorded run of a row; ``folder`` takes the recording."""
        states = min(STATES_MAX, self.table.states)
        return run_row(self, row, folder, seed, states)

    def _the_worst_state_repeats_itself(self, row: Row, evidence: CrashEvidence) -> None:
        """Rebuilt from log, position, model and seed it is the same; so is the same one judged again."""
        verdict = evidence.under(STRICT)
        worst = verdict.worst_state or verdict.states[-1]
        recording = evidence.recording
        (again,) = self.lab.recover(recording, self.table.subject(self.lab, row), [worst.planned])
        for _ in range(2):
            (judged,) = judge_states(recording, [again], STRICT)
            assert judged.judgement == worst.judgement
        same = evidence.under(STRICT)
        assert [state.judgement for state in same.states] == [state.judgement for state in verdict.states]


@contextmanager
def open_batch(table: Table, folder: Path, seed: int) -> Iterator[CheckedBatch]:
    """A batch whose data lie below ``folder``."""
    with open_lab(folder, needs_reach=table.needs_reach) as lab:
        yield CheckedBatch(table, lab, lab.controls(table.subject(lab), table.models, seed))


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
