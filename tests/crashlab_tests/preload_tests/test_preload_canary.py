"""The canary: an honest recorder has everything in the log, each missing interception is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.write_log import Kind
from knobs.errors import InvalidInput, Undecided
from tests.crashlab_tests.preload_tests.programs import Stage
from tests.crashlab_tests.preload_tests.replay import Replay

MakeStage = Callable[..., Stage]

DROPS = {
    "create": "create canary/",
    "write": "write",
    "pwrite": "pwrite",
    "writev": "writev",
    "pwritev": "pwritev",
    "ftruncate": "ftruncate",
    "truncate": "trunc",
    "fallocate": "fallocate",
    "rename": "rename canary/name",
    "link": "link canary/target",
    "unlink": "unlink canary/target",
    "mkdir": "mkdir canary",
    "rmdir": "rmdir canary/folder",
    "fsync": "fsync",
    "fdatasync": "fdatasync",
    "dirsync": "fsync of a folder",
    "sync_file_range": "sync_file_range",
}


def test_honest_recorder_lacks_nothing(recorder: PreloadRecorder, make_stage: MakeStage) -> None:
    stage = make_stage(recorder)
    report = recorder.run_canary(stage.root, stage.log_path, stage.ledger_path)
    log = stage.log()
    assert recorder.check_canary(log, report) == []
    assert log.unsupported == {}
    assert Replay(log.operations).differences(stage.root) == []


def test_test_build_that_drops_nothing_lacks_nothing(
    dropping_recorder: PreloadRecorder, make_stage: MakeStage
) -> None:
    stage = make_stage(dropping_recorder)
    report = dropping_recorder.run_canary(stage.root, stage.log_path, stage.ledger_path)
    assert dropping_recorder.check_canary(stage.log(), report) == []


@pytest.mark.parametrize("call", DROPS)
def test_each_missing_interception_is_named(
    dropping_recorder: PreloadRecorder, make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setenv("DURATUNE_TEST_DROP", call)
    stage = make_stage(dropping_recorder)
    report = dropping_recorder.run_canary(stage.root, stage.log_path, stage.ledger_path)
    missing = dropping_recorder.check_canary(stage.log(), report)
    assert missing and all(DROPS[call] in line.lower() for line in missing)


def test_files_say_what_a_synced_state_holds(recorder: PreloadRecorder, make_stage: MakeStage) -> None:
    stage = make_stage(recorder)
    report = recorder.run_canary(stage.root, stage.log_path, stage.ledger_path)
    log = stage.log()
    assert {Path(file.path).name for file in report.files} == {"own-sync", "synced", "half", "unsynced"}
    for file in report.files:
        inode = next(o.inode for o in log.operations if o.kind is Kind.CREATE and o.path == file.path)
        syncs = [o for o in log.operations if o.kind is Kind.FSYNC and o.inode == inode]
        written = [o for o in log.operations if o.kind is Kind.WRITE and o.inode == inode and o.begin > 0]
        covered = [
            o for o in written if o.flags & 1 or any(o.end is not None and o.end < s.begin for s in syncs)
        ]
        # An inode may have had an earlier life in the canary; its last one is at the end.
        synced = b"".join(bytes(o.data) for o in covered)
        assert synced.endswith(file.survives)
        live = (stage.root / file.path).read_bytes()
        assert live == file.survives + file.lost


def test_environment_adds_to_what_is_there(
    recorder: PreloadRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/lib/one.so:/lib/two.so")
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    (tmp_path / "alias").symlink_to(tmp_path)
    variables = recorder.environment(tmp_path / "alias", tmp_path / "log", tmp_path / "ledger")
    first, second, ours = variables["LD_PRELOAD"].split()
    assert (first, second) == ("/lib/one.so", "/lib/two.so") and ours.endswith("libduratune_record.so")
    assert variables["ASAN_OPTIONS"] == "detect_leaks=0:verify_asan_link_order=0"
    assert variables["DURATUNE_RECORD_ROOT"] == str(tmp_path)


def test_path_that_cannot_be_preloaded_is_refused(tmp_path: Path) -> None:
    recorder = PreloadRecorder(tmp_path / "a folder" / "libduratune_record.so")
    with pytest.raises(InvalidInput, match="space"):
        recorder.environment(tmp_path, tmp_path, tmp_path)


def test_canary_that_is_there_already_is_refused(recorder: PreloadRecorder, make_stage: MakeStage) -> None:
    stage = make_stage(recorder)
    (stage.root / "canary").mkdir()
    with pytest.raises(Undecided, match="File exists"):
        recorder.run_canary(stage.root, stage.log_path, stage.ledger_path)


def test_log_of_an_unrecorded_canary_lacks_all(
    recorder: PreloadRecorder, make_stage: MakeStage, canary: Path, tmp_path: Path
) -> None:
    """A library that records nothing, such as one for another root, is not believed."""
    stage = make_stage(recorder)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    report = recorder.run_canary(stage.root, stage.log_path, stage.ledger_path)
    other = Stage.make(recorder, elsewhere)
    missing = recorder.check_canary(other.log(), report)
    assert len(missing) == len(report.operations)
    assert canary.exists()
