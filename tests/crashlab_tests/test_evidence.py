"""Evidence judged under contracts: what makes it UNKNOWN, and what stands in spite of that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crashlab.controls import Control, unknown_because
from crashlab.judging.evidence import CrashEvidence, EngineLimit, Terms
from crashlab.judging.judge import RecoveredState
from crashlab.judging.oracle import History
from crashlab.judging.verdict import Verdict
from crashlab.kill import KilledRun
from knobs.contract import Contract
from tests.crashlab_tests.histories import W, history, initial_rows, rows
from tests.crashlab_tests.runs import RIGHT, killed, recorded_log, recording, recovered, state
from workloads.workload import Recovered

HELD, UNKNOWN, BROKEN = Verdict.HELD, Verdict.UNKNOWN, Verdict.BROKEN
STRICT, PROCESS = Contract("strict"), Contract("process")

# Two writes, acknowledged at 22 and 824 ms.
PAST = history([W(1, 0, 21, 22), W(1, 1, 823, 824)], initial_records=2)
END = 825
WHOLE, SHORT, FIRST_LOST = rows((0, 1, 1), (1, 1, 2)), rows((0, 1, 1), (1, 0, 2)), rows(*initial_rows(2))


def evidence(
    *states: RecoveredState,
    kill: KilledRun | None = None,
    controls: list[Control] = RIGHT,
    past: History = PAST,
    synced: bool = False,
    faults: tuple[str, ...] = (),
) -> CrashEvidence:
    tape, log_map = recorded_log(past)
    if synced:
        tape.fsync(1)
    made = recording(tape.disk(), past, log_map, first_position=20, faults=faults)
    return CrashEvidence(kill, made, states, controls)


def both(rows_there: Recovered) -> tuple[RecoveredState, RecoveredState]:
    return state("cache", END, rows_there), state("synced", END, rows_there)


def test_what_holds_everywhere_is_held() -> None:
    found = evidence(*both(recovered(WHOLE)), kill=killed(PAST, recovered(WHOLE), END), synced=True).under(
        STRICT
    )
    assert (found.verdict, found.reasons) == (HELD, ())
    assert found.process_crash.states == found.power_cut.states == 1
    assert found.process_crash.acks == 2


@pytest.mark.parametrize("name", ["cache.lossy", "cache.honest", "synced.lossy", "synced.honest"])
@pytest.mark.parametrize("lossy", [False, True])
def test_a_wrong_control_leaves_nothing_of_the_log(name: str, lossy: bool) -> None:
    controls = [
        Control(c.name, c.wanted, UNKNOWN if c.name == name else c.got, "so it came out") for c in RIGHT
    ]
    held = killed(PAST, recovered(WHOLE), END)
    made = evidence(*both(recovered(SHORT if lossy else WHOLE)), kill=held, controls=controls)
    found = made.under(STRICT)
    assert (found.process_crash.verdict, found.power_cut.verdict) == (UNKNOWN, UNKNOWN)
    assert name in found.power_cut.unknown_why
    assert found.worst_state is None


def test_a_reason_that_controls_share_is_told_once() -> None:
    names = ("cache.honest", "synced.honest", "kill.honest")
    wrong = [Control(name, HELD, UNKNOWN, "no room for the log") for name in names]
    said = unknown_because([*RIGHT[:3], *wrong, Control("synced.lossy", BROKEN, HELD)])
    assert said.count("no room for the log") == 1 and all(name in said for name in names)
    assert said.startswith(
        "controls cache.honest, synced.honest, kill.honest are UNKNOWN where they must be "
    )
    assert said.endswith("; control synced.lossy is HELD where it must be BROKEN")
    assert unknown_because(RIGHT) == ""


def test_the_broken_kill_stands_beside_a_wrong_control_of_the_log() -> None:
    wrong = [Control("synced.lossy", BROKEN, HELD), *RIGHT[1:]]
    lost = killed(PAST, recovered(SHORT), END)
    found = evidence(*both(recovered(WHOLE)), kill=lost, controls=wrong).under(STRICT)
    assert (found.verdict, found.reasons) == (BROKEN, ("lost-ack",))
    assert (found.process_crash.verdict, found.power_cut.verdict) == (BROKEN, UNKNOWN)
    assert (found.process_crash.lost, found.process_crash.loss_ms) == (1, 1.0)


@pytest.mark.parametrize(
    ("name", "got"), [("kill.lossy", HELD), ("kill.honest", BROKEN), ("kill.honest", UNKNOWN)]
)
def test_a_wrong_control_of_the_kill_leaves_nothing_at_all(name: str, got: Verdict) -> None:
    controls = [Control(c.name, c.wanted, got if c.name == name else c.got) for c in RIGHT]
    lost = killed(PAST, recovered(SHORT), END)
    found = evidence(*both(recovered(SHORT)), kill=lost, controls=controls).under(STRICT)
    assert (found.process_crash.verdict, found.power_cut.verdict) == (UNKNOWN, UNKNOWN)


def test_the_kill_stands_where_the_log_is_not_believed() -> None:
    for there, verdict in ((WHOLE, UNKNOWN), (SHORT, BROKEN)):
        kill = killed(PAST, recovered(there), END)
        found = evidence(*both(recovered(SHORT)), kill=kill, faults=("writes: differ",)).under(STRICT)
        assert found.kill is not None and found.kill.verdict is (HELD if there is WHOLE else BROKEN)
        assert (found.process_crash.verdict, found.power_cut.verdict) == (verdict, UNKNOWN)


def test_a_log_that_is_not_believed_has_no_states_and_holds_nothing() -> None:
    for there, verdict in ((WHOLE, UNKNOWN), (SHORT, BROKEN)):
        kill = killed(PAST, recovered(there), END)
        found = evidence(kill=kill, faults=("canary: the log lacks a rename",)).under(STRICT)
        assert (found.process_crash.verdict, found.power_cut.verdict) == (verdict, UNKNOWN)
        assert "the log lacks a rename" in found.power_cut.unknown_why


def test_a_run_that_acknowledged_nothing_decides_nothing() -> None:
    silent = history([W(1, 0, 21, None)], initial_records=2)
    there = recovered(rows(*initial_rows(2)))
    found = evidence(*both(there), kill=killed(silent, there, END), past=silent, synced=True).under(PROCESS)
    assert (found.process_crash.verdict, found.power_cut.verdict) == (UNKNOWN, UNKNOWN)
    assert "acknowledged no write" in found.process_crash.unknown_why


def test_a_kill_that_acknowledged_nothing_is_not_held_by_the_recorded_run() -> None:
    silent = history([W(1, 0, 21, None)], initial_records=2)
    kill = killed(silent, recovered(rows(*initial_rows(2))), END)
    found = evidence(*both(recovered(WHOLE)), kill=kill, synced=True).under(STRICT)
    assert (found.process_crash.verdict, found.power_cut.verdict) == (UNKNOWN, HELD)
    assert "the killed run acknowledged no write" in found.process_crash.unknown_why


def test_nothing_judged_is_unknown() -> None:
    found = evidence().under(STRICT)
    assert (found.verdict, found.process_crash.verdict) == (UNKNOWN, UNKNOWN)
    assert found.process_crash.unknown_why == "nothing was judged"


def test_a_run_shorter_than_the_window_holds_nothing() -> None:
    made = evidence(*both(recovered(WHOLE)), synced=True)
    assert made.under(Contract.parse("bounded:900ms")).verdict is UNKNOWN
    assert "less than the window" in made.under(Contract.parse("bounded:900ms")).power_cut.unknown_why
    assert made.under(Contract.parse("bounded:700ms")).verdict is HELD


def test_a_run_shorter_than_the_window_may_still_break() -> None:
    found = evidence(state("synced", END, recovered(rows((1, 0, 2))))).under(Contract.parse("bounded:5s"))
    assert found.power_cut.verdict is BROKEN


def test_under_a_window_the_newest_may_be_lost_and_the_older_not() -> None:
    window = Contract.parse("bounded:500ms")
    assert evidence(state("cache", END, recovered(SHORT))).under(window).process_crash.verdict is HELD
    older = evidence(state("cache", END, recovered(FIRST_LOST))).under(window).process_crash
    assert (older.verdict, older.reasons) == (BROKEN, ("over-bound",))
    assert (older.lost, older.loss_ms) == (2, 802.0)


def test_process_allows_a_loss_at_the_cut_and_not_at_the_kill() -> None:
    found = evidence(*both(recovered(SHORT))).under(PROCESS)
    assert (found.process_crash.verdict, found.process_crash.reasons) == (BROKEN, ("lost-ack",))
    assert (found.power_cut.verdict, found.power_cut.lost) == (UNKNOWN, 0), "an exposed ack was there"
    cut = evidence(state("synced", END, recovered(FIRST_LOST))).under(PROCESS)
    assert (cut.power_cut.verdict, cut.power_cut.lost) == (HELD, 2)


def test_one_bad_state_breaks_it_and_is_the_one_to_show() -> None:
    states = [
        state("cache", END, recovered(WHOLE)),
        state("cache", END - 1, recovered(SHORT)),
        state("cache", END + 1, recovered(FIRST_LOST)),
    ]
    found = evidence(*states).under(STRICT)
    assert found.process_crash.verdict is BROKEN
    assert found.process_crash.lost == 2
    assert found.worst_state is not None and found.worst_state.planned.position == END + 1


def test_what_is_shown_is_of_what_broke_and_not_of_what_lost_more_and_held() -> None:
    past = history(
        [W(1, 0, 21, 22), *(W(1, n, 820 + 2 * n, 821 + 2 * n) for n in (1, 2, 3))], initial_records=4
    )
    three_newest = state("cache", 830, recovered(rows((0, 1, 1), *((n, 0, n + 1) for n in (1, 2, 3)))))
    the_oldest = state("cache", 829, recovered(rows((0, 0, 1), *((n, 1, n + 1) for n in (1, 2, 3)))))
    found = evidence(three_newest, the_oldest, past=past).under(Contract.parse("bounded:500ms")).process_crash
    assert (found.verdict, found.seen_in, found.lost) == (BROKEN, the_oldest.planned.id, 1)
    assert found.loss_ms > 500.0


def test_what_is_provoked_must_leave_the_load_alone_for_longer_than_the_window() -> None:
    tape, log_map = recorded_log(PAST)
    tape.fsync(1)
    window = Contract.parse("bounded:700ms")
    for until, verdict in ((0, HELD), (823, UNKNOWN)):
        made = recording(tape.disk(), PAST, log_map, first_position=20, provoked_until=until)
        found = CrashEvidence(None, made, both(recovered(WHOLE)), RIGHT).under(window)
        assert found.verdict is verdict
        assert ("after what was provoked" in found.power_cut.unknown_why) is (verdict is UNKNOWN)


def test_only_uniform_moments_bound_the_share_that_breaks() -> None:
    held = recovered(WHOLE)
    aimed = [state("cache", END, held, source="exposure"), state("cache", END, held, source="event")]
    model = evidence(*aimed).under(STRICT).models["cache"]
    assert (model.uniform, model.broken_share_max) == (0, None)
    drawn = [state("cache", END + n, held) for n in range(14)]
    model = evidence(*aimed, *drawn).under(STRICT).models["cache"]
    assert model.uniform == model.uniform_held == 14
    assert model.broken_share_max == pytest.approx(0.193, abs=0.001)
    broken = evidence(*drawn, state("cache", END, recovered(SHORT))).under(STRICT).models["cache"]
    assert (broken.uniform_held, broken.broken_share_max) == (14, None)


def test_evidence_judged_again_is_the_same() -> None:
    made = evidence(*both(recovered(FIRST_LOST)), kill=killed(PAST, recovered(SHORT), END))
    assert made.under(STRICT) == made.under(STRICT)


def test_without_any_control_nothing_is_held() -> None:
    assert unknown_because([]) == "no control was run"
    found = evidence(*both(recovered(WHOLE)), kill=killed(PAST, recovered(WHOLE), END), controls=[]).under(
        STRICT
    )
    assert (found.verdict, found.process_crash.verdict, found.power_cut.verdict) == (UNKNOWN,) * 3


# What is told and does not count.

HOLE = EngineLimit("torn", "strict", ("lost-ack",), 40, 2, "torn@7#1", "a write survived")


@pytest.mark.parametrize("model", ["synced-posix", "torn-posix", "reordered-posix"])
@pytest.mark.parametrize("metadata", ["ordered", "posix"])
def test_states_of_the_other_metadata_rule_are_told_and_do_not_count(model: str, metadata: str) -> None:
    made = evidence(state("synced", END, recovered(WHOLE)), state(model, END, recovered(SHORT)), synced=True)
    found = made.under(Terms(STRICT, "posix" if metadata == "posix" else "ordered"))
    counts = metadata == "posix"
    assert found.power_cut.verdict is (BROKEN if counts else HELD)
    assert found.power_cut.states == (2 if counts else 1)
    assert [state.planned.model for state in found.aside] == ([] if counts else [model])
    assert (found.worst_state is None) is not counts
    assert found.models[model].verdict is BROKEN and found.models[model].aside == (0 if counts else 1)


def test_a_limit_of_the_engine_does_not_count_unless_it_is_laid_to_the_candidate() -> None:
    made = evidence(
        state("synced", END, recovered(WHOLE)),
        state("reordered", END, recovered(SHORT)),
        state("reordered", END, recovered(WHOLE)),
        synced=True,
    )
    assert made.under(STRICT).power_cut.verdict is BROKEN
    made = replace(made, limits=[HOLE])
    found = made.under(STRICT)
    assert (found.power_cut.verdict, found.power_cut.states, found.limits) == (HELD, 2, (HOLE,))
    assert [state.aside for state in found.aside] == ["engine-limit"]
    assert (found.models["reordered"].verdict, found.models["reordered"].aside) == (HELD, 1)
    assert made.under(Terms(STRICT, strict_model=True)).power_cut.verdict is BROKEN


@pytest.mark.parametrize(
    "other",
    [
        replace(HOLE, contract="process"),
        replace(HOLE, reasons=("hole",)),
        replace(HOLE, model="synced"),
    ],
    ids=["contract", "reasons", "a model that draws nothing"],
)
def test_a_limit_covers_what_breaks_the_same_contract_for_the_same_reasons(other: EngineLimit) -> None:
    made = evidence(state("torn", END, recovered(SHORT)), synced=True)
    assert replace(made, limits=[HOLE]).under(STRICT).aside
    found = replace(made, limits=[other]).under(STRICT)
    assert found.aside == () and found.power_cut.verdict is BROKEN


@pytest.mark.parametrize("model", ["cache", "synced"])
def test_no_limit_excuses_a_model_that_draws_no_survivors(model: str) -> None:
    made = evidence(state(model, END, recovered(SHORT)), synced=True)
    assert replace(made, limits=[HOLE]).under(STRICT).verdict is BROKEN
