"""When a recorded run ends: its operations done and everything provoked ended, or a log full, or late."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from crashlab.judging.evidence import CrashEvidence
from crashlab.judging.verdict import Verdict
from crashlab.recording.record import Awaited, RecordPlan, await_recorded
from crashlab.subject import Subject
from crashlab.validate import Lab, plan_all, split_states
from engines.process import DeadlinePassed, Killed
from engines.rocksdb.engine import CONTROLS
from engines.rocksdb.launch import RocksdbLaunch
from knobs.contract import Contract
from knobs.errors import DuratuneError, Undecided
from tests.crashlab_tests.labs import open_lab
from tests.crashlab_tests.rocksdb_table import SYNC, subject
from tests.crashlab_tests.runs import RIGHT
from tests.crashlab_tests.verdict_table import RECORD
from workloads.ledger import STOP_LEDGER_FULL, STOP_NONE, STOP_WRITE_LOG_FULL, Ledger
from workloads.workload import Event, Plan
from workloads.ycsb.driver import DriverProcess
from workloads.ycsb.workload import YcsbWorkload

STRICT = Contract("strict")
REACHED: Event = {"event": "reached"}
FLUSHED: Event = {"event": "provoked", "what": "flush", "error": "", "begin_position": 15, "end_position": 20}
COMPACTED: Event = {"event": "provoked", "what": "compact", "error": "", "end_position": 30}
PLAN = RecordPlan(operations=100, provoke="flush@0.3,compact@0.5", deadline_s=5.0)


class Scripted:
    """A run whose events are given, errors among them; after the last one it stays silent."""

    pid, finished = 0, False

    def __init__(self, *events: Event | DuratuneError) -> None:
        self.left = list(events)

    def wait_for(self, event: str | tuple[str, ...], deadline_s: float) -> Event:
        assert 0.0 <= deadline_s <= PLAN.deadline_s
        if not self.left:
            raise DeadlinePassed("silence")
        following = self.left.pop(0)
        if isinstance(following, DuratuneError):
            raise following
        assert following["event"] in event, "an event that is not waited for would be an error"
        return following

    def kill(self, at_last: Callable[[], object] = lambda: None) -> Killed:
        at_last()
        raise AssertionError("the caller kills")

    def figures(self) -> Event:
        raise AssertionError("nothing was measured")

    def faults(self) -> list[str]:
        return []

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(tmp_path / "ledger", 1, 10) as ledger:
        yield ledger


def stop(ledger: Ledger, reason: int) -> None:
    """Write the reason where the recorder and the clients do (docs/formats.md)."""
    with ledger.path.open("r+b") as file:
        file.seek(128)
        file.write(reason.to_bytes(4, "little"))


@pytest.mark.parametrize("order", list(itertools.permutations([REACHED, FLUSHED, COMPACTED])))
def test_it_lasts_until_all_has_ended_in_any_order(order: Sequence[Event], ledger: Ledger) -> None:
    run = Scripted(*order)
    last = next(event for event in reversed(order) if event is not REACHED)
    assert await_recorded(run, ledger, PLAN) == Awaited((), last["end_position"])
    assert run.left == []


def test_without_provocations_it_ends_with_its_operations(ledger: Ledger) -> None:
    assert await_recorded(Scripted(REACHED), ledger, replace(PLAN, provoke="")) == Awaited(())


@pytest.mark.parametrize(
    ("events", "ended"), [([REACHED, COMPACTED], 1), ([REACHED], 0), ([FLUSHED, COMPACTED], 2), ([], 0)]
)
def test_what_does_not_end_is_given_up_at_the_deadline(
    events: list[Event], ended: int, ledger: Ledger
) -> None:
    with pytest.raises(Undecided) as late:
        await_recorded(Scripted(*events), ledger, PLAN)
    assert late.value.where == "recorded run"
    assert f"0 of 100 operations in 5 s, and {ended} of 2 provocations had ended" in late.value.what


@pytest.mark.parametrize(
    ("reason", "note"),
    [
        (STOP_WRITE_LOG_FULL, "the write log of 536870912 bytes was full after 0 operations"),
        (STOP_LEDGER_FULL, "the ledger was full after 0 operations"),
    ],
)
@pytest.mark.parametrize("events", [[REACHED, FLUSHED], [FLUSHED]], ids=["reached", "not reached"])
def test_what_is_full_ends_it_and_is_said(
    events: list[Event], reason: int, note: str, ledger: Ledger
) -> None:
    stop(ledger, reason)
    stopped = {"event": "stopped", "why": "full", "last_error": ""}
    notes = await_recorded(Scripted(*events, stopped), ledger, PLAN).notes
    assert list(notes) == [f"{note}; 1 of 2 provocations had ended"]


def test_a_load_without_clients_is_no_run(ledger: Ledger) -> None:
    stopped = {"event": "stopped", "why": "no client is left", "last_error": "IO error: planted"}
    with pytest.raises(Undecided, match="no client is left") as lost:
        await_recorded(Scripted(REACHED, stopped), ledger, PLAN)
    assert lost.value.hint == "IO error: planted"


def test_a_provocation_that_fails_has_ended_and_is_said(ledger: Ledger) -> None:
    failed = {**FLUSHED, "error": "IO error: planted"}
    notes = await_recorded(Scripted(failed, REACHED, COMPACTED), ledger, PLAN).notes
    assert list(notes) == ["provoking flush failed: IO error: planted"]


# The real driver.


class Mute(DriverProcess):
    """A driver that never reports what it has provoked."""

    def _next(self, wanted: str, ends_s: float) -> Event:
        while True:
            event = super()._next(wanted, ends_s)
            if event["event"] != "provoked":
                return event


class Observed(DriverProcess):
    """A driver that is looked at when it is about to be killed."""

    ledger: Path
    seen: list[str]

    def kill(self, at_last: Callable[[], object] = lambda: None) -> Killed:
        if self.seen == []:
            self.seen += [event["event"] for event in self.events]
            with Ledger.open(self.ledger) as ledger:
                before, ends_s = ledger.operations, time.monotonic() + 30.0
                while ledger.operations == before and time.monotonic() < ends_s:
                    time.sleep(0.001)
                assert ledger.operations > before, "the load does not go on"
                assert ledger.stop == STOP_NONE
        return super().kill(at_last)


@dataclass(frozen=True)
class Driven(YcsbWorkload):
    """YCSB whose driver is one of the above."""

    driver: type[DriverProcess] = DriverProcess
    seen: tuple[list[str], ...] = ()

    def start(
        self,
        launch: RocksdbLaunch,
        plan: Plan,
        folder: Path,
        ledger: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> DriverProcess:
        run = super().start(launch, plan, folder, ledger, environment)
        # The base class names its driver's class itself; a test's one has the same state.
        run.__class__ = self.driver
        if isinstance(run, Observed):
            assert ledger is not None
            run.ledger, (run.seen,) = ledger, self.seen
        return run


def driven(tested: Subject, driver: type[DriverProcess], *seen: list[str]) -> Subject:
    values: dict[str, Any] = {f.name: getattr(tested.workload, f.name) for f in fields(YcsbWorkload)}
    return replace(tested, workload=Driven(**values, driver=driver, seen=seen))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("recording")) as lab:
        yield lab


@pytest.mark.slow
@pytest.mark.parametrize("operations", [100, 2_000])
def test_the_kill_comes_after_the_provocations_and_in_the_middle_of_the_load(
    lab: Lab, operations: int, seed: int, tmp_path: Path
) -> None:
    seen: list[str] = []
    plan = replace(RECORD, operations=operations)
    recording = lab.record(driven(subject(), Observed, seen), STRICT, plan, tmp_path / "recording", seed)
    assert (seen.count("provoked"), seen.count("reached"), seen.count("stopped")) == (3, 1, 0)
    assert (recording.facts.faults, recording.facts.notes) == ((), ())
    assert recording.facts.operations >= operations


@pytest.mark.slow
def test_a_driver_that_never_reports_a_provocation_is_undecided(lab: Lab, seed: int, tmp_path: Path) -> None:
    plan = replace(RECORD, operations=100, deadline_s=2.0)
    with pytest.raises(Undecided, match=r"in 2 s, and 0 of 3 provocations had ended"):
        lab.record(driven(subject((SYNC,)), Mute), STRICT, plan, tmp_path / "recording", seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "note"),
    [
        (
            replace(RECORD, operations=100, log_bytes=8 << 20),
            "the write log of 8388608 bytes was full after ",
        ),
        (replace(RECORD, operations=100, spare_entries=0), "the ledger was full "),
    ],
    ids=["write log", "ledger"],
)
def test_a_run_that_is_full_before_a_provocation_has_ended_is_a_valid_run(
    lab: Lab, plan: RecordPlan, note: str, seed: int, tmp_path: Path
) -> None:
    tested = driven(replace(subject((SYNC,)), threads=2), Mute)
    recording = lab.record(tested, STRICT, plan, tmp_path / "recording", seed)
    states = lab.recover(recording, tested, plan_all(recording, split_states(CONTROLS, 9), seed))
    facts = recording.facts
    assert facts.faults == () and facts.operations > 100
    (said,) = facts.notes
    assert said.startswith(note) and said.endswith(" operations; 0 of 3 provocations had ended")
    assert CrashEvidence(None, recording, states, RIGHT).under(STRICT).verdict is Verdict.HELD
    assert recording.audit.acks > 100
