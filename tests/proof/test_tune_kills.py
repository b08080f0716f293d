"""Studies ended fifty times at random moments: `make proof`. Resumable: a study that went through stays so.

Each seed is one study: ends at random moments, four in five of them SIGKILL, until five came before the
study's own or it has finished; then the same command finishes it. Held right after each end: processes gone
within 5 s, no finished trial lost or repeated, nothing left behind; at the end: a winner, the reference as
trial 0, and an Optuna study that agrees with the folder.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from engines.provenance import commit
from tests.crashlab_tests.proof_journal import Journal
from tests.tuner_tests import studies
from tests.tuner_tests.kills import CODES, finish, kill_until_finished

pytestmark = pytest.mark.proof

CHECKOUT = Path(__file__).resolve().parents[2]
ROW = "tune-kills"
STUDIES = range(1, 15)
ENDS = 5
ENDS_WANTED = 50
TRIALS = 3
MOMENT_MAX_S = 25.0
"""A study of this size takes about as long on two idle cores."""


@pytest.fixture(scope="module")
def journal() -> Journal:
    return Journal(CHECKOUT / "results" / "proof" / "tune-kills.jsonl", commit() or "no commit")


@pytest.mark.parametrize("number", STUDIES)
def test_a_study_that_is_killed_finishes(journal: Journal, number: int, tmp_path: Path) -> None:
    if journal.finished(ROW, number) is not None:
        return
    draw = random.Random(number)
    others = [signum for signum in CODES if signum is not signal.SIGKILL]
    moments = [
        (signal.SIGKILL if draw.random() < 0.8 else draw.choice(others), draw.uniform(0.0, MOMENT_MAX_S))
        for _ in range(ENDS)
    ]
    started_s = time.monotonic()
    ended = kill_until_finished(tmp_path, moments)
    finish(tmp_path, TRIALS)
    verdicts = [trial["verdict"] for trial in studies.report(tmp_path / "study")["trials"]]
    seconds = round(time.monotonic() - started_s, 1)
    journal.add(
        ROW, number, {"ends": ended, "moments": moments[:ended], "verdicts": verdicts, "seconds": seconds}
    )


def test_enough_ends_came_before_a_studys_own(journal: Journal) -> None:
    """Last in this file: a study that finishes first leaves fewer ends than were drawn."""
    ends = sum(journal.results[ROW, number]["ends"] for number in STUDIES)
    print(f"\n{ends} ends of {len(STUDIES)} studies, each finished by the same command")
    assert ends >= ENDS_WANTED
