"""Both engines on virtual disks: honest ones hold, lossy ones and lossy mounts break, a blind recorder
decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from crashlab.block.recorder import BlockRecorder
from crashlab.controls import unknown_because
from crashlab.judging.evidence import CrashEvidence, CrashVerdict
from crashlab.judging.judge import judge_states
from crashlab.judging.verdict import Verdict
from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.record import RecordPlan
from crashlab.recording.recorded import Recording
from crashlab.subject import Subject
from crashlab.validate import Lab, plan_all, split_states
from engines.host import mounts_below
from knobs.contract import Contract
from tests.crashlab_tests import postgresql_table
from tests.crashlab_tests.block_tests.disks import KINDS, need_disks
from tests.crashlab_tests.labs import WatchedLab, open_lab
from tests.crashlab_tests.preload_tests.programs import build_recorder, compile_c
from tests.crashlab_tests.rocksdb_table import SYNC
from tests.crashlab_tests.rocksdb_table import subject as rocksdb_subject
from tests.crashlab_tests.runs import RIGHT

pytestmark = pytest.mark.slow

HELD, UNKNOWN, BROKEN = Verdict.HELD, Verdict.UNKNOWN, Verdict.BROKEN
STRICT = Contract("strict")
RECORD = RecordPlan(operations=600, log_bytes=256 << 20)
MODELS = ("cache", "synced", "torn", "torn-512", "reordered")
STATES = 15


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedLab]:
    need_disks()
    with open_lab(tmp_path_factory.mktemp("block"), needs_reach=True) as lab:
        yield replace(lab, recorder=BlockRecorder(watcher=lab.watcher))
        assert mounts_below(lab.data) == []


def on_disk(lab: WatchedLab, kind: str, options: str = "") -> WatchedLab:
    """The same lab with another file system or other mount options."""
    need_disks(kind)
    return replace(lab, recorder=BlockRecorder(kind, options, watcher=lab.watcher))


def judged(lab: Lab, tested: Subject, folder: Path, seed: int, plan: RecordPlan = RECORD) -> CrashEvidence:
    """A recorded run and its states."""
    recording = lab.record(tested, STRICT, plan, folder / "recording", seed)
    states = lab.recover(recording, tested, plan_all(recording, split_states(MODELS, STATES), seed))
    return CrashEvidence(None, recording, states, RIGHT)


def subject_of(engine: str, lab: WatchedLab, settings: Mapping[str, str]) -> Subject:
    if engine == "rocksdb":
        return rocksdb_subject((SYNC, *settings.items()))
    return postgresql_table.TABLE.subject(lab).with_settings(settings)


def under_strict(evidence: CrashEvidence) -> CrashVerdict:
    found = evidence.under(STRICT)
    assert evidence.recording.facts.faults == ()
    return found


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        *(("rocksdb", kind) for kind in KINDS),
        ("postgresql", "ext4"),
        # By their length: what differs from the ones above is the file system or the engine alone.
        pytest.param("postgresql", "xfs", marks=pytest.mark.proof),
        pytest.param("postgresql", "btrfs", marks=pytest.mark.proof),
    ],
)
def test_honest_settings_hold_on_every_file_system(
    lab: WatchedLab, engine: str, kind: str, seed: int, tmp_path: Path
) -> None:
    where = on_disk(lab, kind)
    evidence = judged(where, subject_of(engine, where, {}), tmp_path, seed)
    found = under_strict(evidence)
    assert (found.verdict, found.reasons) == (HELD, ())
    assert found.power_cut.acks > 0 and set(found.models) == set(MODELS)
    assert evidence.recording.facts.file_system == kind


@pytest.mark.parametrize(
    ("engine", "settings"),
    [
        ("rocksdb", {"WriteOptions.sync": "false"}),
        ("postgresql", {"fsync": "off"}),
        pytest.param(
            "postgresql",
            {"synchronous_commit": "off", "wal_writer_delay": "10s"},
            marks=pytest.mark.proof,  # by its length
        ),
    ],
    ids=str,
)
def test_what_is_not_synced_is_lost(
    lab: WatchedLab, engine: str, settings: dict[str, str], seed: int, tmp_path: Path
) -> None:
    found = under_strict(judged(lab, subject_of(engine, lab, settings), tmp_path, seed))
    assert found.power_cut.verdict is BROKEN and "lost-ack" in found.power_cut.reasons
    assert found.process_crash.verdict is HELD or engine == "postgresql"


@pytest.mark.parametrize("engine", ["rocksdb", pytest.param("postgresql", marks=pytest.mark.proof)])
def test_a_mount_without_barriers_loses_what_was_synced(
    lab: WatchedLab, engine: str, seed: int, tmp_path: Path
) -> None:
    """The settings are honest, and each sync ends before the disk was told to flush (ext4(5), barrier)."""
    where = on_disk(lab, "ext4", "barrier=0")
    evidence = judged(where, subject_of(engine, where, {}), tmp_path, seed)
    found = under_strict(evidence)
    assert found.power_cut.verdict is BROKEN and found.process_crash.verdict is HELD
    assert evidence.recording.audit.exposed == 0


def test_a_journal_of_all_data_holds_too(lab: WatchedLab, seed: int, tmp_path: Path) -> None:
    where = on_disk(lab, "ext4", "data=journal,noatime")
    found = under_strict(judged(where, subject_of("rocksdb", where, {}), tmp_path, seed))
    assert (found.verdict, found.reasons) == (HELD, ())


def test_the_same_log_judged_twice_gives_the_same(lab: WatchedLab, seed: int, tmp_path: Path) -> None:
    subject = subject_of("rocksdb", lab, {"WriteOptions.sync": "false"})
    evidence = judged(lab, subject, tmp_path, seed)
    again = Recording(evidence.recording.folder, subject.engine.log_reader)
    planned = [state.planned for state in evidence.states]
    assert planned == plan_all(again, split_states(MODELS, STATES), seed)
    first = list(judge_states(evidence.recording, evidence.states, STRICT))
    second = list(judge_states(again, lab.recover(again, subject, planned), STRICT))
    for one, other in zip(first, second, strict=True):
        assert one.judgement.verdict is other.judgement.verdict
        assert one.judgement.reasons == other.judgement.reasons
        assert one.judgement.lost_indices == other.judgement.lost_indices


def test_a_disk_log_that_is_full_ends_the_run_and_is_not_believed(
    lab: WatchedLab, seed: int, tmp_path: Path
) -> None:
    plan = replace(RECORD, operations=100_000, log_bytes=4 << 20)
    evidence = judged(lab, subject_of("rocksdb", lab, {}), tmp_path, seed, plan)
    assert any(
        "was full" in said for said in (*evidence.recording.facts.notes, *evidence.recording.facts.faults)
    )
    assert evidence.under(STRICT).verdict in (HELD, UNKNOWN)
    assert mounts_below(lab.data) == []


class MissingOnTheDisk(PreloadRecorder):
    """The test build, which lets a call of the disk's server pass by unrecorded."""

    def __init__(self, library: Path, call: str) -> None:
        super().__init__(library)
        self._call = call

    def environment(self, root: Path, log: Path, ledger: Path) -> dict[str, str]:
        known = super().environment(root, log, ledger)
        return known | {"DURATUNE_TEST_DROP": self._call} if log.name == "disk.log" else known


@pytest.fixture(scope="module")
def dropping(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dropping")
    return build_recorder(folder / "libduratune_record.so", "-DDURATUNE_TEST_DROP")


def test_a_disk_whose_writes_are_not_recorded_decides_nothing(
    lab: WatchedLab, dropping: Path, seed: int, tmp_path: Path
) -> None:
    blind = replace(lab, recorder=BlockRecorder(preload=MissingOnTheDisk(dropping, "pwrite")))
    evidence = judged(blind, subject_of("rocksdb", lab, {}), tmp_path, seed)
    assert any("is not what the disk holds" in fault for fault in evidence.recording.facts.faults)
    assert evidence.under(STRICT).verdict is UNKNOWN


class FlushedOnTheDisk(PreloadRecorder):
    """Under it the disk's server takes every write for one that is a sync of its own."""

    def __init__(self, library: Path) -> None:
        super().__init__()
        self._library_of_server = library

    def environment(self, root: Path, log: Path, ledger: Path) -> dict[str, str]:
        known = super().environment(root, log, ledger)
        if log.name != "disk.log":
            return known
        return known | {"LD_PRELOAD": f"{self._library_of_server} {known['LD_PRELOAD']}"}


SYNCING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
ssize_t pwrite64(int file, const void *data, size_t bytes, off64_t offset) {
  ssize_t (*next)(int, const void *, size_t, off64_t);
  *(void **)(&next) = dlsym(RTLD_NEXT, "pwrite64");
  ssize_t written = next(file, data, bytes, offset);
  fsync(file);
  return written;
}
"""


def test_a_disk_that_keeps_what_was_never_synced_is_told_by_the_canary(
    lab: WatchedLab, seed: int, tmp_path: Path
) -> None:
    (lab.data / "syncing.c").write_text(SYNCING)
    library = compile_c(lab.data / "syncing.so", [lab.data / "syncing.c"], "-shared", "-fPIC")
    lying = replace(lab, recorder=BlockRecorder(preload=FlushedOnTheDisk(library)))
    evidence = judged(lying, subject_of("rocksdb", lab, {}), tmp_path, seed)
    for path in (library, lab.data / "syncing.c"):
        path.unlink()
    assert any("those of its sync" in fault for fault in evidence.recording.facts.faults)
    assert evidence.under(STRICT).verdict is UNKNOWN


def test_a_disk_whose_flushes_are_not_recorded_fails_its_controls(
    lab: WatchedLab, dropping: Path, seed: int
) -> None:
    blind = replace(lab, recorder=BlockRecorder(preload=MissingOnTheDisk(dropping, "fsync")))
    controls = blind.controls(subject_of("rocksdb", lab, {}), ["cache", "synced"], seed)
    assert {control.got for control in controls if control.name.startswith("synced")} == {UNKNOWN}
    assert "those of its sync" in unknown_because(controls)
    right = lab.controls(subject_of("rocksdb", lab, {}), MODELS, seed)
    assert unknown_because(right) == ""
