"""A given time is kept by fewer trials; the reference, the play-off and the confirmation stay."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashlab.kill import MeasurePlan
from crashlab.validate import split_states
from knobs.errors import InvalidInput
from tuner.search.budget import TRIALS_DEFAULT, Budget
from tuner.search.study_plan import StudyPlan, default_trial_plan
from tuner.search.trial import TrialPlan
from tuner.search.tuning import refuse_too_short


@dataclass(frozen=True)
class Spending:
    confirmation_rounds: int = 8
    finalists: int = 3
    play_off_rounds: int = 2
    winner_states: int = 60
    audit_only: bool = False
    rivals: int = 0
    state_s: float = 0.1
    trial_share: float = 1.0


def budget_of(
    time_s: float | None,
    trials: int | None,
    run_s: float = 3.0,
    spent_s: float = 0.0,
    controls_s: float = 4.0,
    audit_only: bool = False,
    rivals: int = 0,
) -> Budget:
    spending = Spending(audit_only=audit_only, rivals=rivals)
    budget = Budget(time.monotonic() - spent_s, time_s, trials, spending)
    budget.plan(controls_s, run_s)
    return budget


def test_a_plan_of_a_study_says_what_it_spends() -> None:
    budget = Budget(time.monotonic(), None, None, StudyPlan())
    budget.plan(3.0, 1.0)
    assert f"{StudyPlan().confirmation_rounds} confirmation rounds" in budget.in_words(0)


@given(st.floats(0.0, 5_000.0), st.floats(0.1, 60.0), st.floats(0.0, 600.0), st.integers(1, 50))
def test_a_time_is_kept_and_the_reference_is_always_tried(
    time_s: float, run_s: float, spent_s: float, finished: int
) -> None:
    budget = budget_of(time_s, None, run_s, spent_s)
    assert budget.allows_trial(0) and budget.trials_expected(0) >= 1
    # One candidate needs no play-off; of several at most three meet the reference in it.
    play_off_s = 0 if finished == 1 else 2 * (1 + min(3, finished)) * run_s
    reserved_s = play_off_s + 8 * 2 * run_s + 4.0 + 2 * run_s + 60 * 0.1
    left_s = time_s - spent_s - reserved_s
    trial_s = 2 * run_s + 4.0
    if left_s < trial_s - 1.0:
        assert not budget.allows_trial(finished), "one more would eat the confirmation's time"
    if left_s > trial_s + 1.0:
        assert budget.allows_trial(finished)
    # Expected are trials from the reference on, which is not made yet: its time is still to be spent.
    if budget.trials_expected(0) > 1:
        assert budget.allows_trial(1)


def test_slow_trials_make_fewer() -> None:
    budget = budget_of(400.0, None)
    before = budget.trials_expected(0)
    budget.took(60.0)
    assert budget.trials_expected(1) < before
    assert budget.allows_trial(1)
    budget.took(1_000.0)
    assert not budget.allows_trial(2)


def test_the_longest_trial_is_what_the_next_may_take() -> None:
    """The average would let a deep look at a new best eat the confirmation's time."""
    budget = budget_of(220.0, None)
    for seconds in (150.0, 1.0, 1.0, 1.0):
        budget.took(seconds)
    assert budget.trials_expected(4) > 4 and not budget.allows_trial(4)


@pytest.mark.parametrize(("trials", "limit"), [(None, TRIALS_DEFAULT), (1, 1), (7, 7)])
def test_without_a_time_the_number_of_trials_decides(trials: int | None, limit: int) -> None:
    budget = budget_of(None, trials)
    assert budget.trials_expected(0) == limit
    assert budget.allows_trial(limit - 1) and not budget.allows_trial(limit)
    budget.refuse_too_short(0)


def test_with_both_the_earlier_end_counts() -> None:
    assert not budget_of(1_000.0, 5).allows_trial(5)
    assert not budget_of(60.0, 5).allows_trial(1)
    assert budget_of(1_000.0, 5).trials_expected(0) == 5 > budget_of(120.0, 5).trials_expected(0)


@given(st.floats(1.0, 1_000.0), st.floats(0.1, 30.0), st.integers(0, 5), st.integers(1, 5) | st.none())
def test_a_time_is_refused_exactly_where_it_holds_no_claim(
    time_s: float, run_s: float, finished: int, trials: int | None
) -> None:
    budget = budget_of(time_s, trials, run_s, spent_s=4.0 + run_s)
    wanted = min(2, trials or 2)
    claims = max(wanted, finished) > 1
    finalists = min(3, max(wanted, finished) - 1)
    least_s = 4.0 + run_s + max(0, wanted - finished) * (2 * run_s + 4.0) + 4.0 + 2 * run_s + 6.0
    least_s += 16 * run_s * claims + (2 * (1 + finalists) * run_s if finalists > 1 else 0.0)
    if time_s > least_s + 0.5:
        budget.refuse_too_short(finished)
    if time_s < least_s - 0.5:
        with pytest.raises(InvalidInput) as caught:
            budget.refuse_too_short(finished)
        told = re.search(r"about (\d+) s here", caught.value.what)
        assert told and abs(int(told[1]) - least_s) < 2.0 and caught.value.where == "--time"
        # Whoever gives what the hint says is not refused again.
        hinted = re.search(r"--time (\d+)s", caught.value.hint)
        assert hinted
        budget_of(float(hinted[1]), trials, run_s, spent_s=4.0 + run_s).refuse_too_short(finished)


def test_an_audit_needs_no_time_for_a_winner() -> None:
    words = budget_of(None, 5, audit_only=True).in_words(0)
    assert "play-off" not in words and "states" not in words and "8 confirmation rounds 48 s" in words
    budget_of(80.0, None, audit_only=True, spent_s=5.0).refuse_too_short(0)
    with pytest.raises(InvalidInput):
        budget_of(80.0, None, spent_s=5.0).refuse_too_short(0)


def test_a_rival_takes_a_confirmation_more() -> None:
    words = budget_of(None, 5, rivals=1).in_words(0)
    assert "8 confirmation rounds 48 s, as many against 1 rival 48 s" in words
    assert "as many against 2 rivals 96 s" in budget_of(None, 5, rivals=2).in_words(0)
    assert "rival" not in budget_of(None, 5, rivals=1, audit_only=True).in_words(0)
    alone, beside = (budget_of(1_000.0, None, rivals=rivals).trials_expected(0) for rivals in (0, 1))
    # A trial takes 2 * 3 + 4 s.
    assert alone - beside == pytest.approx(48 / 10, abs=1)


def test_a_hopeless_time_is_told_before_anything_runs() -> None:
    for time_s, measure_s in ((30.0, 2.0), (60.0, 5.0)):
        with pytest.raises(InvalidInput, match="too short for a claim"):
            refuse_too_short(StudyPlan(time_s=time_s, trial=default_trial_plan(measure_s)), 0)
    refuse_too_short(StudyPlan(time_s=60.0, trial=default_trial_plan(0.5)), 0)
    refuse_too_short(StudyPlan(time_s=300.0), 0)
    refuse_too_short(StudyPlan(trials=2), 0)


def test_the_words_name_every_part_and_the_whole() -> None:
    words = budget_of(300.0, None, run_s=2.0, spent_s=10.0).in_words(0)
    assert "controls and first reference run 10 s" in words
    assert "a play-off of 3 16 s" in words and "the winner's 60 states 14 s" in words
    assert "8 confirmation rounds 32 s" in words and words.endswith("of 300 s")
    # (300 - 10 - 16 - 32 - 14) / (2 * 2 + 4) trials
    assert "about 28 trials of 8 s" in words
    assert " of 300 s" not in budget_of(None, 3).in_words(0)
    assert "play-off" not in budget_of(None, 2).in_words(0)
    assert "confirmation" not in budget_of(None, 1).in_words(0)


def test_what_is_finished_is_counted_and_costs_nothing_more() -> None:
    """A study that goes on: two trials are there, the time left holds some more."""
    budget = budget_of(300.0, None, run_s=2.0, spent_s=10.0)
    assert budget.trials_expected(2) == 2 + 28
    assert "about 28 more trials of 8 s" in budget.in_words(2)
    assert budget_of(300.0, 5, run_s=2.0).trials_expected(2) == 5
    assert budget_of(None, 5).trials_expected(2) == 5 and budget_of(None, 5).trials_expected(7) == 7
    assert budget_of(30.0, None).trials_expected(3) == 3


def test_an_end_says_which_limit_it_met() -> None:
    assert budget_of(1_000.0, 5).ends_because(5) == "the number of trials is reached (5)"
    assert budget_of(60.0, 5).ends_because(1).startswith("the time is used: one more of up to 10 s does not")
    assert budget_of(1_000.0, 5).ends_because(4) == "" == budget_of(0.0, None).ends_because(0)


def test_a_trial_looks_at_every_model_of_its_engine() -> None:
    assert default_trial_plan(1.0).few == TrialPlan().few and default_trial_plan(1.0).full == TrialPlan().full
    models = ("cache", "synced", "torn")
    plan = default_trial_plan(1.0, states=lambda total: split_states(models, total))
    for states in (plan.few, plan.full):
        assert set(states) == {*models} and min(states.values()) >= 1
    assert default_trial_plan(2.0, 50.0).measure == MeasurePlan(0.5, 2.0, 50.0)
