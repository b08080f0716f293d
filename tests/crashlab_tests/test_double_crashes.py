"""A second crash during the recovery of the real engines: a sync that only recovery leaves out is caught by
nothing else, and honest recoveries are held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crashlab.controls import Control
from crashlab.judging.evidence import CrashEvidence, CrashVerdict, Terms
from crashlab.judging.judge import RecoveredState, judge_states
from crashlab.judging.verdict import Verdict
from crashlab.limits import EngineLimits
from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.record import RecordPlan
from crashlab.recording.recorded import Facts, Recording
from crashlab.recording.recorder import Recorder
from crashlab.recording.recovery import AGAIN
from crashlab.recording.write_log import Kind, WriteLog
from crashlab.states.double import DOUBLE, DoubleState
from crashlab.subject import Subject
from crashlab.validate import Lab, plan_all, split_states
from knobs.contract import Contract
from knobs.errors import MachineLacks
from tests.crashlab_tests import postgresql_table, rocksdb_table
from tests.crashlab_tests.labs import open_lab
from tests.crashlab_tests.preload_tests.programs import HERE, SOURCES, build_recorder, compile_c
from tests.crashlab_tests.runs import RIGHT
from tests.crashlab_tests.test_validation import DroppingRecorder
from tests.engines_tests.postgresql_engines import nothing_left

pytestmark = pytest.mark.slow

STRICT = Contract("strict")
HELD, UNKNOWN, BROKEN = Verdict.HELD, Verdict.UNKNOWN, Verdict.BROKEN
STATES, DOUBLES = 9, 10
MODELS = ("cache", "synced", "torn", "reordered")
RECORD = RecordPlan(operations=800)
UNSYNCED = {"rocksdb": "*.sst", "postgresql": "*/base/*"}
"""What a planted recovery does not sync: the files that make the log it replayed unnecessary."""


class Forgetful(PreloadRecorder):
    """Records an engine some of whose syncs do nothing while it recovers, and only then."""

    def __init__(self, library: Path, pattern: str) -> None:
        super().__init__()
        self._fault = library
        self._pattern = pattern

    def environment(self, root: Path, log: Path, ledger: Path) -> dict[str, str]:
        known = super().environment(root, log, ledger)
        # The folder that a recovery is recorded in.
        if not any(part.startswith("duratune-again-") for part in root.parts):
            return known
        return {
            **known,
            "LD_PRELOAD": f"{self._fault} {known['LD_PRELOAD']}",
            "DURATUNE_TEST_UNSYNCED": self._pattern,
        }


class Judged:
    """An honest recorded run of one engine, whose single states are held."""

    def __init__(self, lab: Lab, subject: Subject, folder: Path, seed: int) -> None:
        self.lab = lab
        self.subject = subject
        self.seed = seed
        self.recording = lab.record(subject, STRICT, RECORD, folder / "recording", seed)
        planned = plan_all(self.recording, split_states(MODELS, STATES), seed)
        self.singles = lab.recover(self.recording, subject, planned)

    def again(self, recorder: Recorder | None = None, states: int = DOUBLES) -> list[RecoveredState]:
        """Double states, of recoveries that this recorder records; those of another one are gone."""
        for folder in sorted(self.recording.folder.glob(f"{AGAIN}/*")):
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        lab = replace(self.lab, recorder=recorder or self.lab.recorder)
        with nothing_left():
            return lab.crash_again(self.recording, self.subject, STRICT, self.singles, states, self.seed)

    def evidence(self, doubles: list[RecoveredState]) -> CrashEvidence:
        return CrashEvidence(None, self.recording, [*self.singles, *doubles], RIGHT)

    def verdict(self, doubles: list[RecoveredState]) -> CrashVerdict:
        """Limits of the engine looked for, where it hangs on them."""
        limits = EngineLimits(self.lab, Terms(STRICT), RECORD, self.seed)
        return limits.under(self.evidence(doubles), self.subject)


@pytest.fixture(scope="module", params=["rocksdb", "postgresql"])
def judged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> Iterator[Judged]:
    folder = tmp_path_factory.mktemp(request.param)
    with open_lab(folder, needs_reach=request.param == "postgresql") as lab:
        try:
            subject = (
                postgresql_table.TABLE.subject(lab)
                if request.param == "postgresql"
                else rocksdb_table.subject((rocksdb_table.SYNC,))
            )
        except MachineLacks as error:
            pytest.skip(str(error))
        yield Judged(lab, subject, folder, seed)


@pytest.fixture(scope="module")
def unsynced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unsynced")
    return compile_c(folder / "unsynced.so", [HERE / "unsynced.c"], "-shared", "-fPIC")


def groups(verdict: CrashVerdict) -> dict[str, Verdict]:
    return {name: model.verdict for name, model in verdict.models.items()}


def test_an_honest_recovery_is_held_however_it_is_crashed(judged: Judged) -> None:
    doubles = judged.again()
    verdict = judged.verdict(doubles)
    assert groups(verdict) == dict.fromkeys((*MODELS, DOUBLE), HELD), verdict.reasons
    assert len(doubles) == DOUBLES == len({state.planned.id for state in doubles})
    planned = [state.planned for state in doubles]
    assert all(isinstance(state, DoubleState) for state in planned)
    assert {state.source for state in planned} == {"recovery"}
    # The end and what comes before it; right after an old log has gone; a sync that is not done yet.
    for why in ("the end of the recovery", "before a sync of"):
        assert any(state.why.startswith(why) for state in planned)
    for folder in (judged.recording.folder / AGAIN).iterdir():
        assert Facts.load(folder).faults == ()
        assert sorted(path.name for path in folder.iterdir()) == ["facts.json", "write.log"]
        kinds = {each.kind for each in WriteLog.read(folder / "write.log").operations}
        assert {Kind.WRITE, Kind.CREATE, Kind.FSYNC} <= kinds, "there was work to do"


def test_a_recovery_that_leaves_out_a_sync_is_broken_by_a_second_crash_only(
    judged: Judged, unsynced: Path
) -> None:
    doubles = judged.again(Forgetful(unsynced, UNSYNCED[judged.subject.engine.name]))
    verdict = judged.verdict(doubles)
    assert groups(verdict) == {**dict.fromkeys(MODELS, HELD), DOUBLE: BROKEN}
    assert (verdict.verdict, verdict.power_cut.verdict, verdict.limits) == (BROKEN, BROKEN, ())
    # It hangs on no draw: where the removal of the log and the new MANIFEST or pg_control are durable, and
    # what they speak of is not.
    worst = verdict.worst_state
    assert worst is not None and isinstance(worst.planned, DoubleState)
    aimed = [
        state
        for state in verdict.states
        if state.planned.model in ("cache>synced", "synced>synced")
        and state.planned.why.startswith("the end of the recovery")
    ]
    assert aimed and all(state.judgement.verdict is BROKEN for state in aimed)


def test_a_kept_recovery_is_crashed_again_without_being_recorded_again(judged: Judged) -> None:
    first = judged.again(states=3)
    opened = Recording(judged.recording.folder, judged.subject.engine.log_reader)
    again = judged.lab.recover(opened, judged.subject, [state.planned for state in first])
    for made in (first, again):
        assert [state.judgement.verdict for state in judge_states(opened, made, STRICT)] == [HELD] * 3
    assert [state.recovered.candidate.tolist() for state in first if state.recovered] == [
        state.recovered.candidate.tolist() for state in again if state.recovered
    ]


def test_a_recorder_that_misses_a_call_of_the_recovery_decides_nothing(
    judged: Judged, tmp_path: Path
) -> None:
    """The canary's own calls are not missed, so it is the comparison with the live files that tells."""
    canary = compile_c(tmp_path / "duratune-canary", [SOURCES / "canary.c"])
    library = build_recorder(tmp_path / "libduratune_record.so", "-DDURATUNE_TEST_DROP")
    call = "rename" if judged.subject.engine.name == "rocksdb" else "pwrite"
    doubles = judged.again(DroppingRecorder(library, canary, call, spares_canary=True), states=3)
    (judged_one,) = judge_states(judged.recording, doubles, STRICT)
    assert judged_one.judgement.verdict is UNKNOWN
    assert "the write log is not believed: writes: " in judged_one.judgement.unknown_why
    verdict = judged.verdict(doubles)
    assert (verdict.verdict, groups(verdict)[DOUBLE]) == (UNKNOWN, UNKNOWN)


def test_the_controls_of_double_crashes_are_right(judged: Judged) -> None:
    found = judged.lab.controls(judged.subject, [DOUBLE], judged.seed)
    assert [control for control in found if not control.right] == []
    assert [control.name for control in found if control.name.startswith(DOUBLE)] == [
        f"{DOUBLE}.honest",
        f"{DOUBLE}.lossy",
    ]


def test_a_recovery_that_syncs_nothing_makes_the_honest_control_wrong(judged: Judged, unsynced: Path) -> None:
    engine = judged.subject.engine.name
    planted = replace(judged.lab, recorder=Forgetful(unsynced, UNSYNCED[engine]))
    found: dict[str, Control] = {
        control.name: control for control in planted.controls(judged.subject, [DOUBLE], judged.seed)
    }
    assert found[f"{DOUBLE}.lossy"].right
    assert found[f"{DOUBLE}.honest"].got is BROKEN
