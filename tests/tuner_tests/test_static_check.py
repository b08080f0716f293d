"""What the catalogue predicts is told; what it says breaks the contract is not in the default search."""

from __future__ import annotations

from pathlib import Path

import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from knobs.contract import Contract
from knobs.finding import Finding
from knobs.rocksdb import durability, tuning
from tests.tuner_tests.requests import MIB, request_of
from tuner.proposers.proposal import HostLimits
from tuner.proposers.rules import RocksdbRules
from tuner.search.study_plan import StudyPlan
from tuner.search.tuning import reference_settings, search_space
from tuner.static_check import predicted, recovery_ignores, stated_settings

pytestmark = pytest.mark.usefixtures("native_parts")

CONTRACTS = ["strict", "process", "bounded:100ms"]


def ends(found: BaseDistribution) -> tuple[object, ...]:
    """Every choice, or the two ends of a range."""
    if isinstance(found, CategoricalDistribution):
        return tuple(found.choices)
    assert isinstance(found, IntDistribution | FloatDistribution)
    return (found.low, found.high)


def rules(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings]


@pytest.mark.parametrize("contract", CONTRACTS)
def test_no_value_of_the_default_search_breaks_a_reference(contract: str) -> None:
    request = request_of(contract=contract)
    reference = reference_settings(request)
    assert predicted(request, reference) == []
    for name, searched in tuning.RANGES.items():
        values = searched.choices or (str(int(searched.low or 0)), str(int(searched.high or 0)))
        for value in values:
            assert predicted(request, {**reference, name: value}) == [], (name, value)
    for point in RocksdbRules().start_points(HostLimits(4, 16 * 1024 * MIB)):
        assert predicted(request, {**reference, **point.settings}) == [], point.reason


@pytest.mark.parametrize("contract", CONTRACTS)
def test_what_a_search_really_proposes_breaks_nothing(contract: str) -> None:
    """The distributions themselves, at their ends and choices, over the reference of each contract.

    Under `bounded` the one exception is an unsynced write that nothing syncs later: both of its knobs are
    searched, so that combination is found out by running it.
    """
    request = request_of(contract=contract)
    reference = reference_settings(request)
    space = search_space(request, StudyPlan(), reference)
    for name, found in space.distributions.items():
        for value in ends(found):
            said = predicted(request, {**reference, name: str(value)})
            assert rules(said) == (["unsynced"] if (name, value) == ("WriteOptions.sync", "false") else []), (
                name,
                value,
            )


@pytest.mark.parametrize("contract", CONTRACTS)
def test_an_audit_puts_back_what_breaks(contract: str) -> None:
    request = request_of(contract=contract)
    reference = reference_settings(request)
    space = search_space(request, StudyPlan(audit_only=True), reference)
    broken = set()
    for name in tuning.UNSAFE_RANGES:
        distribution = space.distributions[name]
        assert isinstance(distribution, CategoricalDistribution)
        for value in distribution.choices:
            over = {} if name.startswith("WriteOptions.") else {"WriteOptions.sync": "false"}
            if predicted(request, {**reference, **over, name: str(value)}):
                broken.add(name)
    assert {"WriteOptions.disableWAL", "DBOptions.manual_wal_flush"} <= broken
    assert ("WriteOptions.sync" in broken) == (contract != "process")


def test_the_users_file_is_part_of_what_is_judged(tmp_path: Path) -> None:
    config = tmp_path / "OPTIONS"
    config.write_text(
        "[Version]\n  rocksdb_version=7.8.3\n  options_file_version=1.1\n"
        '[DBOptions]\n  manual_wal_flush=true\n  best_efforts_recovery=true\n[CFOptions "default"]\n'
    )
    request = request_of(config=str(config))
    assert stated_settings(request, {})["DBOptions.manual_wal_flush"] == "true"
    assert {"buffered-wal", "wal-ignored"} <= set(rules(predicted(request, {})))
    assert recovery_ignores(request, {}) == ["DBOptions.best_efforts_recovery=true"]
    better = {"DBOptions.manual_wal_flush": "false", "DBOptions.best_efforts_recovery": "false"}
    assert predicted(request, better) == [] and recovery_ignores(request, better) == []


def test_the_prediction_is_the_catalogues_own() -> None:
    request = request_of("disableWAL=true", contract="strict")
    assert predicted(request, request.settings) == durability.breaking(request.settings, Contract("strict"))
    assert predicted(request, request.settings) != []
