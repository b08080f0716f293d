"""The play-off and the claim: taken in turn, so that what drifts favours neither."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from crashlab.kill import MeasurePlan
from knobs.errors import Undecided
from tests.tuner_tests.fake_lab import fake_lab, unloaded
from tests.tuner_tests.requests import request_of
from tuner.search.confirmation import interval_of, paired_rounds, play_off

pytestmark = pytest.mark.usefixtures("native_parts")

NAME = "DBOptions.max_background_jobs"
GAIN = {"2": 1.0, "3": 1.2, "4": 1.5, "5": 0.8}


def drifting(settings: Mapping[str, str], run: int, _recover: bool) -> float:
    """A machine that loses a tenth of its speed with each run."""
    return 10_000.0 * 0.9**run * GAIN[settings[NAME]]


def test_a_drift_cancels_out_over_the_rounds(tmp_path: Path) -> None:
    request = unloaded(request_of())
    candidate, reference = (request.subject({NAME: jobs}) for jobs in ("4", "2"))
    with fake_lab(tmp_path, drifting) as lab:
        rounds = paired_rounds(lab, candidate, reference, MeasurePlan(), 8, seed=1)
        order = [settings[NAME] for settings in lab.runs]
    assert order == ["4", "2", "2", "4"] * 4
    interval = interval_of(rounds, seed=1)
    # One order alone would give 1.5 / 0.9 = 1.67 in every round.
    assert interval.ratio == pytest.approx(1.5) and interval.low < 1.5 < interval.high
    assert interval.better and len(interval.rounds) == 8


def test_the_play_off_ranks_the_finalists_and_keeps_their_order(tmp_path: Path) -> None:
    request = unloaded(request_of())
    finalists = [request.subject({NAME: jobs}) for jobs in ("5", "4", "3")]
    with fake_lab(tmp_path, drifting) as lab:
        ratios = play_off(lab, finalists, request.subject({NAME: "2"}), MeasurePlan(), 2, seed=1)
        order = [settings[NAME] for settings in lab.runs]
    assert order == ["2", "5", "4", "3", "3", "4", "5", "2"]
    assert ratios == pytest.approx([0.8, 1.5, 1.2])


def test_a_run_that_did_nothing_makes_no_claim(tmp_path: Path) -> None:
    request = unloaded(request_of())
    candidate, reference = (request.subject({NAME: jobs}) for jobs in ("4", "2"))
    with fake_lab(tmp_path, lambda _settings, run, _recover: 0.0 if run == 5 else 10.0) as lab:
        with pytest.raises(Undecided, match="no operation"):
            paired_rounds(lab, candidate, reference, MeasurePlan(), 3, seed=1)
        lab.runs.clear()
        with pytest.raises(Undecided, match="no operation"):
            play_off(lab, [candidate, candidate], reference, MeasurePlan(), 2, seed=1)
