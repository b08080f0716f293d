"""What is kept of a trial is read back as it was, or refused in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knobs.errors import InvalidInput
from tests.tuner_tests.requests import result_of
from tuner.search.study import StudyFolder
from tuner.search.trial import TrialResult

TEXTS = st.dictionaries(st.text(), st.text())
RATES = st.floats(0, 1e9)


@given(
    st.builds(
        TrialResult,
        number=st.integers(0, 10_000),
        proposer=st.text(),
        settings=TEXTS,
        verdict=st.sampled_from(["HELD", "UNKNOWN", "BROKEN", "REJECTED"]),
        reasons=st.lists(st.text()).map(tuple),
        ratio=RATES,
        throughput_per_s=RATES,
        p99_us=st.dictionaries(st.text(), RATES),
        reference_per_s=st.lists(RATES).map(tuple),
        why=st.text(),
        effective=TEXTS,
        findings=st.lists(TEXTS).map(tuple),
        crash=st.dictionaries(st.text(), st.lists(st.integers())),
    )
)
def test_what_is_saved_is_loaded(tmp_path_factory: pytest.TempPathFactory, result: TrialResult) -> None:
    folder = tmp_path_factory.mktemp("trial")
    result.save(folder)
    assert TrialResult.load(folder) == result
    assert [path.name for path in folder.iterdir()] == ["result.json"]


def test_a_trial_that_did_not_get_that_far_has_none(tmp_path: Path) -> None:
    assert TrialResult.load(tmp_path) is None
    (tmp_path / "result.json.part").write_text("{")
    assert TrialResult.load(tmp_path) is None


def test_figures_that_are_no_json_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        result_of(1, ratio=float("nan")).save(tmp_path)
    assert TrialResult.load(tmp_path) is None


def stored(folder: Path) -> dict[str, Any]:
    result_of(1).save(folder)
    document: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return document


@pytest.mark.parametrize("fault", ["unknown key", "missing key", "no object", "torn", "other type"])
def test_a_result_that_cannot_be_read_is_told(tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "trial-0001"
    folder.mkdir()
    document: Any = stored(folder)
    if fault == "unknown key":
        document["of_an_older_version"] = 1
    elif fault == "missing key":
        del document["verdict"]
    elif fault == "other type":
        document["reasons"] = 5
    elif fault == "no object":
        document = [document]
    text = json.dumps(document)
    (folder / "result.json").write_text(text[: len(text) // 2] if fault == "torn" else text)
    with pytest.raises(InvalidInput) as caught:
        StudyFolder(tmp_path).results()
    assert "trial-0001/result.json" in caught.value.where and "--study" in caught.value.hint
