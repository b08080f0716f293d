"""A study that is killed goes on with the same command, and leaves nothing behind meanwhile."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

import pytest

from tests.tuner_tests import studies
from tests.tuner_tests.kills import CODES, finish, kill_until_finished
from tests.tuner_tests.studies import started

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_parts")]


def test_a_study_survives_every_way_to_end_it(tmp_path: Path, rng: random.Random) -> None:
    """Four moments of one study, then its end; nothing of it is left and no finished trial is repeated."""
    moments = [(number, rng.uniform(0.0, 10.0)) for number in CODES]
    rng.shuffle(moments)
    kill_until_finished(tmp_path, moments)
    finish(tmp_path, doctor=True)


def test_a_kill_in_the_reference_trial_leaves_it_trial_0(tmp_path: Path) -> None:
    """The likeliest moment in a short study: without trial 0 nothing stands behind a ratio."""
    study = tmp_path / "study"
    with started(studies.tune_words(trials=1), tmp_path) as process:
        studies.await_file(study / "trial-0000" / "proposed.json", process)
        owner = studies.identity(process)
        process.kill()
        process.wait()
        studies.assert_ended(owner)
    assert studies.kept_results(study) == {}
    with started(studies.tune_words(trials=1), tmp_path) as process:
        studies.await_file(study / "trial-0000" / "result.json", process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert list(studies.kept_results(study)) == ["trial-0000"]
    assert json.loads((study / "trial-0000" / "proposed.json").read_text())["proposer"] == "reference"
    studies.assert_nothing_left(tmp_path)
