"""Processes: forked, spawned, killed inside of a call, stopped by a full log, started wrongly."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.write_log import BLOCK_BYTES, Kind
from tests.crashlab_tests.preload_tests.programs import (
    HERE,
    Stage,
    build_recorder,
    compile_c,
    kill_group,
)
from tests.crashlab_tests.preload_tests.replay import Replay
from workloads.ledger import STOP_WRITE_LOG_FULL, Ledger

MakeStage = Callable[..., Stage]


def test_fork_gives_the_child_a_chunk_and_an_attach_of_its_own(
    recorder: PreloadRecorder, make_stage: MakeStage
) -> None:
    stage = make_stage(recorder)
    code = """
import os
f = os.open("f", os.O_WRONLY | os.O_CREAT, 0o600)
os.write(f, b"before,")
child = os.fork()
if child == 0:
    os.write(f, b"child,")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
os.write(f, b"parent")
print(os.getpid(), child)
"""
    parent, child = map(int, stage.run(sys.executable, "-c", code).split())
    log = stage.log()
    assert log.attached_pids == [parent, child]
    writers = [(o.pid, o.a, bytes(o.data)) for o in log.operations if o.kind is Kind.WRITE]
    assert writers == [(parent, 0, b"before,"), (child, 7, b"child,"), (parent, 13, b"parent")]


def test_child_that_writes_nothing_is_attached_too(recorder: PreloadRecorder, make_stage: MakeStage) -> None:
    stage = make_stage(recorder)
    code = "import os; child = os.fork(); child and os.waitpid(child, 0); child and print(os.getpid(), child)"
    parent, child = map(int, stage.run(sys.executable, "-c", code).split())
    assert stage.log().attached_pids == [parent, child]


def test_short_and_failed_writes_keep_their_results(recorder: PreloadRecorder, make_stage: MakeStage) -> None:
    stage = make_stage(recorder)
    code = """
import os, resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
f = os.open("f", os.O_WRONLY | os.O_CREAT, 0o600)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
print(os.write(f, bytes(200)))
for attempt in (lambda: os.write(f, b"x"), lambda: os.ftruncate(f, 101), lambda: os.rmdir("f")):
    try:
        attempt()
    except OSError as error:
        print(error.errno)
"""
    assert stage.run(sys.executable, "-c", code).split() == ["100", "27", "27", "20"]
    operations = stage.log().operations
    changes = [o for o in operations if o.kind in (Kind.WRITE, Kind.TRUNCATE, Kind.RMDIR)]
    assert [o.result for o in changes] == [100, -27, -27, -20]


def test_number_of_a_closed_descriptor_is_free_for_others(
    recorder: PreloadRecorder, make_stage: MakeStage
) -> None:
    """closedir, fclose and closefrom close descriptors by their own ways; a socket may get the number."""
    stage = make_stage(recorder)
    code = """
import ctypes, os, socket
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
libc.closedir.argtypes = libc.fclose.argtypes = [ctypes.c_void_p]
os.listdir(folder)
one, other = socket.socketpair()
os.write(one.fileno(), b"into a socket")
stream = libc.fopen(b"f", b"w")
libc.fclose(stream)
more = socket.socketpair()
os.write(more[0].fileno(), b"into a socket")
libc.closefrom(folder)
last = socket.socketpair()
assert last[0].fileno() == folder
os.write(folder, b"into a socket")
os._exit(0)
"""
    stage.run(sys.executable, "-c", code)
    kinds = [o.kind for o in stage.log().operations]
    assert Kind.WRITE not in kinds
    assert kinds.count(Kind.CLOSE) == 3


def test_vfork_child_does_not_change_what_its_parent_records(
    recorder: PreloadRecorder, make_stage: MakeStage
) -> None:
    """subprocess forks by vfork and closes every descriptor in the child, which has its parent's memory."""
    stage = make_stage(recorder)
    code = """
import os, subprocess
f = os.open("f", os.O_WRONLY | os.O_CREAT, 0o600)
for _ in range(3):
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    subprocess.run(["/bin/true"], close_fds=True, check=True, **quiet)
    os.write(f, b"recorded")
"""
    stage.run(sys.executable, "-c", code)
    assert Replay(stage.log().operations).differences(stage.root) == []


def test_two_processes_that_append_to_one_file(recorder: PreloadRecorder, make_stage: MakeStage) -> None:
    stage = make_stage(recorder)
    code = """
import os, sys
f = os.open("f", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
for i in range(500):
    os.write(f, f"{sys.argv[1]} {i}\\n".encode())
"""
    processes = [stage.start(sys.executable, "-c", code, name) for name in ("one", "two")]
    try:
        assert [process.wait(30) for process in processes] == [0, 0]
    finally:
        for process in processes:
            kill_group(process)
    log = stage.log()
    assert sum(o.kind is Kind.CREATE for o in log.operations) == 1
    assert Replay(log.operations).differences(stage.root) == []


def test_lock_of_a_killed_process_is_taken_over(recorder: PreloadRecorder, make_stage: MakeStage) -> None:
    endless = """
import os
os.close(os.open("a", os.O_CREAT, 0o600))
while True:
    os.rename("a", "b")
    os.rename("b", "a")
"""
    held, kills = 0, 0
    # A kill hits a rename more often than not; on a busy machine it may take more of them.
    while kills < 4 or (held == 0 and kills < 60):
        kills += 1
        stage = make_stage(recorder)
        process = stage.start(sys.executable, "-c", endless)
        _await_records(stage, 200)
        kill_group(process)
        stage.run(sys.executable, "-c", "import os; os.mkdir('after'); os.mkdir('last')", seconds_max=20)
        log = stage.log()
        assert not log.full and log.unsupported == {}
        assert [(o.kind, o.result) for o in log.operations[-2:]] == [(Kind.MKDIR, 0)] * 2
        held += any(o.result is None for o in log.operations)
    assert held > 0, f"{kills} kills hit no rename, so no lock was held"


def test_full_log_stops_the_process_before_anything_unlogged(
    recorder: PreloadRecorder, make_stage: MakeStage
) -> None:
    stage = make_stage(recorder, log_bytes=4 * BLOCK_BYTES)
    code = """
import os, threading
def work(name):
    f = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600)
    for i in range(100000):
        os.write(f, b"%d," % i)
threads = [threading.Thread(target=work, args=(n,)) for n in ("f", "g")]
[t.start() for t in threads]
"""
    process = stage.start(sys.executable, "-c", code)
    try:
        with Ledger.open(stage.ledger_path) as ledger:
            _await(lambda: ledger.stop == STOP_WRITE_LOG_FULL)
        # Both threads come to rest: the live files stop growing while the process lives.
        _await(lambda: _is_asleep(process.pid))
        assert process.poll() is None
        log = stage.log()
        assert log.full
        assert Replay(log.operations).differences(stage.root) == []
        assert not Replay(log.operations).unsettled
    finally:
        kill_group(process)


@pytest.mark.parametrize("broken", ["log", "ledger", "root"])
def test_nothing_runs_unrecorded(recorder: PreloadRecorder, make_stage: MakeStage, broken: str) -> None:
    stage = make_stage(recorder)
    environment = stage.environment()
    environment[f"DURATUNE_RECORD_{broken.upper()}"] = str(stage.root / "absent")
    done = subprocess.run(["/bin/true"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 71
    assert "duratune: cannot record" in done.stderr and "absent" in done.stderr


def test_file_that_is_no_log_is_refused(recorder: PreloadRecorder, make_stage: MakeStage) -> None:
    stage = make_stage(recorder)
    stage.log_path.write_bytes(bytes(2 * BLOCK_BYTES))
    done = subprocess.run(["/bin/true"], env=stage.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 71 and "no write log" in done.stderr


def test_without_the_variables_the_library_is_silent(
    recorder: PreloadRecorder, make_stage: MakeStage
) -> None:
    stage = make_stage(recorder)
    environment = {
        name: value for name, value in stage.environment().items() if not name.startswith("DURATUNE_RECORD")
    }
    code = "import os; os.write(os.open('f', os.O_CREAT | os.O_WRONLY), b'x'); os.rename('f', 'g')"
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=stage.root, check=True)
    assert stage.log().operations == []


def test_library_that_is_stacked_before_hides_its_calls(
    recorder: PreloadRecorder, make_stage: MakeStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault such as a sync that does nothing comes before the recorder, and is not recorded."""
    source = tmp_path / "nosync.c"
    source.write_text("int fsync(int fd) { (void)fd; return 0; }\n")
    library = compile_c(tmp_path / "nosync.so", [source], "-shared", "-fPIC")
    monkeypatch.setenv("LD_PRELOAD", str(library))
    stage = make_stage(recorder)
    code = "import os; f = os.open('f', os.O_CREAT | os.O_WRONLY); os.fsync(f); os.fdatasync(f)"
    stage.run(sys.executable, "-c", code)
    kinds = [o.kind for o in stage.log().operations]
    assert Kind.FSYNC not in kinds and Kind.FDATASYNC in kinds


def test_root_and_paths_through_symbolic_links(
    recorder: PreloadRecorder, make_stage: MakeStage, tmp_path: Path
) -> None:
    stage = make_stage(recorder)
    (tmp_path / "alias").symlink_to(stage.root)
    alias = str(tmp_path / "alias")
    code = f"""
import os
os.mkdir("{alias}/d/")
os.close(os.open("{alias}/d/../d//f", os.O_CREAT | os.O_WRONLY))
os.chdir("/")
os.rename("{alias}/d/f", "{alias}/g")
os.symlink("{alias}/late", "{tmp_path}/dangling")
os.close(os.open("{tmp_path}/dangling", os.O_CREAT | os.O_WRONLY))
"""
    stage.run(sys.executable, "-c", code, DURATUNE_RECORD_ROOT=alias)
    log = stage.log()
    assert [o.path for o in log.operations if o.kind is Kind.CREATE] == ["d/f", "late"]
    assert Replay(log.operations).differences(stage.root) == []


@pytest.mark.slow
def test_recorder_is_clean_under_sanitizers(
    canary: Path, make_stage: MakeStage, tmp_path: Path, seed: int
) -> None:
    options = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
    library = build_recorder(tmp_path / "recorder.so", *options)
    program = compile_c(tmp_path / "exercise", [HERE / "exercise.c"], *options)
    stage = make_stage(PreloadRecorder(library, canary))
    output = stage.run(
        program, str(stage.root), str(seed), "3", "60", "1", ASAN_OPTIONS="verify_asan_link_order=0"
    )
    assert "Sanitizer" not in output and "runtime error" not in output
    assert Replay(stage.log().operations).differences(stage.root) == []


def _is_asleep(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return all(task.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "S" for task in tasks)


def _await_records(stage: Stage, wanted: int) -> None:
    _await(lambda: stage.log().record_count >= wanted)


def _await(condition: Callable[[], bool], seconds_max: float = 20.0) -> None:
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
