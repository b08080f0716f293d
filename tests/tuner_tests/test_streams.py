"""What a pipe that is closed, a locale without the characters, and a limit on files do to a command."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tuner_tests.crash_runs import Room
from tests.tuner_tests.program import PROGRAM
from tuner import cli

# Each is a process or more; together they take too long for `make check`.
pytestmark = pytest.mark.slow

NOTHING_ABOUT_IT = ("Traceback", "Exception ignored", "BrokenPipe", "internal error")
CLOSED = "stdout is closed: nothing of the result is shown, the exit code stands"
NOT_UTF8 = [
    {"LC_ALL": "C", "PYTHONUTF8": "0"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
]


@pytest.mark.parametrize("closed", ["stdout", "both"])
@pytest.mark.parametrize(
    "words",
    [
        ("tune", "--help"),
        ("knobs", "rocksdb", "--json"),
        ("knobs", "rocksdb", "nothing"),
        ("nothing", "--json"),
    ],
    ids=" ".join,
)
def test_a_reader_that_is_gone_is_no_defect_and_no_verdict(words: tuple[str, ...], closed: str) -> None:
    """`| head` ends a filter by SIGPIPE; never with 1, which means BROKEN, nor with words about a pipe."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*PROGRAM, *words],
        stdout=writing,
        stderr=subprocess.PIPE if closed == "stdout" else writing,
        text=True,
    )
    os.close(writing)
    assert done.returncode in (0, 2, 128 + signal.SIGPIPE)
    assert not any(word in f"{done.stdout}{done.stderr}" for word in NOTHING_ABOUT_IT), done


@pytest.mark.parametrize("environment", NOT_UTF8, ids=str)
def test_the_help_is_told_in_any_locale(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [*PROGRAM, "tune", "--help"], env={**os.environ, **environment}, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"--audit-only" in done.stdout


@pytest.fixture(autouse=True)
def no_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a limit on files Python 3.11 keeps a cut-off .pyc, and no later start can read it."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


@pytest.mark.usefixtures("native_parts")
@pytest.mark.parametrize("environment", NOT_UTF8[1:2], ids=str)
def test_a_command_runs_in_any_locale(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room.make(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ended = room.run("bench", "rocksdb", "--scale", "1", "--time", "0.2", "--rounds", "1")
    assert ended.code == 0, ended
    assert "verdict        none: measured only" in ended.out
    # A name that this locale cannot spell is refused; it is shown as well as it can be.
    ended = room.run("bench", "rocksdb", "--scale", "1", "--study", "m\u00fcll", "--json")
    assert ended.code == 2 and "UTF-8" in ended.document["error"]["what"], ended
    assert not (room.folder / "m\u00fcll").exists()


def _small_files() -> None:
    # A shell's `ulimit -f 1`; Python itself ignores SIGXFSZ and gets EFBIG.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))


def test_output_over_a_limit_on_files_is_the_machines(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        done = subprocess.run(
            [*PROGRAM, "knobs", "rocksdb"],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_small_files,
        )
    assert done.returncode == 3, done
    error, hint = done.stderr.splitlines()
    assert "File too large" in error and "ulimit -f unlimited" in hint


@pytest.mark.parametrize("command", ["crash", "tune", "bench"])
def test_a_limit_on_files_that_no_run_fits_is_told_at_once(tmp_path: Path, command: str) -> None:
    room = Room.make(tmp_path)
    ended = room.run(command, "rocksdb", "--json", before=_small_files)
    assert ended.code == 3, ended
    error = json.loads(ended.out)["error"]
    assert (error["code"], error["where"]) == ("machine-lacks", "RLIMIT_FSIZE")
    assert list(room.folder.iterdir()) == [] and room.left_behind() == []


def test_doctor_names_the_limit_and_blames_no_control(tmp_path: Path) -> None:
    ended = Room.make(tmp_path).run("doctor", "--json", before=_small_files)
    states = {check["name"]: check["state"] for check in ended.document["checks"]}
    assert (ended.code, states["file size"]) == (3, "lacks")
    assert "wrong" not in states.values()


def _close_stdout() -> None:
    os.close(1)


def _close_both() -> None:
    os.closerange(1, 3)


@pytest.mark.parametrize(
    ("words", "code"), [(("knobs", "rocksdb"), 0), (("tune", "--help"), 0), (("knobs", "rocksdb", "no"), 2)]
)
def test_a_closed_stdout_is_as_good_as_the_null_device(words: tuple[str, ...], code: int) -> None:
    """The exit code stays, and stderr says that there is nothing else: a 0 in silence may be taken for work
    that was not done."""
    done = subprocess.run([*PROGRAM, *words], stderr=subprocess.PIPE, text=True, preexec_fn=_close_stdout)
    assert done.returncode == code, done
    assert done.stderr.splitlines()[0] == CLOSED
    assert not any(word in done.stderr for word in NOTHING_ABOUT_IT), done


def test_without_stdout_and_stderr_the_exit_code_is_all_that_there_is() -> None:
    done = subprocess.run([*PROGRAM, "nothing"], preexec_fn=_close_both)
    assert done.returncode == 2
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*PROGRAM, "--version"], stderr=full, preexec_fn=_close_stdout)
    assert done.returncode == 0


@pytest.mark.parametrize("words", [("knobs", "rocksdb"), ("knobs", "rocksdb", "--json"), ("tune", "--help")])
def test_a_stdout_that_is_full_is_named(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3, done
    error, hint = done.stderr.splitlines()
    assert "stdout could not be written: No space left" in error
    assert "--data" not in hint and "stdout" in hint


@pytest.mark.parametrize("module", ["tuner", "tuner.cli"])
def test_a_module_that_is_run_is_the_program(module: str) -> None:
    """One that did nothing and ended with 0 would read as HELD."""
    done = subprocess.run([sys.executable, "-m", module, "nothing"], capture_output=True, text=True)
    assert done.returncode == 2 and "no such command: 'nothing'" in done.stderr
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("duratune ")


@pytest.mark.parametrize("command", ["tune", "crash", "doctor"])
def test_only_a_study_is_resumed(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_dispatch", interrupted)
    assert cli.main([command]) == 128 + signal.SIGINT
    assert ("resumes" in capsys.readouterr().err) is (command == "tune")


@pytest.mark.usefixtures("native_parts")
def test_a_verdict_does_not_hang_on_who_reads_it(tmp_path: Path) -> None:
    """Without stdout a broken configuration still ends with 1; a stdout that is full leaves no folder."""
    words = ("crash", "rocksdb", "--scale", "1", "--measure", "0.3", "--operations", "500", "--states", "6")
    broken = (*words, "--contract", "strict", "--seed", "3")
    done = subprocess.run(
        [*PROGRAM, *broken], cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=_close_stdout
    )
    assert done.returncode == 1 and CLOSED in done.stderr, done
    (folder,) = (tmp_path / "results").iterdir()
    assert json.loads((folder / "crash.json").read_text())["verdict"] == "BROKEN"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, *broken], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 3, done
    assert list((tmp_path / "results").iterdir()) == [folder]
