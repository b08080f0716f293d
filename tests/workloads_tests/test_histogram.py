"""The latency histogram against exact quantiles."""

from __future__ import annotations

import math
import random

import pytest

from tests.workloads_tests.conftest import Vectors

QUANTILES = (0.5, 0.95, 0.99, 0.999, 1.0)


@pytest.mark.parametrize("bits", [1, 9, 10, 11, 20, 30, 36])
def test_quantiles_are_within_a_thousandth(vectors: Vectors, rng: random.Random, bits: int) -> None:
    values = sorted(int(2 ** rng.uniform(0, bits)) for _ in range(3_001))
    low, high, average, *got = vectors(
        {
            "vectors.generator": "quantiles",
            "vectors.numbers": ",".join(map(str, values)),
            "vectors.u": ",".join(map(str, QUANTILES)),
        }
    )
    assert (low, high) == (values[0], values[-1])
    assert average == pytest.approx(sum(values) / len(values), rel=1e-12)
    for quantile, value in zip(QUANTILES, got, strict=True):
        exact = values[math.ceil(quantile * len(values)) - 1]
        assert exact <= value <= exact * (1 + 2**-10)


def test_beyond_the_range_only_the_maximum_is_exact(vectors: Vectors) -> None:
    spec = {
        "vectors.generator": "quantiles",
        "vectors.numbers": f"5,{2**50},{2**51}",
        "vectors.u": "0.1,0.5,1",
    }
    assert vectors(spec)[:2] == [5, 2**51]
    assert vectors(spec)[3:] == [5, 2**51, 2**51]
