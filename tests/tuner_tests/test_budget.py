"""A given time is kept by fewer trials; the reference, the play-off and the confirmation stay."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.search.budget import TRIALS_DEFAULT, WINNER_S, Budget
from tuner.search.tuning import StudyPlan


@dataclass(frozen=True)
class Spending:
    confirmation_rounds: int = 8
    finalists: int = 3
    play_off_rounds: int = 2
    winner_states: int = 60


def budget_of(time_s: float | None, trials: int | None, run_s: float = 3.0, spent_s: float = 0.0) -> Budget:
    budget = Budget(time.monotonic() - spent_s, time_s, trials)
    budget.plan(Spending(), run_s)
    return budget


def test_a_plan_of_a_study_says_what_it_spends() -> None:
    budget = Budget(time.monotonic(), None, None)
    budget.plan(StudyPlan(), 1.0)
    assert f"{StudyPlan().confirmation_rounds} confirmation rounds" in budget.in_words(StudyPlan())


@given(st.floats(0.0, 5_000.0), st.floats(0.1, 60.0), st.floats(0.0, 600.0))
def test_a_time_is_kept_and_the_reference_is_always_tried(
    time_s: float, run_s: float, spent_s: float
) -> None:
    budget = budget_of(time_s, None, run_s, spent_s)
    assert budget.allows_trial(0) and budget.trials_expected >= 1
    reserved_s = WINNER_S + (2 * 4 + 8 * 2) * run_s
    left_s = time_s - spent_s - reserved_s
    trial_s = 2 * run_s + 2.5
    if left_s < trial_s - 1.0:
        assert not budget.allows_trial(1), "one more would eat the confirmation's time"
    if left_s > trial_s + 1.0:
        assert budget.allows_trial(1)
    assert budget.trials_expected <= max(1, left_s / trial_s + 1)


def test_slow_trials_make_fewer() -> None:
    budget = budget_of(400.0, None)
    before = budget.trials_expected
    budget.took(60.0)
    assert budget.trials_expected < before
    assert budget.allows_trial(1)
    budget.took(1_000.0)
    assert not budget.allows_trial(2)


@pytest.mark.parametrize(("trials", "limit"), [(None, TRIALS_DEFAULT), (1, 1), (7, 7)])
def test_without_a_time_the_number_of_trials_decides(trials: int | None, limit: int) -> None:
    budget = budget_of(None, trials)
    assert budget.trials_expected == limit
    assert budget.allows_trial(limit - 1) and not budget.allows_trial(limit)


def test_with_both_the_earlier_end_counts() -> None:
    assert not budget_of(1_000.0, 5).allows_trial(5)
    assert not budget_of(80.0, 5).allows_trial(1)


def test_the_words_name_every_part_and_the_whole() -> None:
    words = budget_of(300.0, None, run_s=2.0, spent_s=10.0).in_words(Spending())
    assert "controls and first reference run 10 s" in words
    assert "a play-off of 3 16 s" in words and "the winner's 60 states 12 s" in words
    assert "8 confirmation rounds 32 s" in words and words.endswith("of 300 s")
    # (300 - 10 - 16 - 32 - 12) / (2 * 2 + 2.5) trials
    assert "about 35 trials of 6 s" in words
    assert " of 300 s" not in budget_of(None, 3).in_words(Spending())
