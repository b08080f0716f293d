"""The end of a study, told: what won, what it is worth, what was refused, and what is taken away."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crashlab.controls import Control
from crashlab.judging.evidence import CrashVerdict
from crashlab.judging.judge import JudgedState
from crashlab.judging.verdict import Judgement, Verdict
from crashlab.kill import MeasurePlan
from crashlab.recording.record import RecordPlan
from crashlab.states.plan import PlannedState
from crashlab.validate import CrashPlan, split_states
from knobs import configuration
from knobs.contract import Contract
from tests.tuner_tests.requests import OPTIONS_HEAD, request_of, result_of
from tuner.commands.tune import _exit_code, _something_held
from tuner.options import seconds as options_seconds
from tuner.report import tune as tune_report
from tuner.request import Request, resolve
from tuner.search.confirmation import PairedRound, interval_of
from tuner.search.final import Claim, Winner
from tuner.search.study_plan import StudyPlan
from tuner.search.trial import TrialResult
from tuner.search.tuning import StudyOutcome

pytestmark = pytest.mark.usefixtures("native_parts")

FASTER = {"CFOptions.write_buffer_size": "134217728", "DBOptions.unordered_write": "true"}


def verdict_of(verdict: Verdict = Verdict.HELD) -> CrashVerdict:
    """A fresh run's kill and one state, both with this verdict."""
    judgement = Judgement(verdict, acks=100, decidable=90)
    state = JudgedState(PlannedState("synced", 5, 1, "uniform", "drawn"), judgement, 0.1)
    return CrashVerdict(Contract("process"), judgement, (state,))


def winner_of(trial: TrialResult, states: int = 60) -> Winner:
    plan = CrashPlan(split_states(["cache", "synced"], states), MeasurePlan(measure_s=0.7), RecordPlan())
    return Winner(trial, verdict_of(), 4_711, plan, states)


def outcome_of(
    results: Sequence[TrialResult],
    winner: TrialResult | None,
    rates: Sequence[tuple[float, float]] = (),
    refused_at_last: Sequence[TrialResult] = (),
    claimed: TrialResult | None = None,
    cut_short: str = "",
) -> StudyOutcome:
    """A study's outcome; the claim is that of ``claimed``, else of the winner, else of the fastest."""
    rounds = [PairedRound(ours, theirs) for ours, theirs in rates]
    measured = [result for result in results if result.ratio > 0]
    fastest = max(measured, key=lambda result: result.ratio, default=None)
    whose = claimed or winner or fastest
    return StudyOutcome(
        controls=[Control("kill.lossy", Verdict.BROKEN, Verdict.BROKEN)],
        results=results,
        winner=winner_of(winner) if winner else None,
        claim=Claim(whose, rounds, interval_of(rounds, 1)) if rounds and whose else None,
        fastest=fastest,
        refused_at_last=refused_at_last,
        cut_short=cut_short,
    )


RESULTS = [
    result_of(0, ratio=1.02),
    result_of(1, ratio=1.5, settings=FASTER, proposer="rules"),
    result_of(2, "BROKEN", 4.0, reasons=("lost-ack", "hole")),
    result_of(3, "BROKEN", 0.5, reasons=("corrupt",)),
    result_of(4, "REJECTED", 0.0, why="rocksdb: no"),
    result_of(5, "UNKNOWN", 0.0, why="the lab failed"),
]
CLEAR = [(1_500.0, 1_000.0), (1_510.0, 1_000.0), (1_490.0, 1_000.0), (1_505.0, 1_001.0)]
SLOWER = [(500.0, 1_000.0), (510.0, 1_000.0), (490.0, 1_000.0), (505.0, 1_001.0)]
NOISE = [(1_500.0, 1_000.0), (800.0, 1_000.0), (1_100.0, 1_000.0), (900.0, 1_000.0)]


def document(outcome: StudyOutcome, request: Request | None = None, audit: bool = False) -> dict[str, Any]:
    found = tune_report.as_json(
        request or request_of(), StudyPlan(audit_only=audit), Path("s"), {}, outcome, {"seed": 1}, []
    )
    json.dumps(found, allow_nan=False)
    return found


def text(outcome: StudyOutcome, audit: bool = False) -> str:
    return tune_report.as_text(request_of(), StudyPlan(audit_only=audit), Path("s"), {}, outcome)


def test_a_winner_with_its_claim_and_what_was_faster_and_refused() -> None:
    outcome = outcome_of(RESULTS, RESULTS[1], CLEAR)
    found = document(outcome)
    assert found["winner"]["trial"] == 1 and found["winner"]["settings"] == FASTER
    assert found["winner"]["verdict"] == "HELD" and found["winner"]["power_cut"]["states"] == 1
    assert found["winner"]["proven_faster"] and found["unproven"] is None
    assert found["confirmation"]["trial"] == 1 and found["confirmation"]["claim"] == "faster"
    assert found["confirmation"]["better"] and found["confirmation"]["low"] > 1.0
    assert found["confirmation"]["rounds"][0] == {"candidate_per_s": 1_500.0, "reference_per_s": 1_000.0}
    assert found["refused"] == [
        {"trial": 2, "verdict": "BROKEN", "reasons": ["lost-ack", "hole"], "ratio": 4.0}
    ], "a broken one that is slower is no loss"
    assert found["controls"]["kill.lossy"] == {"wanted": "BROKEN", "got": "BROKEN", "why": ""}
    assert [trial["verdict"] for trial in found["trials"]] == [result.verdict for result in RESULTS]
    said = text(outcome)
    assert "2 HELD, 2 BROKEN, 1 UNKNOWN, 1 REJECTED" in said
    assert "trial 2: 4.00 x reference, lost-ack, hole" in said and "trial 3:" not in said
    assert "winner         trial 1 (rules): holds process; over the reference:" in said
    assert "CFOptions.write_buffer_size=134217728" in said
    assert "states         1 judged: synced 1\n" in said and "no bound: too few states" in said
    assert "faster than the reference" in said and "rocksdb: no" in said and "the lab failed" in said


@pytest.mark.parametrize(("rates", "claim"), [(NOISE, "not proven faster"), (SLOWER, "slower")])
def test_who_is_not_proven_faster_is_told_and_is_not_the_winner(
    rates: Sequence[tuple[float, float]], claim: str
) -> None:
    outcome = outcome_of(RESULTS, RESULTS[0], rates, claimed=RESULTS[1])
    found = document(outcome)
    assert found["winner"]["trial"] == 0 and not found["winner"]["proven_faster"]
    assert not found["confirmation"]["better"] and found["confirmation"]["claim"] == claim
    assert found["unproven"]["trial"] == 1 and found["unproven"]["settings"] == FASTER
    assert found["unproven"]["claim"] == claim and found["unproven"]["low"] < 1.0
    said = text(outcome)
    assert (
        "winner         the reference itself: no candidate that holds the contract is proven faster" in said
    )
    assert f"not the winner trial 1 (rules): the fastest that held, but {claim}; over the reference:" in said
    assert f"{claim} than the reference" in said and "configuration  s/winner/OPTIONS" in said
    assert _exit_code(StudyPlan(), outcome) == 0


def test_an_unproven_candidate_beside_a_reference_that_was_not_judged_wins_nothing() -> None:
    unknown = [result_of(0, "UNKNOWN", why="planted"), RESULTS[1]]
    outcome = outcome_of(unknown, None, NOISE, claimed=RESULTS[1])
    assert _exit_code(StudyPlan(), outcome) == 4 and document(outcome)["unproven"]["trial"] == 1
    assert "which itself is not shown to hold the contract" in text(outcome)
    refuted = [result_of(0, "BROKEN", 1.0, reasons=("hole",))]
    outcome = outcome_of(RESULTS[:2], None, NOISE, refused_at_last=refuted, claimed=RESULTS[1])
    assert _exit_code(StudyPlan(), outcome) == 1


def test_who_holds_what_the_reference_does_not_wins_though_it_is_slower() -> None:
    broken = [result_of(0, "BROKEN", 1.0, reasons=("hole",)), result_of(1, ratio=0.5, settings=FASTER)]
    outcome = outcome_of(broken, broken[1], SLOWER)
    found = document(outcome)
    assert found["winner"]["trial"] == 1 and not found["winner"]["proven_faster"]
    assert found["unproven"] is None and found["confirmation"]["claim"] == "slower"
    said = text(outcome)
    assert "holds process, which the reference does not hold; over the reference:" in said
    assert "slower than the reference" in said
    rejected = [result_of(0, "REJECTED", 0.0, why="too large"), broken[1]]
    said = text(outcome_of(rejected, broken[1], SLOWER))
    assert "holds process, where the reference is REJECTED; over the reference:" in said


def test_a_search_that_ends_by_what_the_user_set_says_so() -> None:
    broken = [result_of(0, "BROKEN", 1.0, reasons=("lost-ack",))]
    outcome = outcome_of(broken, None, cut_short="the reference broke it by sync=false")
    assert document(outcome)["cut_short"] == "the reference broke it by sync=false"
    assert "winner         none: the reference broke it by sync=false" in text(outcome)
    assert _exit_code(StudyPlan(), outcome) == 1


def test_the_reference_may_win() -> None:
    outcome = outcome_of(RESULTS[:1], RESULTS[0])
    found = document(outcome)
    assert found["winner"]["trial"] == 0 and found["confirmation"] is None and found["refused"] == []
    said = text(outcome)
    assert "the reference itself: no candidate that holds the contract was faster" in said
    assert "nothing to confirm" in said and "refused        none: no trial broke the contract" in said


@pytest.mark.parametrize("audit", [True, False])
def test_the_reference_gains_nothing_over_itself(audit: bool) -> None:
    """What a pair of runs of one configuration shows is noise, whichever way."""
    outcome = outcome_of([result_of(0, ratio=1.14), result_of(1, "BROKEN", 1.1, reasons=("hole",))], None)
    said = text(outcome, audit)
    (row,) = [line for line in said.splitlines() if line.split()[:1] == ["0"]]
    assert row.split()[2:] == ["reference", "HELD"] and "1.14" not in said and "1.10" in said
    assert document(outcome)["trials"][0]["ratio"] == 1.14


def test_what_broke_and_was_slower_is_no_loss() -> None:
    """Slower than the winner; than 1, where the winner is the reference, whose own ratio is noise."""
    results = [result_of(0, ratio=0.9), result_of(1, "BROKEN", 0.95, reasons=("hole",))]
    outcome = outcome_of(results, results[0])
    assert document(outcome)["refused"] == []
    assert "refused        none that was faster than the winner (broke the contract and slower: 1)" in text(
        outcome
    )


def test_nothing_held() -> None:
    outcome = outcome_of(RESULTS[2:], None)
    found = document(outcome)
    assert found["winner"] is None and found["confirmation"] is None
    assert [refused["trial"] for refused in found["refused"]] == [2, 3]
    assert "none: nothing that was tried holds the contract" in text(outcome)
    assert not _something_held(StudyPlan(), outcome)


def test_who_held_once_and_not_on_the_fresh_run_is_refused() -> None:
    """Also where nothing is left after it, the reference included: then nothing held."""
    at_last = [
        result_of(1, "BROKEN", 1.5, reasons=("lost-ack",)),
        result_of(0, "UNKNOWN", 1.02, why="the log was not believed"),
    ]
    outcome = outcome_of(RESULTS[:2], None, refused_at_last=at_last)
    assert [(one["trial"], one["verdict"]) for one in document(outcome)["refused"]] == [
        (1, "BROKEN"),
        (0, "UNKNOWN"),
    ]
    said = text(outcome)
    assert "trial 1: 1.50 x reference, lost-ack" in said
    assert "trial 0: the reference itself, UNKNOWN: the log was not believed" in said
    assert not _something_held(StudyPlan(), outcome), "two trials held, and neither did in the end"
    assert _something_held(StudyPlan(), outcome_of(RESULTS, RESULTS[0], refused_at_last=at_last[:1]))


def test_an_audit_says_what_speed_alone_would_have_shipped() -> None:
    outcome = outcome_of(RESULTS, None, CLEAR)
    found = document(outcome, audit=True)
    assert found["audit_only"] and found["fastest"]["trial"] == 2
    assert found["fastest"]["verdict"] == "BROKEN" and found["fastest"]["reasons"] == ["lost-ack", "hole"]
    assert found["unproven"] is None, "an audit crowns nobody, so nobody is passed over"
    said = text(outcome, audit=True)
    assert "would have shipped trial 2: 4.00 x reference, BROKEN lost-ack, hole" in said
    assert "winner  " not in said and "faster than the reference" in said
    assert _something_held(StudyPlan(audit_only=True), outcome)
    assert not _something_held(StudyPlan(audit_only=True), outcome_of(RESULTS[2:], None))
    assert "no trial was measured" in text(outcome_of(RESULTS[4:], None), audit=True)


def test_an_audit_whose_fastest_holds_names_what_broke_and_by_what() -> None:
    buffers = {"CFOptions.write_buffer_size": "1048576"}
    lossy = {"WriteOptions.disableWAL": "true", **buffers}
    results = [
        result_of(0),
        result_of(1, "BROKEN", 1.4, reasons=("lost-ack",), settings=lossy),
        result_of(2, ratio=1.5, settings=FASTER),
        result_of(3, "BROKEN", 1.3, reasons=("hole",), settings=buffers),
    ]
    said = text(outcome_of(results, None, CLEAR), audit=True)
    shipped, broke = said.split("broke  ")
    assert "would have shipped trial 2: 1.50 x reference, HELD" in shipped
    assert "DBOptions.unordered_write=true" in shipped and "disableWAL" not in shipped
    known, unknown = broke.split("trial 3: ")
    assert "trial 1: 1.40 x reference, BROKEN lost-ack, by WriteOptions.disableWAL=true\n" in known
    assert "write_buffer_size" not in known, "it is known by what this one breaks"
    assert unknown.startswith("1.30 x reference, BROKEN hole\n") and "write_buffer_size=1048576" in unknown
    alone = text(outcome_of(results[:1], None), audit=True)
    assert "would have shipped the reference itself, HELD" in alone and "broke  " not in alone


CONFIG = f"""\
{OPTIONS_HEAD}[CFOptions "default"]
  write_buffer_size=33554432
[TableOptions/BlockBasedTable "default"]
[CFOptions "other"]
  write_buffer_size=16777216
[TableOptions/BlockBasedTable "other"]
"""


@pytest.mark.parametrize(
    ("with_config", "column_family"), [(True, "default"), (True, "other"), (False, "default")]
)
def test_what_is_taken_away_gives_the_same_settings(
    tmp_path: Path, with_config: bool, column_family: str
) -> None:
    config = tmp_path / "mine"
    config.write_text(CONFIG)
    request = request_of(config=str(config) if with_config else None, column_family=column_family)
    settings = {
        **request.settings,
        **FASTER,
        "BlockBasedTableOptions.block_cache": "1048576",
        "WriteOptions.sync": "true",
        "Application.sync_wal_every_ms": "20",
    }
    folder = tune_report.write_winner(request, tmp_path, result_of(1, settings=settings))
    assert sorted(path.name for path in folder.iterdir()) == ["OPTIONS", "write-options.json"]
    joined = f"{folder}/OPTIONS+{folder}/write-options.json"
    again = request_of(config=joined, column_family=column_family)
    assert settings.items() <= again.settings.items() and again.findings == ()
    for other in {"default", "other"} - {column_family} if with_config else set[str]():
        kept = configuration.read("rocksdb", f"{folder}/OPTIONS", column_family=other).settings
        before = configuration.read("rocksdb", str(config), column_family=other).settings
        assert kept["CFOptions.write_buffer_size"] == before["CFOptions.write_buffer_size"]
    # A winner that sets nothing outside of the file is one too, and the later winner takes its place.
    tune_report.write_winner(request, tmp_path, result_of(0, settings=request.settings))
    assert request_of(config=joined, column_family=column_family).settings.items() >= request.settings.items()
    assert "WriteOptions.sync" not in request_of(config=joined, column_family=column_family).settings


def test_the_repeat_command_is_the_same_request(tmp_path: Path) -> None:
    """Every property that the study's workload has by its options, not only the counts."""
    load = tmp_path / "my load"
    load.write_text("recordcount=70\nreadproportion=0.1\nupdateproportion=0.9\n")
    request = request_of(
        workload=f"ycsb:{load}",
        properties=("fieldlength=11", "zeropadding=3"),
        scale=None,
        contract="bounded:500ms,recovery=30s",
    )
    tune_report.write_winner(request, tmp_path, result_of(1, settings=FASTER))
    command = shlex.split(tune_report.repeat_command(request, tmp_path, winner_of(result_of(1), 45)))
    assert command[:3] == ["duratune", "crash", "rocksdb"]
    config, *options = command[3:]
    given = dict(zip(options[::2], options[1::2], strict=True))
    properties = [value for name, value in zip(options[::2], options[1::2], strict=True) if name == "-p"]
    again = resolve(
        "rocksdb",
        config,
        [],
        given["--workload"],
        properties,
        given["--contract"],
        int(given["--seed"]),
        int(given["--clients"]),
        None,
        "default",
        20_000,
    )
    assert again.workload.parameters == request.workload.parameters
    assert (again.contract, again.clients) == (request.contract, request.clients)
    # Not the study's seed: the fresh run's, with its states and its length.
    assert again.seed == 4_711 and given["--states"] == "45"
    assert (options_seconds(given["--measure"]), given["--operations"]) == (0.7, str(RecordPlan().operations))
    assert again.settings.items() >= FASTER.items()
