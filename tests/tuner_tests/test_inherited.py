"""When no candidate can hold what the reference broke, and when the search may mend it."""

from __future__ import annotations

import pytest

from tests.tuner_tests.requests import OPTIONS_HEAD, request_of, result_of
from tuner.request import Request
from tuner.search.inherited import inherited_break
from tuner.search.study_plan import StudyPlan
from tuner.search.trial import TrialResult
from tuner.search.tuning import reference_settings, search_space

pytestmark = pytest.mark.usefixtures("native_parts")

BROKEN = result_of(0, "BROKEN", reasons=("lost-ack", "hole"))


def why(request: Request, result: TrialResult = BROKEN, **plan: tuple[str, ...]) -> str:
    reference = reference_settings(request)
    space = search_space(
        request, StudyPlan(only=plan.get("only", ()), exclude=plan.get("exclude", ())), reference
    )
    return inherited_break(request, reference, space, result)


@pytest.mark.parametrize(
    ("contract", "sets", "named"),
    [
        ("strict", ("sync=false",), "WriteOptions.sync=false"),
        ("process", ("disableWAL=true",), "WriteOptions.disableWAL=true"),
        ("process", ("manual_wal_flush=true",), "DBOptions.manual_wal_flush=true"),
        ("bounded:100ms", ("disableWAL=true",), "WriteOptions.disableWAL=true"),
    ],
)
def test_what_the_user_set_and_the_search_leaves_alone(
    contract: str, sets: tuple[str, ...], named: str
) -> None:
    said = why(request_of(*sets, contract=contract))
    assert f"(lost-ack, hole) by {named}, which you set" in said


@pytest.mark.parametrize(
    ("contract", "sets", "exclude"),
    [
        ("bounded:100ms", ("sync=false",), ()),
        # Not searched, and yet mended: the application syncs the WAL instead of each write.
        ("bounded:100ms", ("sync=false",), ("WriteOptions.sync",)),
        # Nothing in the user's settings breaks the contract by the catalogue: something else did.
        ("strict", ("write_buffer_size=33554432",), ()),
        ("strict", (), ()),
        # It hides damage that no crash of the lab makes, so it is not what broke this run.
        ("process", ("paranoid_checks=false",), ()),
    ],
)
def test_what_the_search_may_mend(contract: str, sets: tuple[str, ...], exclude: tuple[str, ...]) -> None:
    assert why(request_of(*sets, contract=contract), exclude=exclude) == ""


def test_under_bounded_nothing_mends_it_where_both_are_left_out() -> None:
    request = request_of("sync=false", contract="bounded:100ms")
    assert "WriteOptions.sync=false" in why(request, exclude=("WriteOptions.sync", "Application.*"))


@pytest.mark.parametrize("verdict", ["HELD", "UNKNOWN", "REJECTED"])
def test_a_prediction_alone_ends_nothing(verdict: str) -> None:
    assert why(request_of("sync=false", contract="strict"), result_of(0, verdict)) == ""


def test_a_config_states_it_as_well(tmp_path_factory: pytest.TempPathFactory) -> None:
    config = tmp_path_factory.mktemp("config") / "mine"
    config.write_text(OPTIONS_HEAD + '  manual_wal_flush=true\n[CFOptions "default"]\n')
    assert "DBOptions.manual_wal_flush=true" in why(request_of(config=str(config)))
