"""A study's course, with a lab that takes no time: what it begins with, what stops it, what it resumes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from knobs.errors import InvalidInput, MachineLacks, Undecided
from tests.tuner_tests.fake_lab import FakeLab, Rate, fake_lab, unloaded
from tests.tuner_tests.requests import request_of, result_of
from tuner.output import Output
from tuner.proposers.rules import RocksdbRules
from tuner.request import host_limits
from tuner.search.study import NOT_RUN, StudyFolder
from tuner.search.study_plan import StudyPlan
from tuner.search.tuning import Tuning, search_space

pytestmark = pytest.mark.usefixtures("native_parts")


FEW = ("block_cache", "max_background_jobs", "max_write_buffer_number", "unordered_write")
"""Few knobs, because Optuna stores each value of each trial by itself."""


def steady(_settings: Mapping[str, str], _run: int, _recover: bool) -> float:
    return 1_000.0


def fails(error: BaseException) -> Rate:
    """Every run of a trial raises the error; the reference's runs go well."""

    def rate(_settings: Mapping[str, str], _run: int, recover: bool) -> float:
        if recover:
            raise error
        return 1_000.0

    return rate


def tuning(lab: FakeLab, folder: Path, *sets: str, trials: int = 12) -> Tuning:
    folder.mkdir(exist_ok=True)
    request = unloaded(request_of(*sets))
    plan = StudyPlan(trials=trials, only=FEW)
    return Tuning(request, plan, StudyFolder(folder), lab, Output(quiet=True, json=True))


def verdicts(folder: Path) -> list[str]:
    return [result.verdict for result in StudyFolder(folder).results()]


def test_three_faults_of_the_lab_in_a_row_stop_the_study(memory_path: Path) -> None:
    folder = memory_path / "study"
    with fake_lab(memory_path, fails(Undecided("planted"))) as lab:
        study = tuning(lab, folder)
        with pytest.raises(Undecided, match=r"3 trials in a row .*planted") as caught:
            study.run()
    assert caught.value.exit_code == 4 and "resumes" in caught.value.hint
    assert verdicts(folder) == ["UNKNOWN"] * 3


def test_a_full_disk_is_the_machines_and_no_trials(memory_path: Path) -> None:
    folder = memory_path / "study"
    with fake_lab(memory_path, fails(MachineLacks("no space"))) as lab:
        study = tuning(lab, folder)
        with pytest.raises(MachineLacks):
            study.run()
    assert verdicts(folder) == [], "the trial is tried again when there is room"


def test_a_run_that_cannot_be_recorded_keeps_what_was_measured(memory_path: Path) -> None:
    """A stalled recording is UNKNOWN; a full disk is not the candidate's, and stops the study at once."""
    with fake_lab(memory_path, steady) as lab:
        study = tuning(lab, memory_path / "study")
        with pytest.raises(Undecided, match="nothing is recorded here"):
            study.run()
        (first, *_) = StudyFolder(memory_path / "study").results()
        assert (first.verdict, first.ratio, first.throughput_per_s) == ("UNKNOWN", 1.0, 1_000.0)
        full = replace(lab, unrecorded=MachineLacks("no space"))
        with pytest.raises(MachineLacks, match="no space"):
            tuning(full, memory_path / "full").run()
    assert verdicts(memory_path / "full") == []


def test_settings_that_the_engine_refuses_are_rejected_and_the_study_goes_on(memory_path: Path) -> None:
    folder = memory_path / "study"
    with fake_lab(memory_path, fails(InvalidInput("RocksDB says no"))) as lab:
        outcome = tuning(lab, folder, trials=5).run()
    assert verdicts(folder) == ["REJECTED"] * 5 and len(lab.runs) == 6
    assert all(result.why == "RocksDB says no" and result.ratio == 0.0 for result in outcome.results)
    assert outcome.winner is None and outcome.claim is None and outcome.fastest is None


def test_wrong_controls_end_it_before_any_trial(memory_path: Path) -> None:
    with fake_lab(memory_path, steady, wrong=("synced",)) as lab:
        with pytest.raises(Undecided, match=r"control synced\.lossy is HELD where it must be BROKEN"):
            tuning(lab, memory_path / "study").run()
        assert len(lab.runs) == 1 and verdicts(memory_path / "study") == [], (
            "the reference alone was measured"
        )


def test_a_reference_that_does_not_start_is_told_before_the_controls(memory_path: Path) -> None:
    """The controls of this lab are wrong, so they would be what is told."""

    def refused(_settings: Mapping[str, str], _run: int, _recover: bool) -> float:
        raise InvalidInput("the server does not start", where="planted")

    with (
        fake_lab(memory_path, refused, wrong=("kill",)) as lab,
        pytest.raises(InvalidInput, match="does not start"),
    ):
        tuning(lab, memory_path / "study").run()


def test_an_idle_reference_is_no_ratio(memory_path: Path) -> None:
    with fake_lab(memory_path, lambda _settings, _run, _recover: 0.0) as lab:
        study = tuning(lab, memory_path / "study")
        with pytest.raises(Undecided, match="the reference did no operation"):
            study.run()


def proposed(folder: Path) -> list[tuple[str, str]]:
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("trial-*/proposed.json"))]
    return [(one["proposer"], json.dumps(one["settings"], sort_keys=True)) for one in found]


@pytest.mark.slow
def test_a_study_that_is_stopped_goes_through_the_same_start_points(memory_path: Path) -> None:
    """Whole in one piece, or stopped after every single trial: the same proposals in the same order."""
    rules = [
        point
        for point in RocksdbRules().start_points(host_limits())
        if any(name.partition(".")[2] in FEW for name in point.settings)
    ]
    points = 1 + len(rules)
    rejected = fails(InvalidInput("no"))
    with fake_lab(memory_path, rejected) as lab:
        tuning(lab, memory_path / "whole", trials=points).run()
        for trials in (1, 2, points // 2, points):
            tuning(lab, memory_path / "pieces", trials=trials).run()
    whole = proposed(memory_path / "whole")
    assert proposed(memory_path / "pieces") == whole
    assert [proposer for proposer, _ in whole] == ["reference"] + ["rules"] * (points - 1)
    assert points > 5


def in_database(folder: Path) -> list[tuple[TrialState, str | None]]:
    """What an Optuna dashboard shows: each trial's state, and why it never ran."""
    study = optuna.load_study(study_name=folder.name, storage=f"sqlite:///{folder}/study.db")
    return [(trial.state, trial.user_attrs.get(NOT_RUN)) for trial in study.trials]


def test_a_finished_study_has_no_trial_that_waits(memory_path: Path) -> None:
    """Fewer trials than start points; then one that was killed and that no budget is left for."""
    folder = memory_path / "study"
    complete = (TrialState.COMPLETE, None)
    not_run = (TrialState.FAIL, "the study ended before it ran")
    rejected = fails(InvalidInput("no"))
    with fake_lab(memory_path, rejected) as lab:
        tuning(lab, folder, trials=2).run()
        tuning(lab, memory_path / "whole", trials=4).run()
    assert in_database(folder) == [complete] * 2
    with fake_lab(memory_path, fails(KeyboardInterrupt())) as lab, pytest.raises(KeyboardInterrupt):
        tuning(lab, folder, trials=4).run()
    with fake_lab(memory_path, rejected) as lab:
        tuning(lab, folder, trials=2).run()
        assert in_database(folder) == [complete, complete, not_run]
        # With more budget its point is not lost: it comes again, under the next number.
        outcome = tuning(lab, folder, trials=4).run()
    assert in_database(folder) == [complete, complete, not_run, complete, complete]
    assert [result.number for result in outcome.results] == [0, 1, 3, 4]
    assert proposed(folder) == proposed(memory_path / "whole")


@pytest.mark.parametrize("trials", [1, 4])
def test_a_kill_at_the_first_trial_keeps_the_reference_first(memory_path: Path, trials: int) -> None:
    """KeyboardInterrupt stands for whatever ends the process in the middle of a trial."""
    folder = memory_path / "study"
    with fake_lab(memory_path, fails(KeyboardInterrupt())) as lab, pytest.raises(KeyboardInterrupt):
        tuning(lab, folder, trials=trials).run()
    with fake_lab(memory_path, fails(InvalidInput("no"))) as lab:
        outcome = tuning(lab, folder, trials=trials).run()
    assert [result.number for result in outcome.results] == list(range(trials))
    assert outcome.results[0].proposer == "reference"


def test_a_config_with_values_off_the_ranges_still_starts(memory_path: Path) -> None:
    """A reference off the scale makes a choice of a range, which has the start points' own values too."""
    folder = memory_path / "study"
    with fake_lab(memory_path, fails(InvalidInput("no"))) as lab:
        tuning(lab, folder, "max_background_jobs=-1", "block_cache=0", trials=11).run()
    first, *others = [json.loads(text) for _, text in proposed(folder)]
    assert first == {"DBOptions.max_background_jobs": "-1", "BlockBasedTableOptions.block_cache": "0"}
    cache = RocksdbRules().start_points(host_limits())[0].settings["BlockBasedTableOptions.block_cache"]
    assert any(one["BlockBasedTableOptions.block_cache"] == cache for one in others)
    assert any(one.get("CFOptions.max_write_buffer_number") == "4" for one in others)


def test_finished_trials_are_neither_repeated_nor_counted_again(memory_path: Path) -> None:
    folder = memory_path / "study"
    with fake_lab(memory_path, fails(InvalidInput("no"))) as lab:
        tuning(lab, folder, trials=3).run()
        before = len(lab.runs)
        tuning(lab, folder, trials=3).run()
        assert len(lab.runs) == before + 1, "one run of the reference, to know what a run takes"
        outcome = tuning(lab, folder, trials=4).run()
    assert [result.number for result in outcome.results] == [0, 1, 2, 3]


def test_a_study_that_goes_on_counts_what_is_finished(
    memory_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_lab(memory_path, fails(InvalidInput("no"))) as lab:
        tuning(lab, memory_path / "study", trials=2).run()
        study = tuning(lab, memory_path / "study", trials=3)
        study._output.quiet = False
        study.run()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("trials ")]
    assert lines == [
        "trials 2/3",
        "trials 3/3: trial 2 (rules): not measured, REJECTED",
        "trials 3 finished: the number of trials is reached (3)",
    ]


def test_memory_that_the_host_lacks_is_refused_with_the_arithmetic(memory_path: Path) -> None:
    folder = memory_path / "study"
    with fake_lab(memory_path, steady) as lab:
        outcome = tuning(lab, folder, "block_cache=1T", trials=1).run()
    (result,) = outcome.results
    assert result.verdict == "REJECTED"
    numbers = re.search(r"hold (\d+) MiB, more than (\d+) MiB", result.why)
    assert numbers and int(numbers[1]) > int(numbers[2]) and len(lab.runs) == 1


def test_what_is_searched() -> None:
    def space(contract: str = "process", **plan: object) -> set[str]:
        found = search_space(request_of(contract=contract), StudyPlan(**plan), {})  # type: ignore[arg-type]  # a dict of several types
        return set(found.distributions)

    unsafe = {"WriteOptions.sync", "WriteOptions.disableWAL", "DBOptions.manual_wal_flush"}
    assert not unsafe & space() and not unsafe & space("strict")
    assert unsafe <= space(audit_only=True) and space() < space(audit_only=True)
    assert space("bounded:100ms") - space() == {"WriteOptions.sync", "Application.sync_wal_every_ms"}
    assert space(only=("compress*",)) == {"CFOptions.compression"}
    assert space(only=("DBOptions.*_write",)) >= {"DBOptions.unordered_write"}
    assert space() - space(exclude=("CFOptions.*",)) == {name for name in space() if name.startswith("CFO")}
    assert space(audit_only=True, only=("sync", "disableWAL")) == {
        "WriteOptions.sync",
        "WriteOptions.disableWAL",
    }
    with pytest.raises(InvalidInput, match="no knob is left"):
        space(only=("sync",))
    with pytest.raises(InvalidInput, match=r"no knob matches 'misspelt', 'write_buffer_siz\?\?'"):
        space(only=("misspelt", "compression"), exclude=("write_buffer_siz??",))


def test_a_setting_of_the_users_that_no_candidate_can_mend_ends_the_search(
    memory_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trial 0 is really BROKEN by it; an audit, and a search that may mend it, go on."""
    folder = memory_path / "study"
    folder.mkdir()
    with fake_lab(memory_path, fails(InvalidInput("no"))) as lab:
        study = tuning(lab, folder, "disableWAL=true", trials=4)
        result_of(0, "BROKEN", reasons=("lost-ack",)).save(StudyFolder(folder).trial(0))
        outcome = study.run()
        assert [result.number for result in outcome.results] == [0]
        assert "WriteOptions.disableWAL=true, which you set" in outcome.cut_short and outcome.winner is None
        other = memory_path / "other"
        other.mkdir()
        result_of(0, "BROKEN", reasons=("lost-ack",)).save(StudyFolder(other).trial(0))
        outcome = tuning(lab, other, trials=3).run()
    assert len(outcome.results) == 3 and outcome.cut_short == "", "nothing that the user set breaks it"
    assert capsys.readouterr().err == ""
