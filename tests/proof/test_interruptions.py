"""duratune crash interrupted fifty times at random moments: `make proof`. Resumable like the table."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from engines.provenance import commit
from tests.crashlab_tests.proof_journal import Journal
from tests.tuner_tests.interruptions import SIGNALS, interrupted

pytestmark = pytest.mark.proof

CHECKOUT = Path(__file__).resolve().parents[2]
ROUNDS = range(1, 51)


@pytest.fixture(scope="module")
def journal() -> Journal:
    return Journal(CHECKOUT / "results" / "proof" / "interruptions.jsonl", commit() or "no commit")


@pytest.mark.parametrize("number", ROUNDS)
def test_nothing_is_left_behind(journal: Journal, number: int, tmp_path: Path) -> None:
    chosen: signal.Signals = list(SIGNALS)[number % len(SIGNALS)]
    result = journal.finished(chosen.name, number)
    if result is None:
        faults = interrupted(tmp_path, chosen, random.Random(f"interruption {number}"))
        result = journal.add(chosen.name, number, {"faults": faults})
    assert result["faults"] == []
