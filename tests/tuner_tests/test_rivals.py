"""A winner against what people already run, with a lab that takes no time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from knobs.errors import InvalidInput
from tests.tuner_tests.fake_lab import fake_lab, unloaded
from tests.tuner_tests.requests import request_of
from tests.tuner_tests.test_tune_report import CLEAR, RESULTS, document, outcome_of
from tuner.output import Output
from tuner.report import tune as tune_report
from tuner.search.rivals import Rival, RivalClaim, measured_against
from tuner.search.study_plan import StudyPlan

pytestmark = pytest.mark.usefixtures("native_parts")

NAME = "DBOptions.max_background_jobs"
SLOWER, REFUSED = (Rival("known", {NAME: jobs}, "what many run", "a page") for jobs in ("3", "4"))
WINNER = {NAME: "8"}


def rate(settings: Mapping[str, str], run: int, _recover: bool) -> float:
    if settings[NAME] == "4":
        raise InvalidInput("the server does not start", where="settings")
    return (2_000.0 if settings[NAME] == "8" else 1_000.0) * (1.0 + 0.001 * (run * 7 % 5))


def claims(tmp_path: Path, *rivals: Rival) -> list[RivalClaim]:
    with fake_lab(tmp_path, rate) as lab:
        request = unloaded(request_of())
        return measured_against(rivals, WINNER, request, StudyPlan(), lab, Output(json=False, quiet=True))


def test_a_winner_is_measured_in_pairs_against_each_rival(tmp_path: Path) -> None:
    (claim,) = claims(tmp_path, SLOWER)
    assert claim.interval is not None and claim.interval.better and claim.why == ""
    assert len(claim.rounds) == StudyPlan().confirmation_rounds
    assert claim.interval.low > 1.9 and "the winner is faster" in claim.in_words()
    told = claim.as_json()
    assert (told["proposer"], told["better"], told["why"]) == ("known", True, "")
    json.dumps(told, allow_nan=False)


def test_a_rival_that_does_not_run_or_is_the_winner_has_no_interval(tmp_path: Path) -> None:
    refused, same = claims(tmp_path, REFUSED, replace(SLOWER, settings=WINNER))
    assert refused.interval is None and "does not start" in refused.in_words()
    assert same.interval is None and "the winner itself" in same.in_words()
    assert "ratio" not in refused.as_json() and refused.as_json()["rounds"] == []


def test_the_report_tells_every_rival(tmp_path: Path) -> None:
    outcome = replace(outcome_of(RESULTS, RESULTS[1], CLEAR), rivals=claims(tmp_path, SLOWER, REFUSED))
    assert [told["proposer"] for told in document(outcome)["rivals"]] == ["known", "known"]
    said = tune_report.as_text(request_of(), StudyPlan(), Path("s"), {}, outcome)
    assert "against known  2.0" in said and "against known  not measured: " in said
    assert document(outcome_of(RESULTS, RESULTS[1], CLEAR))["rivals"] == []
