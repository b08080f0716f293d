"""Who wins, with a lab that takes no time: only what its confirmation proves faster, else the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crashlab.judging.evidence import CrashVerdict
from crashlab.judging.judge import JudgedState
from crashlab.judging.verdict import Judgement, Verdict
from crashlab.states.plan import PlannedState
from knobs.contract import Contract
from tests.tuner_tests.fake_lab import FakeLab, fake_lab, unloaded
from tests.tuner_tests.requests import request_of, result_of
from tuner.output import Output
from tuner.search import final
from tuner.search.final import Final
from tuner.search.study import StudyFolder
from tuner.search.study_plan import StudyPlan
from tuner.search.trial import TrialResult

pytestmark = pytest.mark.usefixtures("native_parts")

NAME = "DBOptions.max_background_jobs"


def candidate(number: int, ratio: float, verdict: str = "HELD") -> TrialResult:
    return result_of(number, verdict, ratio, settings={NAME: str(number + 2)})


@dataclass
class Fresh:
    """What the fresh runs say: HELD, but for the values of NAME in ``broken``; "" is the reference."""

    broken: tuple[str, ...] = ()
    judged: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    plans: list[Any] = field(default_factory=list)

    def validate(self, subject: Any, contract: Contract, plan: Any, lab: Any, folder: Path, seed: int) -> Any:
        assert lab.data.is_dir()
        (folder / "recording").mkdir()
        jobs = subject.settings.get(NAME, "")
        self.judged.append(jobs)
        self.seeds.append(seed)
        self.plans.append(plan)
        verdict = Verdict.BROKEN if jobs in self.broken else Verdict.HELD
        judgement = Judgement(verdict, ("lost-ack",) if jobs in self.broken else (), acks=9, decidable=9)
        state = JudgedState(PlannedState("synced", 5, 1, "uniform", "drawn"), judgement, 0.1)
        return SimpleNamespace(under=lambda _: CrashVerdict(contract, judgement, (state,)))


@contextmanager
def final_of(
    folder: Path, gain: Mapping[str, float], monkeypatch: pytest.MonkeyPatch, fresh: Fresh
) -> Iterator[tuple[Final, FakeLab]]:
    """The end of a study whose settings run at these multiples of the reference; each run is a little other,
    so that an interval has a width."""

    def rate(settings: Mapping[str, str], run: int, _recover: bool) -> float:
        return 1_000.0 * gain.get(settings.get(NAME, ""), 1.0) * (1.0 + 0.001 * (run * 7 % 5))

    monkeypatch.setattr(final, "validate", fresh.validate)
    (folder / "study").mkdir()
    with fake_lab(folder, rate) as lab:
        request = unloaded(request_of())
        output = Output(quiet=True)
        yield Final(request, StudyPlan(), StudyFolder(folder / "study"), lab, output, {}), lab


def test_who_is_proven_faster_wins(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = Fresh()
    with final_of(memory_path, {"3": 1.5}, monkeypatch, fresh) as (end, _):
        decision = end.decide([result_of(0), candidate(1, 1.4)])
    assert decision.winner and decision.claim and decision.winner.trial is decision.claim.trial
    assert decision.winner.trial.number == 1 and decision.claim.interval.in_words == "faster"
    assert fresh.judged == ["3"] and decision.refused == []


@pytest.mark.parametrize(("gain", "claim"), [(0.8, "slower"), (1.0, "not proven faster")])
def test_who_is_not_proven_faster_does_not_win(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch, gain: float, claim: str
) -> None:
    """However fast it was as a trial: the reference wins, on a fresh run of its own."""
    fresh = Fresh()
    with final_of(memory_path, {"3": gain}, monkeypatch, fresh) as (end, _):
        decision = end.decide([result_of(0), candidate(1, 3.0)])
    assert decision.winner and decision.winner.trial.number == 0 and fresh.judged == [""]
    assert decision.claim and decision.claim.trial.number == 1
    assert decision.claim.interval.in_words == claim


def test_who_breaks_on_the_fresh_run_is_refused_and_the_next_must_be_proven_too(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = Fresh(broken=("3",))
    results = [result_of(0), candidate(1, 1.9), candidate(2, 1.8)]
    with final_of(memory_path, {"3": 1.9, "4": 1.0}, monkeypatch, fresh) as (end, _):
        decision = end.decide(results)
    assert [one.number for one in decision.refused] == [1] and fresh.judged == ["3", ""]
    assert decision.winner and decision.winner.trial.number == 0
    assert decision.claim and decision.claim.trial.number == 2


def test_where_the_reference_breaks_who_holds_wins_however_slow(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a trial, or only on its fresh run; the ratio is told all the same."""
    fresh = Fresh()
    results = [result_of(0, "BROKEN", reasons=("lost-ack",)), candidate(1, 0.5)]
    with final_of(memory_path, {"3": 0.5}, monkeypatch, fresh) as (end, _):
        decision = end.decide(results)
        assert decision.winner and decision.winner.trial.number == 1 and fresh.judged == ["3"]
        assert decision.claim and decision.claim.interval.in_words == "slower"
        monkeypatch.setattr(final, "validate", Fresh(broken=("",)).validate)
        decision = end.decide([result_of(0), candidate(1, 1.5)])
    assert decision.winner and decision.winner.trial.number == 1
    assert [(one.number, one.verdict) for one in decision.refused] == [(0, "BROKEN")]


@pytest.mark.parametrize("verdict", ["HELD", "UNKNOWN"])
def test_without_a_faster_candidate_only_a_reference_that_held_wins(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    with final_of(memory_path, {"3": 1.0}, monkeypatch, Fresh()) as (end, lab):
        decision = end.decide([result_of(0, verdict), candidate(1, 0.9), candidate(2, 2.0, "BROKEN")])
        assert lab.runs == [] and decision.claim is None
        assert (decision.winner is not None) is (verdict == "HELD")
        unproven = end.decide([result_of(0, verdict), candidate(1, 1.1)])
    assert unproven.claim and (unproven.winner is not None) is (verdict == "HELD")


def test_the_fresh_run_is_one_that_crash_can_repeat(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = Fresh()
    with final_of(memory_path, {"3": 1.5}, monkeypatch, fresh) as (end, _):
        end._request = end._request.with_seed(2**62 - 1)
        decision = end.decide([result_of(0), candidate(1, 1.4)])
    assert decision.winner and decision.winner.seed == fresh.seeds[0] < 2**62
    assert decision.winner.plan is fresh.plans[0]
    assert decision.winner.asked_states == StudyPlan().winner_states


def test_the_best_of_many_is_chosen_in_a_play_off(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was measured only once: of the best three the one that is fastest again comes first."""
    gain = {"3": 1.1, "4": 1.4, "5": 1.2, "6": 9.0}
    results = [
        result_of(0, ratio=1.3),
        candidate(1, 2.0),
        candidate(2, 1.9),
        candidate(3, 1.8),
        candidate(4, 1.1),
        candidate(5, 0.9),
        candidate(6, 5.0, "BROKEN"),
    ]
    with final_of(memory_path, gain, monkeypatch, Fresh()) as (end, _):
        assert [trial.number for trial in end.ranked(results, 1.0)] == [2, 3, 1, 4]
        assert [trial.number for trial in end.ranked(results, 0.0)] == [2, 3, 1, 4, 5]
