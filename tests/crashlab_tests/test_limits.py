"""Limits of the engine: looked for only where a verdict hangs on them, on its safest settings, and found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from crashlab.judging.evidence import CrashEvidence, Terms
from crashlab.judging.verdict import Verdict
from crashlab.limits import LOOKS_MAX, EngineLimits
from crashlab.recording.record import RecordPlan
from crashlab.recording.recorded import Recording
from crashlab.subject import Subject
from crashlab.validate import Lab
from engines.rocksdb.engine import SYNC, RocksdbEngine
from knobs.contract import Contract
from knobs.errors import Undecided
from tests.crashlab_tests.histories import rows
from tests.crashlab_tests.labs import open_lab
from tests.crashlab_tests.runs import RIGHT, killed, recovered, state
from tests.crashlab_tests.test_evidence import END, PAST, SHORT, WHOLE, evidence
from workloads import registry

STRICT, PROCESS = Contract("strict"), Contract("process")
PLAN = RecordPlan(operations=2_000)
SAFEST = {SYNC: "true"}


@dataclass(frozen=True)
class WatchedLab(Lab):
    """A lab that notes which settings it records."""

    recorded: list[dict[str, str]] = field(default_factory=list)

    def record(self, subject: Subject, *more: Any) -> Recording:
        self.recorded.append(dict(subject.settings))
        return super().record(subject, *more)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[WatchedLab]:
    with open_lab(tmp_path) as opened:
        yield WatchedLab(opened.recorder, opened.scratch, opened.data)


def subject(settings: dict[str, str]) -> Subject:
    return Subject(RocksdbEngine(), registry.find("ycsb:a").at_most(2_000), settings, threads=8)


def broken(*models: str) -> CrashEvidence:
    """One state of each of the models that break, and one of `synced` that holds."""
    return evidence(
        state("synced", END, recovered(WHOLE)),
        *(state(model, END, recovered(SHORT)) for model in models),
        synced=True,
    )


@pytest.mark.parametrize(
    "made",
    [
        broken(),
        broken("torn", "cache"),
        replace(broken("torn"), killed=killed(PAST, recovered(SHORT), END)),
        replace(broken("torn"), controls=[replace(RIGHT[0], got=Verdict.UNKNOWN), *RIGHT[1:]]),
        broken("torn-posix"),
    ],
    ids=["nothing breaks", "a kill between calls breaks too", "the kill breaks too", "unknown", "aside"],
)
def test_nothing_is_run_where_the_verdict_does_not_hang_on_draws(
    made: CrashEvidence, lab: WatchedLab
) -> None:
    found = EngineLimits(lab, Terms(STRICT), PLAN, 1).under(made, subject({}))
    assert (found.limits, lab.recorded) == ((), [])
    assert found == made.under(STRICT)


def test_nothing_is_run_where_limits_are_laid_to_the_candidate(lab: WatchedLab) -> None:
    found = EngineLimits(lab, Terms(STRICT, strict_model=True), PLAN, 1).under(broken("torn"), subject({}))
    assert (found.verdict, found.limits, lab.recorded) == (Verdict.BROKEN, (), [])


def test_what_breaks_the_safest_settings_themselves_is_a_limit(lab: WatchedLab) -> None:
    found = EngineLimits(lab, Terms(STRICT), PLAN, 1).under(broken("torn", "reordered"), subject(SAFEST))
    assert (found.power_cut.verdict, lab.recorded) == (Verdict.HELD, [])
    assert [(limit.model, limit.broken, limit.states) for limit in found.limits] == [
        ("torn", 1, 1),
        ("reordered", 1, 1),
    ]


def test_what_the_safest_settings_survive_is_the_candidates_own(lab: WatchedLab) -> None:
    """RocksDB with every write synced loses nothing, however its writes are torn; looked for once."""
    limits = EngineLimits(lab, Terms(STRICT), PLAN, 1)
    for _ in range(2):
        found = limits.under(
            broken("torn", "reordered"), subject({SYNC: "true", "write_buffer_size": "65536"})
        )
        assert (found.verdict, found.limits) == (Verdict.BROKEN, ())
    assert lab.recorded == LOOKS_MAX * [SAFEST]


def test_where_the_safest_settings_cannot_be_recorded_the_verdict_stands(
    lab: WatchedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Recording:
        raise Undecided("the recorded run did 3 of 2000 operations", where="recorded run")

    said: list[str] = []
    monkeypatch.setattr(WatchedLab, "record", fails)
    limits = EngineLimits(replace(lab, say=said.append), Terms(STRICT), PLAN, 1)
    found = limits.under(broken("torn"), subject({}))
    assert (found.verdict, found.limits) == (Verdict.BROKEN, ())
    assert "did 3 of 2000 operations" in said[-1]


def test_a_hole_of_rocksdbs_own_defaults_is_a_limit(lab: WatchedLab) -> None:
    """An unsynced log is lost and a later one survives: RocksDB 7.8 recovers the later one."""
    hole = state("reordered", END, recovered(rows((0, 0, 1), (1, 1, 2))))
    # One such state in thirty has it, so that each of the three models alone may miss it.
    others = [state(model, END, recovered(WHOLE)) for model in ("synced", "torn", "torn-512")]
    made = evidence(*others, hole, synced=True)
    assert made.under(PROCESS).reasons == ("hole",)
    found = EngineLimits(lab, Terms(PROCESS), PLAN, 1).under(made, subject({"write_buffer_size": "1048576"}))
    assert found.power_cut.verdict is Verdict.HELD
    assert lab.recorded == len(lab.recorded) * [{}] and 1 <= len(lab.recorded) <= LOOKS_MAX
    assert {limit.model for limit in found.limits} <= {"torn", "torn-512", "reordered"}
    for limit in found.limits:
        assert (limit.contract, limit.reasons) == ("process", ("hole",))
        assert 0 < limit.broken < limit.states == 100 and "survived" in limit.evidence
