"""Real recordings of both engines: the same log judged twice gives the same; its events are the engine's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from crashlab.judging.judge import JudgedState, judge_states
from crashlab.judging.verdict import Verdict
from crashlab.models import MODELS
from crashlab.recording.recorded import Recording
from crashlab.states.coverage import coverage
from crashlab.subject import Subject
from crashlab.validate import Lab, plan_all, split_states
from knobs.contract import Contract
from tests.crashlab_tests import postgresql_table, rocksdb_table
from tests.crashlab_tests.labs import open_lab
from tests.crashlab_tests.verdict_table import RECORD, Row, Table

pytestmark = pytest.mark.slow

STRICT = Contract("strict")
STATES = 40
TABLES = {"rocksdb": rocksdb_table.TABLE, "postgresql": postgresql_table.TABLE}


@dataclass(frozen=True)
class Recorded:
    lab: Lab
    subject: Subject
    recording: Recording
    seed: int

    def judged(self) -> list[JudgedState]:
        """Everything from what is on the disk alone."""
        opened = Recording(self.recording.folder, self.recording.reader)
        planned = plan_all(opened, split_states(self.subject.engine.controls, STATES, "posix"), self.seed)
        return list(judge_states(opened, self.lab.recover(opened, self.subject, planned), STRICT))


def record(table: Table, row: Row, lab: Lab, folder: Path, seed: int) -> Recorded:
    tested = table.subject(lab, row)
    return Recorded(lab, tested, lab.record(tested, STRICT, table.record, folder / "recording", seed), seed)


@pytest.fixture(scope="module", params=TABLES)
def lossy(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> Iterator[Recorded]:
    """A run with settings that lose writes, so that there is something to differ in."""
    table = TABLES[request.param]
    name = {"rocksdb": "defaults", "postgresql": "fsync=off"}[request.param]
    row = next(row for row in table.rows if row.name == name)
    folder = tmp_path_factory.mktemp(request.param)
    with open_lab(folder, needs_reach=table.needs_reach) as lab:
        yield record(table, row, lab, folder, seed)


def told(states: list[JudgedState]) -> list[object]:
    return [
        (
            state.planned,
            state.same_as,
            state.judgement.verdict,
            state.judgement.reasons,
            state.judgement.lost_indices,
            state.judgement.lost_initial,
        )
        for state in states
    ]


def test_the_same_log_judged_twice_gives_the_same(lossy: Recorded) -> None:
    assert lossy.recording.facts.faults == ()
    first = lossy.judged()
    assert {state.planned.model for state in first} == {*MODELS} & {*lossy.subject.engine.controls}
    assert Verdict.BROKEN in {state.judgement.verdict for state in first}
    assert told(lossy.judged()) == told(first)
    # A state that took another's recovery is judged as it is by its own.
    shared = [state for state in first if state.same_as][:6]
    alone = [lossy.lab.recover(lossy.recording, lossy.subject, [state.planned]) for state in shared]
    for state, recovered in zip(shared, alone, strict=True):
        (again,) = judge_states(lossy.recording, recovered, STRICT)
        assert again.same_as == "" and told([again])[0][2:] == told([state])[0][2:]  # type: ignore[index]


def test_the_events_of_a_run_are_those_that_it_provoked(lossy: Recorded) -> None:
    found = lossy.recording.view.events
    if lossy.subject.engine.name == "rocksdb":
        assert len(found["memtable flush"]) >= 2 and len(found["compaction install"]) >= 1
        assert len(found["WAL switch"]) >= 2
    else:
        assert len(found["checkpoint"]) >= 2 and len(found["WAL switch"]) >= 1
        assert {"recycle", "new segment"} & {*found}


def test_many_states_cover_the_events_in_every_phase(lossy: Recorded) -> None:
    shares = split_states(lossy.subject.engine.controls, 400)
    planned = plan_all(lossy.recording, shares, lossy.seed)
    found = coverage(lossy.recording.view, [state.position for state in planned])
    assert all(cell.states for cell in found.events)
    assert found.covered >= 0.8 * len(found.operations)


def test_rocksdb_recycles_its_logs_and_rolls_its_manifest_where_it_is_told_to(
    tmp_path: Path, seed: int
) -> None:
    settings = (
        ("DBOptions.recycle_log_file_num", "2"),
        ("DBOptions.max_manifest_file_size", "300"),
        # With any other mode RocksDB (7.8) recycles nothing (db_impl_open.cc, SanitizeOptions).
        ("DBOptions.wal_recovery_mode", "kSkipAnyCorruptedRecords"),
    )
    plan = replace(RECORD, provoke="flush@0.2,flush@0.4,flush@0.6,flush@0.8")
    table = replace(rocksdb_table.TABLE, record=plan)
    with open_lab(tmp_path) as lab:
        run = record(table, Row("recycled", settings, ()), lab, tmp_path, seed)
        found = run.recording.view.events
        assert run.recording.facts.faults == () and {"recycle", "manifest roll"} <= {*found}
        planned = plan_all(run.recording, {"synced": 90}, seed)
        aimed = {state.why.split(" a ")[-1] for state in planned if state.source == "event"}
        assert {"recycle", "manifest roll"} <= aimed
