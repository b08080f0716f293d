"""Validation of the real RocksDB where the recorder, a control or the load is wrong or unusual."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crashlab.controls import unknown_because
from crashlab.judging.evidence import CrashEvidence, Terms
from crashlab.judging.verdict import Verdict
from crashlab.limits import EngineLimits
from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.record import RecordPlan
from crashlab.subject import Subject
from crashlab.validate import CrashPlan, Lab, plan_all, split_states, validate
from engines.engine import ControlSettings
from engines.rocksdb.engine import CONTROLS, RocksdbEngine
from knobs.contract import Contract
from knobs.rocksdb.options_file import parse
from tests.crashlab_tests.labs import open_lab
from tests.crashlab_tests.preload_tests.programs import SOURCES, build_recorder, compile_c
from tests.crashlab_tests.rocksdb_table import SYNC, TABLE, subject
from tests.crashlab_tests.runs import RIGHT
from tests.crashlab_tests.verdict_table import MEASURE, RECORD

pytestmark = pytest.mark.slow

HELD, UNKNOWN, BROKEN = Verdict.HELD, Verdict.UNKNOWN, Verdict.BROKEN
STRICT, PROCESS = Contract("strict"), Contract("process")
DISABLE_WAL = ("WriteOptions.disableWAL", "true")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("validation")) as lab:
        yield lab


def recorded(lab: Lab, tested: Subject, folder: Path, seed: int, plan: RecordPlan = RECORD) -> CrashEvidence:
    """A recorded run alone, with its states."""
    recording = lab.record(tested, STRICT, plan, folder / "recording", seed)
    states = lab.recover(recording, tested, plan_all(recording, split_states(CONTROLS, 9), seed))
    return CrashEvidence(None, recording, states, RIGHT)


def validated(lab: Lab, tested: Subject, folder: Path, seed: int, plan: RecordPlan = RECORD) -> CrashEvidence:
    """A killed run and a recorded one."""
    killed = lab.measure(tested, MEASURE, seed)
    return replace(recorded(lab, tested, folder, seed, plan), killed=killed)


# A recorder that misses calls.


class DroppingRecorder(PreloadRecorder):
    """The test build, which lets the named call pass by unrecorded; the canary's process too, or not."""

    def __init__(self, library: Path, canary: Path, call: str, *, spares_canary: bool) -> None:
        super().__init__(library, canary)
        self._drop = {"DURATUNE_TEST_DROP": call}
        self._spares_canary = spares_canary
        self._calls = 0

    def environment(self, root: Path, log: Path, ledger: Path) -> dict[str, str]:
        self._calls += 1
        known = super().environment(root, log, ledger)
        # The canary asks first, the engine's run second.
        return known if self._spares_canary and self._calls % 2 else known | self._drop


@pytest.fixture(scope="module")
def dropping(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("dropping")
    canary = compile_c(folder / "duratune-canary", [SOURCES / "canary.c"])
    return build_recorder(folder / "libduratune_record.so", "-DDURATUNE_TEST_DROP"), canary


@pytest.mark.parametrize("settings", [(), (SYNC,), (DISABLE_WAL,)], ids=str)
@pytest.mark.parametrize("call", ["pwrite", "rename", "ftruncate", "fdatasync"])
def test_a_recorder_that_misses_a_call_decides_nothing(
    lab: Lab,
    dropping: tuple[Path, Path],
    call: str,
    settings: tuple[tuple[str, str], ...],
    seed: int,
    tmp_path: Path,
) -> None:
    blind = replace(lab, recorder=DroppingRecorder(*dropping, call, spares_canary=False))
    evidence = recorded(blind, subject(settings), tmp_path, seed)
    assert any(fault.startswith("canary: ") for fault in evidence.recording.facts.faults)
    for contract in (STRICT, PROCESS):
        found = evidence.under(contract)
        assert (found.verdict, found.power_cut.verdict) == (UNKNOWN, UNKNOWN)
        assert "not believed" in found.power_cut.unknown_why


@pytest.mark.parametrize("call", ["pwrite", "rename", "ftruncate", "fdatasync", "write"])
def test_what_the_canary_does_not_see_the_checks_of_the_log_see(
    lab: Lab, dropping: tuple[Path, Path], call: str, seed: int, tmp_path: Path
) -> None:
    """The engine's own calls are missed and the canary's are not: bytes, names or sync counts disagree.

    A call that RocksDB does not make here can be missed without harm: then nothing differs.
    """
    blind = replace(lab, recorder=DroppingRecorder(*dropping, call, spares_canary=True))
    evidence = recorded(blind, subject((SYNC,)), tmp_path, seed)
    faults = evidence.recording.facts.faults
    assert not any(fault.startswith("canary: ") for fault in faults)
    if call in ("rename", "fdatasync", "write"):
        assert faults
        assert evidence.under(STRICT).verdict is UNKNOWN
    elif not faults:
        assert evidence.under(STRICT).verdict is HELD


def test_the_kill_stands_where_the_recorder_is_blind(
    lab: Lab, dropping: tuple[Path, Path], seed: int, tmp_path: Path
) -> None:
    blind = replace(lab, recorder=DroppingRecorder(*dropping, "fdatasync", spares_canary=False))
    # Without a log no kill is a lucky one; a WAL buffer may just have been written out.
    lossy = subject((DISABLE_WAL,))
    found = validated(blind, lossy, tmp_path, seed).under(STRICT)
    assert (found.verdict, found.reasons) == (BROKEN, ("lost-ack",))
    assert (found.process_crash.verdict, found.power_cut.verdict) == (BROKEN, UNKNOWN)
    honest = validated(blind, subject((SYNC,)), make(tmp_path / "honest"), seed).under(STRICT)
    assert honest.kill is not None and honest.kill.verdict is HELD
    assert (honest.process_crash.verdict, honest.power_cut.verdict) == (UNKNOWN, UNKNOWN)


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


# Controls.


def with_controls(model: str, lossy: tuple[str, str], honest: tuple[str, str]) -> RocksdbEngine:
    """The engine with other controls for one model."""
    planted = ControlSettings(lossy=dict([lossy]), honest=dict([honest]))
    return RocksdbEngine(controls={**CONTROLS, model: planted})


NEVER_LOSES = with_controls("synced", lossy=SYNC, honest=SYNC)
ALWAYS_LOSES = with_controls("cache", lossy=DISABLE_WAL, honest=DISABLE_WAL)


@pytest.mark.parametrize(
    ("engine", "wrong"),
    [(NEVER_LOSES, ["synced.lossy"]), (ALWAYS_LOSES, ["cache.honest", "kill.honest"])],
    ids=["lossy", "honest"],
)
def test_a_wrong_control_makes_the_run_unknown(
    lab: Lab, engine: RocksdbEngine, wrong: list[str], seed: int, tmp_path: Path
) -> None:
    tested = replace(subject(), engine=engine)
    controls = lab.controls(tested, TABLE.models, seed)
    assert [control.name for control in controls if not control.right] == wrong
    assert all(name in unknown_because(controls) for name in wrong)
    evidence = replace(recorded(lab, tested, tmp_path, seed), controls=controls)
    for contract in (STRICT, PROCESS):
        assert evidence.under(contract).verdict is UNKNOWN


# What cannot be recorded.


@pytest.mark.parametrize("settings", [(), (SYNC,)], ids=["unsynced", "synced"])
def test_mapped_writes_decide_nothing_about_a_power_cut(
    lab: Lab, settings: tuple[tuple[str, str], ...], seed: int, tmp_path: Path
) -> None:
    mapped = subject((*settings, ("DBOptions.allow_mmap_writes", "true")))
    evidence = recorded(lab, mapped, tmp_path, seed)
    # It is the table files that are written through a mapping: the provoked flushes do it.
    assert any("shared-writable-mapping" in fault for fault in evidence.recording.facts.faults)
    assert evidence.under(STRICT).power_cut.verdict is UNKNOWN


def test_a_compressed_log_is_judged_by_its_states_alone(lab: Lab, seed: int, tmp_path: Path) -> None:
    compressed = ("DBOptions.wal_compression", "kZSTD")
    for settings, verdict in (((SYNC, compressed), HELD), ((compressed,), BROKEN)):
        evidence = recorded(lab, subject(settings), make(tmp_path / verdict.value), seed)
        audit = evidence.recording.audit
        assert (audit.unlocated, audit.covered + audit.exposed) == (audit.acks, 0)
        assert "wal_compression" in audit.opaque
        assert evidence.under(STRICT).verdict is verdict


# Loads.


@pytest.mark.parametrize("workload", ["b", "d", "e", "f"])
def test_the_core_workloads_hold_their_writes(lab: Lab, workload: str, seed: int, tmp_path: Path) -> None:
    tested = subject((), f"ycsb:{workload}")
    found = validated(lab, tested, tmp_path, seed, replace(RECORD, operations=3_000))
    # A hole that RocksDB's own defaults leave is a limit of the engine.
    verdict = EngineLimits(lab, Terms(PROCESS), RECORD, seed).under(found, tested)
    assert verdict.verdict is HELD
    assert verdict.process_crash.acks > 20
    assert found.under(STRICT).power_cut.verdict is BROKEN


def test_a_load_that_writes_nothing_decides_nothing(lab: Lab, seed: int, tmp_path: Path) -> None:
    """The whole validation, controls included."""
    plan = CrashPlan(split_states(CONTROLS, 6), MEASURE, RECORD)
    found = validate(subject((), "ycsb:c"), PROCESS, plan, lab, tmp_path, seed).under(PROCESS)
    assert (found.process_crash.verdict, found.power_cut.verdict) == (UNKNOWN, UNKNOWN)
    assert "acknowledged no write" in found.power_cut.unknown_why


TWO_FAMILIES = """\
[Version]
  rocksdb_version=7.8.3
  options_file_version=1.1

[DBOptions]
  create_if_missing=true

[CFOptions "default"]

[TableOptions/BlockBasedTable "default"]

[CFOptions "hot"]
  write_buffer_size=65536

[TableOptions/BlockBasedTable "hot"]
"""


@pytest.mark.parametrize(("settings", "verdict"), [((), BROKEN), ((SYNC,), HELD)], ids=["unsynced", "synced"])
def test_a_load_in_a_column_family_of_its_own(
    lab: Lab, settings: tuple[tuple[str, str], ...], verdict: Verdict, seed: int, tmp_path: Path
) -> None:
    base = parse(TWO_FAMILIES.encode(), "OPTIONS")
    tested = replace(subject(settings), engine=RocksdbEngine(base, "hot"))
    evidence = recorded(lab, tested, tmp_path, seed)
    audit = evidence.recording.audit
    assert {place.family for place in evidence.recording.log_map.places} == {1}
    assert audit.unlocated == 0
    found = evidence.under(STRICT)
    assert found.verdict is verdict
    assert all(state.disagreement is None or not state.disagreement.vanished for state in found.states)


def test_a_full_log_ends_the_load_and_says_so(lab: Lab, seed: int, tmp_path: Path) -> None:
    plan = replace(RECORD, operations=50_000, log_bytes=8 << 20)
    evidence = recorded(lab, subject((SYNC,)), tmp_path, seed, plan)
    facts = evidence.recording.facts
    assert facts.faults == ()
    (note,) = facts.notes
    assert note.startswith("the write log of 8388608 bytes was full after ")
    assert 0 < facts.operations < 50_000
    assert evidence.under(STRICT).verdict is HELD
    assert evidence.recording.audit.acks > 100
