"""Every process that the library is in reports, also as another user, and those that did not are told."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crashlab.preload.access import Owner, check_loads, copy_library, hand_over
from crashlab.preload.processes import (
    HEADER_BYTES,
    Origin,
    ProcessList,
    Reported,
    reported_in,
    unreported,
)
from crashlab.preload.recorder import PreloadRecorder
from knobs.errors import InvalidInput, MachineLacks, Undecided
from tests.crashlab_tests.preload_tests.programs import Stage, compile_c
from workloads.ledger import Ledger

MakeStage = Callable[..., Stage]

FAMILY = """
import os, subprocess, sys
forked = os.fork()
if forked == 0:
    os._exit(0)
os.waitpid(forked, 0)
spawned = subprocess.Popen(["/bin/true"])
spawned.wait()
print(os.getpid(), forked, spawned.pid)
"""


@pytest.fixture
def nobody() -> Owner:
    if os.geteuid() != 0:
        pytest.skip("only root can start processes of another user")
    entry = pwd.getpwnam("nobody")
    return Owner(entry.pw_uid, entry.pw_gid)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter; pytest's own are closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="dt-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("mode", ["acks", "log"])
def test_program_and_forked_child_report_with_their_parents(
    recorder: PreloadRecorder, make_stage: MakeStage, tmp_path: Path, mode: str
) -> None:
    stage, listed = make_stage(recorder), tmp_path / "processes"
    ProcessList.create(listed)
    environment = recorder.acks_environment(stage.ledger_path, listed)
    if mode == "log":
        environment = recorder.environment(stage.root, stage.log_path, stage.ledger_path)
    done = subprocess.run(
        [sys.executable, "-c", FAMILY],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    parent, forked, spawned = map(int, done.stdout.split())
    reports = ProcessList.read(listed) if mode == "acks" else reported_in(stage.log())
    assert [(r.pid, r.parent, r.origin) for r in reports] == [
        (parent, os.getpid(), Origin.PROGRAM),
        (forked, parent, Origin.FORK),
        (spawned, parent, Origin.PROGRAM),
    ]
    assert sorted(r.ns for r in reports) == [r.ns for r in reports] and reports[0].ns > 0
    assert unreported([parent, forked, spawned], reports) == []
    assert unreported([spawned, 1, parent, 2], reports) == [1, 2]


def test_without_a_log_no_other_call_is_recorded(
    recorder: PreloadRecorder, make_stage: MakeStage, tmp_path: Path
) -> None:
    stage = make_stage(recorder)
    ProcessList.create(tmp_path / "processes")
    code = """
import os
f = os.open("f", os.O_CREAT | os.O_WRONLY)
os.write(f, b"x"); os.fsync(f); os.ftruncate(f, 10); os.close(os.dup(f)); os.rename("f", "g"); os.mkdir("d")
open("h", "w").write("stdio")
"""
    environment = recorder.acks_environment(stage.ledger_path, tmp_path / "processes")
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=stage.root, check=True)
    assert sorted(path.name for path in stage.root.iterdir()) == ["d", "g", "h"]
    assert stage.log().operations == [] and stage.log().unsupported == {}
    with Ledger.open(stage.ledger_path) as ledger:
        assert ledger.position == 1


def test_process_without_the_library_is_told(
    recorder: PreloadRecorder, make_stage: MakeStage, tmp_path: Path
) -> None:
    """A static program, which no library can be preloaded into, and one whose environment was emptied."""
    source = tmp_path / "static.c"
    source.write_text("int main(void) { return 0; }\n")
    static = compile_c(tmp_path / "static", [source], "-static")
    stage, listed = make_stage(recorder), tmp_path / "processes"
    ProcessList.create(listed)
    code = f"""
import os, subprocess
for command, environment in ((["{static}"], None), (["/bin/true"], {{}})):
    child = subprocess.Popen(command, env=environment)
    child.wait()
    print(child.pid)
"""
    environment = {**os.environ, **recorder.acks_environment(stage.ledger_path, listed)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    silent = [int(word) for word in done.stdout.split()]
    assert len(silent) == 2
    assert unreported(silent, ProcessList.read(listed)) == silent


def test_list_that_is_full_is_not_believed(
    recorder: PreloadRecorder, make_stage: MakeStage, tmp_path: Path
) -> None:
    stage, listed = make_stage(recorder), tmp_path / "processes"
    ProcessList.create(listed, capacity=1)
    environment = recorder.acks_environment(stage.ledger_path, listed)
    subprocess.run(["/bin/true"], env=environment, check=True)
    assert len(ProcessList.read(listed)) == 1
    subprocess.run(["/bin/true"], env=environment, check=True)
    with pytest.raises(Undecided, match="2 processes reported in a list with room for 1"):
        ProcessList.read(listed)


def test_report_that_a_kill_cut_off_is_left_out(tmp_path: Path) -> None:
    listed = tmp_path / "processes"
    ProcessList.create(listed, capacity=4)
    with listed.open("r+b") as file:
        file.seek(64)
        file.write((2).to_bytes(8, "little"))
        file.seek(HEADER_BYTES + 32)
        file.write(bytes.fromhex("07000000 01000000 02000000 00000000 0900000000000000"))
    assert ProcessList.read(listed) == (Reported(7, 1, Origin.FORK, 9),)


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"DTPROC01" + bytes(5000)])
def test_what_is_no_list_is_refused(
    recorder: PreloadRecorder, make_stage: MakeStage, tmp_path: Path, content: bytes
) -> None:
    stage, listed = make_stage(recorder), tmp_path / "processes"
    listed.write_bytes(content)
    with pytest.raises(InvalidInput):
        ProcessList.read(listed)
    if content[:8] != b"DTPROC01":
        environment = recorder.acks_environment(stage.ledger_path, listed)
        done = subprocess.run(["/bin/true"], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 71 and "no list of processes" in done.stderr


@pytest.mark.parametrize("absent", ["LEDGER", "PROCESSES"])
def test_nothing_runs_unstamped(
    recorder: PreloadRecorder, make_stage: MakeStage, tmp_path: Path, absent: str
) -> None:
    stage = make_stage(recorder)
    ProcessList.create(tmp_path / "processes")
    environment = recorder.acks_environment(stage.ledger_path, tmp_path / "processes")
    environment[f"DURATUNE_RECORD_{absent}"] = str(tmp_path / "absent")
    done = subprocess.run(["/bin/true"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 71 and "duratune: cannot record" in done.stderr


def test_list_is_made_once(tmp_path: Path) -> None:
    ProcessList.create(tmp_path / "processes")
    assert (tmp_path / "processes").stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidInput, match="cannot be made"):
        ProcessList.create(tmp_path / "processes")
    with pytest.raises(InvalidInput, match="room for one"):
        ProcessList.create(tmp_path / "other", capacity=0)


# ---- another user ----


def test_process_of_another_user_is_recorded_in_what_was_handed_over(
    recorder: PreloadRecorder, nobody: Owner, open_folder: Path
) -> None:
    stage = Stage.make(recorder, open_folder)
    theirs = PreloadRecorder(copy_library(recorder.shared_library, open_folder))
    listed = open_folder / "processes"
    ProcessList.create(listed)
    environment = {
        **theirs.environment(stage.root, stage.log_path, stage.ledger_path),
        "DURATUNE_RECORD_PROCESSES": str(listed),
    }
    with pytest.raises(MachineLacks, match="Permission denied"):
        check_loads(environment, nobody)
    hand_over([stage.root, stage.log_path, stage.ledger_path, listed], nobody)
    check_loads(environment, nobody)
    done = subprocess.run(
        ["/bin/sh", "-c", "echo x > f; echo $$"],
        env=environment,
        cwd=stage.root,
        user=nobody.uid,
        group=nobody.gid,
        capture_output=True,
        text=True,
        check=True,
    )
    log = stage.log()
    assert [o.path for o in log.operations if o.path == "f"] == ["f"]
    assert log.attached_pids[-1] == int(done.stdout)
    assert unreported([int(done.stdout)], ProcessList.read(listed)) == []
    assert stage.ledger_path.stat().st_mode & 0o777 == 0o600


def test_library_that_the_other_user_cannot_read_is_told_before_the_start(
    recorder: PreloadRecorder, nobody: Owner, open_folder: Path, make_stage: MakeStage
) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    hidden = PreloadRecorder(copy_library(recorder.shared_library, closed))
    stage, listed = make_stage(recorder), open_folder / "processes"
    ProcessList.create(listed)
    environment = hidden.acks_environment(stage.ledger_path, listed)
    with pytest.raises(MachineLacks, match="cannot be preloaded"):
        check_loads(environment, nobody)


def test_one_s_own_process_loads_it(recorder: PreloadRecorder, make_stage: MakeStage, tmp_path: Path) -> None:
    stage = make_stage(recorder)
    ProcessList.create(tmp_path / "processes")
    me = Owner(os.geteuid(), os.getegid())
    hand_over([stage.ledger_path, tmp_path / "processes"], me)
    check_loads(recorder.acks_environment(stage.ledger_path, tmp_path / "processes"), me)
    assert ProcessList.read(tmp_path / "processes") == (), "the trial has a list of its own"


def test_killed_processes_stay_reported(
    recorder: PreloadRecorder, make_stage: MakeStage, tmp_path: Path
) -> None:
    stage, listed = make_stage(recorder), tmp_path / "processes"
    ProcessList.create(listed)
    environment = recorder.acks_environment(stage.ledger_path, listed)
    process = subprocess.Popen(["/bin/cat"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"started\n")
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert unreported([process.pid], ProcessList.read(listed)) == []
