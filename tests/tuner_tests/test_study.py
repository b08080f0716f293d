"""What Optuna is told, against the real Optuna on SQLite; and what a killed study knows."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from knobs.errors import InvalidInput
from tests.tuner_tests.requests import result_of
from tuner.search.search_space import SearchSpace
from tuner.search.study import CONTRACT, STARTS, OptunaStudy, StudyFolder
from tuner.search.trial import TrialResult

SPACE = SearchSpace(
    {
        "sync": CategoricalDistribution(("true", "false")),
        "buffers": IntDistribution(1, 64, log=True),
        "share": FloatDistribution(0.0, 1.0),
    },
    {"sync": "true", "buffers": 2, "share": 0.0},
)


def study_in(folder: Path, seed: int = 1, constrained: bool = True) -> OptunaStudy:
    return OptunaStudy(StudyFolder(folder), "study", SPACE, seed, constrained)


def in_database(folder: Path) -> optuna.Study:
    return optuna.load_study(study_name="study", storage=f"sqlite:///{folder}/study.db")


def only_trial(study: OptunaStudy) -> FrozenTrial:
    (trial,) = study.study.trials
    return trial


def told(folder: Path, verdict: str, ratio: float = 3.0, constrained: bool = True) -> OptunaStudy:
    study = study_in(folder, constrained=constrained)
    number, _, _ = study.ask()
    reasons = ("lost-ack",) if verdict == "BROKEN" else ()
    study.tell(result_of(number, verdict, ratio, reasons=reasons))
    return study


def test_broken_is_complete_and_infeasible_with_its_throughput_kept(memory_path: Path) -> None:
    trial = only_trial(told(memory_path, "BROKEN"))
    assert trial.state is TrialState.COMPLETE and trial.value == 3.0
    assert trial.constraints == {STARTS: -1.0, CONTRACT: 1.0}
    assert trial.user_attrs["throughput_per_s"] == 3_000.0
    assert trial.user_attrs["verdict"] == "BROKEN" and trial.user_attrs["reasons"] == ["lost-ack"]


@pytest.mark.parametrize(
    ("verdict", "constrained", "constraints"),
    [
        ("HELD", True, {STARTS: -1.0, CONTRACT: -1.0}),
        ("REJECTED", True, {STARTS: 1.0, CONTRACT: -1.0}),
        ("HELD", False, {STARTS: -1.0}),
        ("BROKEN", False, {STARTS: -1.0}),
        ("REJECTED", False, {STARTS: 1.0}),
    ],
)
def test_what_makes_a_trial_feasible(
    memory_path: Path, verdict: str, constrained: bool, constraints: dict[str, float]
) -> None:
    """An audit looks for what is fast: only what does not start is infeasible there."""
    study = told(memory_path, verdict, constrained=constrained)
    trial = only_trial(study)
    assert trial.state is TrialState.COMPLETE and trial.constraints == constraints
    if max(constraints.values()) > 0:
        with pytest.raises(ValueError, match="feasible"):
            _ = study.study.best_trial
    else:
        assert study.study.best_trial.number == 0


def test_unknown_is_the_labs_own_fault_and_teaches_nothing(memory_path: Path) -> None:
    trial = only_trial(told(memory_path, "UNKNOWN"))
    assert trial.state is TrialState.FAIL and trial.constraints == {}


def test_a_trial_is_told_only_after_it_was_asked_for(memory_path: Path) -> None:
    study = study_in(memory_path)
    number, _, _ = study.ask()
    with pytest.raises(AssertionError, match="order of asking"):
        study.tell(result_of(number + 1))


def searched(folder: Path, verdict_of_unsafe: str, trials: int = 60) -> tuple[int, OptunaStudy]:
    """How often the unsafe value was proposed where it is the fastest."""
    study = study_in(folder)
    unsafe = 0
    for _ in range(trials):
        number, settings, _ = study.ask()
        lossy = settings.get("sync") == "false"
        ratio = (4.0 if lossy else 1.0) + math.log2(float(settings.get("buffers", "2"))) / 10.0
        unsafe += lossy
        study.tell(result_of(number, verdict_of_unsafe if lossy else "HELD", ratio))
    return unsafe, study


@pytest.mark.slow
def test_the_search_learns_to_avoid_what_loses_data(memory_path: Path) -> None:
    """Of 60 proposals far fewer are unsafe than where Optuna is told FAIL."""
    found: dict[str, int] = {}
    for verdict in ("UNKNOWN", "BROKEN"):
        folder = memory_path / verdict
        folder.mkdir()
        found[verdict], study = searched(folder, verdict)
        best = study.study.best_trial
    assert found["BROKEN"] < 20 and found["UNKNOWN"] > 1.5 * found["BROKEN"], found
    assert best.params["sync"] == "true" and max(best.constraints.values()) <= 0
    assert best.value is not None and best.value > 1.1, "it did search"


def test_start_points_come_first_and_in_order(memory_path: Path) -> None:
    study = study_in(memory_path)
    study.enqueue({}, {"proposer": "reference"})
    study.enqueue({"buffers": "8"}, {"proposer": "rules", "reason": "larger", "source": "options.h"})
    assert study.known_trials == 2
    assert study.ask() == (0, {}, {"proposer": "reference"})
    study.tell(result_of(0))
    number, settings, attributes = study.ask()
    assert (number, settings) == (1, {"buffers": "8"})
    assert attributes == {"proposer": "rules", "reason": "larger", "source": "options.h"}
    study.tell(result_of(1))
    assert study.ask()[2] == {"proposer": "tpe"}
    with pytest.raises(InvalidInput, match="buffers=65 is outside 1 to 64"):
        study.enqueue({"buffers": "65"}, {})


def test_a_killed_trial_is_tried_again_first_under_its_number(memory_path: Path) -> None:
    """A queued one, with what was queued with it: the reference stays trial 0 whenever the kill comes."""
    study = study_in(memory_path)
    study.enqueue({}, {"proposer": "reference"})
    study.enqueue({"buffers": "8"}, {"proposer": "rules"})
    first = study.ask()
    begun = StudyFolder(memory_path).trial(0)
    (begun / "recording").mkdir()
    again = study_in(memory_path, seed=2)
    assert again.recover() == 1 and not begun.exists(), "what it left is in nobody's way"
    assert again.ask() == first
    again.tell(result_of(0))
    assert again.ask() == (1, {"buffers": "8"}, {"proposer": "rules"})
    assert in_database(memory_path).trials[0].state is TrialState.COMPLETE
    assert again.known_trials == 2


def test_a_killed_proposal_of_the_sampler_keeps_its_values(memory_path: Path) -> None:
    number, settings, _ = study_in(memory_path).ask()
    again = study_in(memory_path, seed=77)
    assert again.recover() == 1
    assert again.ask() == (number, settings, {"proposer": "tpe"})


@pytest.mark.parametrize("known", [0, 1, 2], ids="{} values were stored".format)
def test_a_kill_between_asking_and_storing_loses_no_start_point(memory_path: Path, known: int) -> None:
    """Optuna takes a trial from the queue first and stores its values one by one."""
    study = study_in(memory_path)
    study.enqueue({"buffers": "8", "share": "0.5"}, {"proposer": "rules"})
    study.study.ask(dict(list(SPACE.distributions.items())[:known]))
    again = study_in(memory_path)
    assert again.recover() == 1
    assert again.ask() == (0, {"buffers": "8", "share": "0.5"}, {"proposer": "rules"})


def test_a_result_that_was_kept_before_the_kill_is_told(memory_path: Path) -> None:
    study = study_in(memory_path)
    number, _, _ = study.ask()
    folder = StudyFolder(memory_path).trial(number)
    result_of(number, "BROKEN", 2.5, reasons=("hole",)).save(folder)
    again = study_in(memory_path)
    assert again.recover() == 0
    (trial,) = in_database(memory_path).trials
    assert trial.state is TrialState.COMPLETE and trial.value == 2.5
    assert trial.constraints[CONTRACT] > 0 and trial.user_attrs["reasons"] == ["hole"]
    assert TrialResult.load(folder) is not None and again.ask()[0] == 1


def test_a_kill_in_the_middle_of_telling_is_made_good(memory_path: Path) -> None:
    study = study_in(memory_path)
    trial = study.study.ask(dict(SPACE.distributions))
    result_of(0, "BROKEN").save(StudyFolder(memory_path).trial(0))
    trial.set_user_attr("verdict", "BROKEN")
    trial.set_constraint(STARTS, -1.0)
    again = study_in(memory_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again.recover() == 0
    assert only_trial(again).constraints == {STARTS: -1.0, CONTRACT: 1.0}
    assert only_trial(again).state is TrialState.COMPLETE


DESCRIPTION = {
    "schema": 1,
    "engine": "rocksdb",
    "contract": "strict",
    "workload": "ycsb:a",
    "settings": {"CFOptions.write_buffer_size": "1"},
    "seed": 7,
}


def test_a_description_is_stored_once_and_its_seed_kept(memory_path: Path) -> None:
    folder = StudyFolder(memory_path)
    assert folder.open(DESCRIPTION)["seed"] == 7
    assert folder.open({**DESCRIPTION, "seed": 8})["seed"] == 7
    assert [path.name for path in memory_path.iterdir()] == ["study.json"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("engine", "postgresql"),
        ("contract", "process"),
        ("workload", "ycsb:b"),
        ("settings", {}),
        ("only", ["sync"]),
    ],
)
def test_the_study_of_something_else_is_named(memory_path: Path, name: str, value: object) -> None:
    StudyFolder(memory_path).open(DESCRIPTION)
    with pytest.raises(InvalidInput) as caught:
        StudyFolder(memory_path).open({**DESCRIPTION, name: value})
    # Of a map only the entries that differ are told, under their own names.
    told = "CFOptions.write_buffer_size is '1' there and None here" if name == "settings" else repr(value)
    assert told in caught.value.what
    assert not any(other in caught.value.what for other in DESCRIPTION if other != name)
    assert caught.value.where == str(memory_path)


DAMAGE: list[tuple[str, Callable[[str], str]]] = [
    ("torn", lambda text: text[:-5]),
    ("empty", lambda _: ""),
    ("no object", lambda text: f"[{text}]"),
    ("no text", lambda text: text.replace("rocksdb", "\udcff")),
    ("no seed", lambda text: text.replace('"seed"', '"sead"')),
]


@pytest.mark.parametrize("damage", [how for _, how in DAMAGE], ids=[name for name, _ in DAMAGE])
def test_a_damaged_description_is_told(memory_path: Path, damage: Callable[[str], str]) -> None:
    path = memory_path / "study.json"
    path.write_text(damage(json.dumps(DESCRIPTION)), errors="surrogateescape")
    with pytest.raises(InvalidInput) as caught:
        StudyFolder(memory_path).open(DESCRIPTION)
    assert "damaged" in caught.value.what and caught.value.where == str(path)


def test_a_study_is_finished_once_it_has_told_its_end(memory_path: Path) -> None:
    folder = StudyFolder(memory_path)
    assert not folder.finished
    folder.finish({"schema": 1})
    assert folder.finished and [path.name for path in memory_path.iterdir()] == ["report.json"]


def test_a_folder_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "CURRENT").write_text("MANIFEST-000004")
    with pytest.raises(InvalidInput, match="holds no study"):
        StudyFolder(tmp_path).refuse_foreign()
    assert [entry.name for entry in tmp_path.iterdir()] == ["CURRENT"]
    (tmp_path / "study.json").write_text("{}")
    StudyFolder(tmp_path).refuse_foreign()
