"""A crash verdict told to a person and to a program, from evidence that is made by hand."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from crashlab.controls import Control
from crashlab.judging.evidence import CrashEvidence, EngineLimit, ModelSummary
from crashlab.judging.verdict import Verdict
from knobs.contract import Contract
from knobs.finding import Finding
from knobs.postgresql import durability
from tests.crashlab_tests.histories import W, history, initial_rows, rows
from tests.crashlab_tests.runs import killed, recorded_log, recording, recovered, state
from tuner.report import crash as crash_report
from tuner.report.findings import finding_lines
from tuner.report.held import BOUND_STATES_MIN, Depth, bound_lines

HELD, UNKNOWN, BROKEN = Verdict.HELD, Verdict.UNKNOWN, Verdict.BROKEN
NAMES = [f"{name}.{pick}" for name in ("cache", "kill", "synced") for pick in ("lossy", "honest")]
RIGHT = [Control(name, verdict := BROKEN if "lossy" in name else HELD, verdict) for name in NAMES]
PAST = history([W(1, 0, 21, 22), W(1, 1, 823, 824)], initial_records=2)
END = 825
WHOLE, NOTHING = rows((0, 1, 1), (1, 1, 2)), rows(*initial_rows(2))


def evidence(controls: list[Control] = RIGHT, lossy: bool = False, states: int = 1) -> CrashEvidence:
    tape, log_map = recorded_log(PAST)
    if not lossy:
        tape.fsync(1)
    made = recording(tape.disk(), PAST, log_map, first_position=20)
    vars(made)["log"] = SimpleNamespace(record_count=0)
    there = recovered(NOTHING if lossy else WHOLE)
    judged = [state("cache", END, recovered(WHOLE)), *[state("synced", END, there)] * states]
    return CrashEvidence(killed(PAST, recovered(WHOLE), END), made, judged, controls)


def text(found: CrashEvidence, findings: list[Finding] | None = None, contract: str = "strict") -> str:
    verdict = found.under(Contract.parse(contract))
    return crash_report.as_text(found, verdict, findings or [], [], str, "duratune crash")


def document(found: CrashEvidence, contract: str = "strict") -> dict[str, Any]:
    return crash_report.as_json(
        found,
        found.under(Contract.parse(contract)),
        seed=1,
        provenance={},
        effective={},
        findings=[],
        recovery_ignores=[],
        name_of=str,
        replay="",
    )


@pytest.mark.parametrize("shared", [True, False], ids=["all", "one"])
def test_why_a_control_is_wrong_is_told_once_with_what_it_spoils(shared: bool) -> None:
    why = "the recorder did not report in"
    controls = [
        Control(each.name, each.wanted, UNKNOWN, why) if shared or each.name == "synced.lossy" else each
        for each in RIGHT
    ]
    said = text(evidence(controls))
    assert said.count(why) == 1
    assert all(each.name in said for each in controls if not each.right)
    assert f"UNKNOWN by that: {'the kill and ' if shared else ''}the 2 crash states" in said
    assert "power cut      UNKNOWN" in said and "; a control is wrong" in said


def test_where_it_broke_is_told_only_of_what_broke() -> None:
    held, broken = document(evidence()), document(evidence(lossy=True))
    assert (held["verdict"], broken["verdict"]) == ("HELD", "BROKEN")
    assert held["process_crash"]["seen_in"] is None and held["power_cut"]["seen_in"] is None
    assert broken["process_crash"]["seen_in"] is None
    assert broken["power_cut"]["seen_in"] == f"synced@{END}#1"
    # What a contract allows to be lost did not break it.
    allowed = document(evidence(lossy=True), "process")["power_cut"]
    assert (allowed["verdict"], allowed["lost"], allowed["seen_in"]) == ("HELD", 2, None)


def test_how_many_states_of_which_model_is_told() -> None:
    assert "states         6 judged: cache 1, synced 5\n" in text(evidence(states=5))


@pytest.mark.parametrize(
    ("depth", "said"),
    [
        (Depth(30, None, 33), "6 judged: cache"),
        (Depth(30, 5.0, 33), "6 of 33 judged in 5 s: cache"),
        (Depth(None, 0.5, 10_999), "6 judged in 0.5 s: cache"),
    ],
)
def test_how_many_were_judged_of_how_many_and_in_which_time_is_told(depth: Depth, said: str) -> None:
    found = evidence(states=5)
    verdict = found.under(Contract("strict"))
    assert f"states         {said} 1, synced 5\n" in crash_report.as_text(
        found, verdict, [], [], str, "duratune crash", depth
    )


def test_states_with_the_content_of_another_are_told_and_named() -> None:
    found = evidence(states=3)
    same = f"synced@{END}#1"
    first, second, *others = found.states
    alike = replace(found, states=[first, second, *(replace(each, same_as=same) for each in others)])
    assert "4 judged: cache 1, synced 3; 2 of them with the content of another\n" in text(alike)
    assert [each["same_as"] for each in document(alike)["states"]] == ["", "", same, same]
    assert "content of another" not in text(found)


def test_what_the_states_covered_is_told_and_kept() -> None:
    found = evidence()
    assert found.coverage is not None
    kept = document(found)["coverage"]
    assert kept == found.coverage.as_json()
    assert f"coverage       {kept['covered']} of {kept['cells']} (operation x role x phase)" in text(found)
    disbelieved = replace(found, states=[])
    assert disbelieved.coverage is None and document(disbelieved)["coverage"] == {}
    assert "coverage" not in text(disbelieved)


def test_a_bound_that_says_nothing_is_not_told() -> None:
    said = text(evidence(states=BOUND_STATES_MIN))
    assert f"synced: all {BOUND_STATES_MIN} states" in said and "at most 45 %" in said
    assert "too few states at moments drawn uniformly in time (cache 1; it takes 5 of a model)" in said
    few = {"synced": ModelSummary(HELD, 4, 0, 4, 4, 0.53)}
    assert bound_lines(few, held=False) == []
    assert [line for line in bound_lines(few, held=True) if "%" in line] == []


def test_what_one_cause_opens_is_one_line() -> None:
    found = durability.breaking({"synchronous_commit": "off", "fsync": "off"}, Contract("strict"), "15")
    lines = finding_lines(found)
    assert len(found) == 4 and len(lines) == 2
    fsync, commit = lines
    assert fsync.startswith("finding        fsync=off: ") and "any page may be old or new" in fsync
    assert commit.startswith("finding        synchronous_commit=off, wal_writer_delay=200")
    assert commit.count("a commit is acknowledged before") == 1


def overridden(name: str, why: str, source: str, rule: str = "outside-overridden") -> Finding:
    return Finding(rule, name, "x", "", "nothing", why, source)


def test_what_is_overridden_is_one_line_that_lists_it() -> None:
    paths = [overridden(name, "a path", f"/etc/my.conf:{at}") for at, name in enumerate(("port", "ssl"))]
    extension = overridden("a.b", "of an extension", "/etc/my.conf:7")
    own = [overridden(name, f"its own {name}", "duratune", "overridden") for name in ("lc_messages", "x")]
    assert finding_lines([*paths, extension, *own]) == [
        "finding        port, ssl: a path [/etc/my.conf]",
        "finding        a.b=x: of an extension [/etc/my.conf:7]",
        "finding        lc_messages, x: the private cluster has a value of duratune's own [duratune]",
    ]
    standby = Finding(
        "overridden", "synchronous_standby_names", "*", "failover", "unknown", "empty", "duratune"
    )
    assert finding_lines([*own, standby], "mine: ")[1].startswith(
        "finding        mine: synchronous_standby_names=*: empty; unknown ["
    )


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("a", "x", "a=x"),
        ("a + b", "x + y", "a=x, b=y"),
        ("a", "x + y", "a=x + y"),
        ("a + b", "x", "a + b=x"),
    ],
)
def test_a_finding_names_its_settings_as_people_write_them(setting: str, value: str, said: str) -> None:
    assert Finding("r", setting, value, "", "", "", "").in_words == said


def test_what_does_not_count_is_told_with_what_counts_it() -> None:
    limit = EngineLimit("torn", "strict", ("lost-ack",), 40, 2, "torn@7#1", "a write survived")
    made = evidence()
    states = [
        *made.states,
        state("torn", END, recovered(NOTHING)),
        state("synced-posix", END, recovered(NOTHING)),
    ]
    found = replace(made, states=states, limits=[limit])
    said = text(found)
    assert "engine limit   torn: lost-ack in 2 of 40 states of the safest settings for strict" in said
    assert "(--strict-model counts it); torn@7#1: a write survived" in said
    assert f"warning        synced-posix@{END}#1: lost-ack where a file system keeps no more names" in said
    assert "verdict        HELD" in said and "evidence " not in said and "no bound: " in said
    assert "synced-posix 1;" not in said.split("no bound")[1]
    told = document(found)
    assert told["engine_limits"] == [{**asdict(limit)}]
    assert [state["aside"] for state in told["states"]] == ["", "", "engine-limit", "posix"]
    assert told["power_cut"]["models"]["torn"]["aside"] == 1
