"""The interval of paired ratios: it covers what it claims to, and refuses what it cannot judge."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.search.interval import ratio_interval


def test_equal_rounds_have_no_width() -> None:
    found = ratio_interval([1.5, 1.5, 1.5, 1.5], seed=1)
    assert (round(found.ratio, 9), round(found.low, 9), round(found.high, 9)) == (1.5, 1.5, 1.5)


def test_the_same_rounds_and_seed_give_the_same_interval() -> None:
    rounds = [1.1, 1.3, 1.2, 1.25, 1.18]
    assert ratio_interval(rounds, seed=5) == ratio_interval(rounds, seed=5)


@pytest.mark.parametrize("rounds", [[1.0, 1.1, 1.2], [1.0, 0.0, 1.1, 1.2], [1.0, float("nan"), 1.1, 1.2]])
def test_too_little_is_refused(rounds: list[float]) -> None:
    with pytest.raises(ValueError, match="an interval needs"):
        ratio_interval(rounds, seed=1)


@pytest.mark.parametrize("rounds", [6, 8])
def test_noise_alone_is_rarely_called_better(rounds: int, seed: int) -> None:
    """Of configurations that are equal, about 1 in 40 may come out better; here at most 1 in 12."""
    draw = np.random.default_rng(seed)
    ratios = [np.exp(draw.normal(0.0, 0.1, rounds)).tolist() for _ in range(120)]
    better = sum(ratio_interval(one, seed=number).better for number, one in enumerate(ratios))
    assert better <= 10


def test_a_real_gain_is_seen() -> None:
    draw = np.random.default_rng(4)
    assert ratio_interval(np.exp(draw.normal(0.2, 0.05, 8)).tolist(), seed=4).better


def test_rounds_that_differ_by_rounding_alone_have_no_width() -> None:
    found = ratio_interval([2.0, 2.0 * (1 + 2e-16), 2.0, 2.0 * (1 - 1e-16), 2.0], seed=1)
    assert found.low == pytest.approx(2.0) and found.high == pytest.approx(2.0)


def test_one_wild_round_among_equals_gives_finite_bounds() -> None:
    found = ratio_interval([1.0, 1.0 + 1e-9, 1.0 - 1e-9, 1e6], seed=1)
    assert 0.0 < found.low <= found.ratio <= found.high < float("inf")
