"""The call that is made to fail: exactly once over all processes, not made, on the files that are meant."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.fault import Fault, FaultKind, FaultSwitch
from crashlab.recording.write_log import Kind, Operation
from tests.crashlab_tests.preload_tests.programs import HERE, Stage, build_recorder, compile_c, kill_group
from tests.crashlab_tests.preload_tests.replay import Replay

MakeStage = Callable[..., Stage]
PROCESSES, THREADS, ROUNDS = 3, 3, 20
SYNCS, WRITES = (PROCESSES * THREADS * ROUNDS * each for each in (2, 5))
EIO, ENOSPC = 5, 28


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("faulty") / "faulty", [HERE / "faulty.c"])


def armed(stage: Stage) -> None:
    with FaultSwitch(stage.log_path) as switch:
        switch.arm()


def told(stage: Stage) -> tuple[int, int]:
    """How many calls were counted, and the position of the one that failed."""
    with FaultSwitch(stage.log_path) as switch:
        return switch.count, switch.position


def run(stage: Stage, fault: Fault, files: str, *command: str | Path, **more: str) -> list[str]:
    """The words that a program says which meets the fault."""
    variables = stage.recorder.fault_environment(fault, files)
    return stage.run(*command, seconds_max=60.0, **variables, **more).split()


def run_faulty(
    stage: Stage, faulty: Path, kind: FaultKind, nth: int, files: str = "", **more: str
) -> list[int]:
    """How many calls failed with EIO, ENOSPC, and otherwise."""
    words = (faulty, str(stage.root), str(PROCESSES), str(THREADS), str(ROUNDS))
    return [int(word) for word in run(stage, Fault(kind, nth), files, *words, **more)]


def failed(stage: Stage) -> list[Operation]:
    return [each for each in stage.log().operations if each.result is not None and each.result < 0]


def check_single(stage: Stage, kinds: set[Kind], error: int) -> None:
    (one,) = failed(stage)
    assert (one.kind in kinds, one.result, one.flags) == (True, -error, 0)
    assert told(stage)[1] == one.begin
    assert Replay(stage.log().operations).differences(stage.root) == []


@pytest.mark.parametrize("nth", [1, 7, SYNCS])
def test_one_sync_fails_once_over_all_processes(
    recorder: PreloadRecorder, faulty: Path, make_stage: MakeStage, nth: int
) -> None:
    stage = make_stage(recorder)
    armed(stage)
    assert run_faulty(stage, faulty, "fsync-eio", nth) == [1, 0, 0]
    check_single(stage, {Kind.FSYNC, Kind.FDATASYNC}, EIO)
    assert told(stage)[0] == SYNCS, "syncs of folders do not count"


@pytest.mark.parametrize("nth", [*range(1, 6), WRITES])
def test_one_write_fails_once_and_writes_nothing(
    recorder: PreloadRecorder, faulty: Path, make_stage: MakeStage, nth: int
) -> None:
    stage = make_stage(recorder)
    armed(stage)
    assert run_faulty(stage, faulty, "enospc", nth) == [0, 1, 0]
    check_single(stage, {Kind.WRITE}, ENOSPC)
    assert told(stage)[0] == WRITES


@pytest.mark.parametrize("call", ["write", "pwrite", "writev", "pwritev", "pwritev2"])
def test_every_call_that_writes_can_fail(recorder: PreloadRecorder, make_stage: MakeStage, call: str) -> None:
    """Each call is a different one in the library; what it had under its lock is let go."""
    stage = make_stage(recorder)
    armed(stage)
    calls = {
        "write": "os.write(f, b'abc')",
        "pwrite": "os.pwrite(f, b'abc', 0)",
        "writev": "os.writev(f, [b'abc'])",
        "pwritev": "os.pwritev(f, [b'abc'], 0)",
        "pwritev2": "os.pwritev(f, [b'abc'], 0, os.RWF_SYNC)",
    }
    code = f"""
import os
f = os.open("f", os.O_WRONLY | os.O_CREAT, 0o600)
try:
    {calls[call]}
except OSError as error:
    print(error.errno, os.fstat(f).st_size)
{calls[call]}
print(os.fstat(f).st_size)
"""
    assert run(stage, Fault("enospc", 1), "", sys.executable, "-c", code) == ["28", "0", "3"]


@pytest.mark.parametrize("kind", ["fsync-eio", "enospc"])
def test_nothing_fails_that_is_not_armed_or_comes_too_late(
    recorder: PreloadRecorder, faulty: Path, make_stage: MakeStage, kind: FaultKind
) -> None:
    stage = make_stage(recorder)
    assert run_faulty(stage, faulty, kind, 1) == [0, 0, 0]
    assert told(stage) == (0, 0) and failed(stage) == []
    armed(stage)
    many = SYNCS if kind == "fsync-eio" else WRITES
    assert run_faulty(stage, faulty, kind, many + 1) == [0, 0, 0]
    assert told(stage) == (many, 0) and failed(stage) == []


def test_only_files_under_a_name_that_fits_are_counted(
    recorder: PreloadRecorder, make_stage: MakeStage
) -> None:
    stage = make_stage(recorder)
    armed(stage)
    code = """
import os
os.mkdir("d")
f = os.open("d/other", os.O_WRONLY | os.O_CREAT, 0o600)
os.fsync(f)
os.rename("d/other", "d/0001")
os.fsync(f)
os.rename("d/0001", "d/0001.old")
os.fsync(f)
os.rename("d/0001.old", "d/0002")
try:
    os.fsync(f)
except OSError as error:
    print(error.errno)
os.unlink("d/0002")
os.fsync(f)
"""
    assert run(stage, Fault("fsync-eio", 2), "^(.*/)?([0-9]{4})$", sys.executable, "-c", code) == ["5"]
    (one,) = failed(stage)
    renames = [each.begin for each in stage.log().operations if each.kind is Kind.RENAME]
    assert one.begin > renames[2] and told(stage) == (2, one.begin)


def test_the_sync_that_fails_is_not_made(
    recorder: PreloadRecorder, make_stage: MakeStage, tmp_path: Path
) -> None:
    """A library behind the recorder stands for the kernel, and says when it is called."""
    source = tmp_path / "kernel.c"
    source.write_text('int puts(const char *);\nint fsync(int d) { (void)d; puts("made"); return 0; }\n')
    kernel = compile_c(tmp_path / "kernel.so", [source], "-shared", "-fPIC")
    stage = make_stage(recorder)
    armed(stage)
    code = """
import os
f = os.open("f", os.O_WRONLY | os.O_CREAT, 0o600)
for _ in range(3):
    try:
        os.fsync(f)
    except OSError as error:
        print(error.errno, flush=True)
"""
    preloaded = f"{stage.environment()['LD_PRELOAD']} {kernel}"
    said = run(stage, Fault("fsync-eio", 2), "", sys.executable, "-u", "-c", code, LD_PRELOAD=preloaded)
    assert sorted(said) == ["5", "made", "made"]


def test_what_aborts_over_it_leaves_no_core_file(recorder: PreloadRecorder, make_stage: MakeStage) -> None:
    stage = make_stage(recorder)
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE)[0])"
    shell = f"ulimit -Hc unlimited 2>/dev/null; ulimit -Sc $(ulimit -Hc); exec {sys.executable} -c '{code}'"
    assert run(stage, Fault("fsync-eio", 1), "", "/bin/sh", "-c", shell) == ["0"]


@pytest.mark.parametrize(
    ("fault", "files", "words"),
    [
        ("fsync-eio", "", "DURATUNE_RECORD_FAULT is not understood"),
        ("fsync-eio@", "", "not understood"),
        ("fsync-eio@0", "", "not understood"),
        ("fsync-eio@-1", "", "not understood"),
        ("fsync-eio@1x", "", "not understood"),
        ("fsync-eio@99999999999999999999", "", "not understood"),
        ("fsync@1", "", "not understood"),
        ("fsync-eio@1", "(", "no regular expression"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(
    recorder: PreloadRecorder, make_stage: MakeStage, fault: str, files: str, words: str
) -> None:
    stage = make_stage(recorder)
    more: dict[str, str] = {"DURATUNE_RECORD_FAULT_FILES": files} if files else {}
    process = stage.start("/bin/true", DURATUNE_RECORD_FAULT=fault, **more)
    try:
        said, _ = process.communicate(timeout=60)
    finally:
        kill_group(process)
    assert process.returncode == 71 and words in said


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fsync-eio", "enospc"])
def test_it_is_clean_under_sanitizers(
    canary: Path, builds: Path, make_stage: MakeStage, kind: FaultKind
) -> None:
    options = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
    library = build_recorder(builds / "libduratune_record_fault_sanitized.so", *options)
    program = compile_c(builds / "faulty_sanitized", [HERE / "faulty.c"], *options)
    stage = make_stage(PreloadRecorder(library, canary))
    armed(stage)
    wanted = [1, 0, 0] if kind == "fsync-eio" else [0, 1, 0]
    assert (
        run_faulty(stage, program, kind, 5, r"^[0-9]-[0-9]\.dat$", ASAN_OPTIONS="verify_asan_link_order=0")
        == wanted
    )
