from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.scratch import state_folder
from tests.engines_tests.programs import first_line, python, running
from tuner import cli

PLANTED = cli.CommandEntry("tests.project_tests.planted_command", "for the tests")

# The whole program with the planted command, as a process of its own.
PROGRAM = """
import sys
from tuner import cli
cli.COMMANDS["planted"] = cli.CommandEntry("tests.project_tests.planted_command", "for the tests")
sys.exit(cli.main())
"""


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The planted command in the registry; the signal handlers are put back afterwards."""
    monkeypatch.setitem(cli.COMMANDS, "planted", PLANTED)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


EXIT_CODES = [
    ("return 0", 0),
    ("return 1", 1),
    ("return 4", 4),
    ("invalid", 2),
    ("lacks", 3),
    ("unknown", 4),
    ("key", 70),
    ("exit", 70),
    ("memory", 70),
    ("interrupt", 130),
]


@pytest.mark.parametrize(("do", "code"), EXIT_CODES)
def test_each_end_has_its_exit_code(do: str, code: int) -> None:
    assert cli.main(["planted", "--do", do]) == code


@pytest.mark.parametrize(("do", "code"), [pair for pair in EXIT_CODES if "return" not in pair[0]])
def test_every_error_is_one_json_document(do: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["planted", "--do", do, "--json"]) == code
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["schema"] == 1 and captured.err == ""
    assert set(document["error"]) == {"code", "what", "where", "hint"}
    assert document["error"]["what"]


def test_an_error_says_what_where_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["planted", "--do", "invalid"])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: --seed: bad value\nhint: use a number\n"


def test_a_defect_is_one_line_and_its_traceback_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["planted", "--do", "key"])
    error, hint = capsys.readouterr().err.splitlines()
    assert error == "error: internal error: KeyError: 'nobody expected this'"
    (written,) = (state_folder() / "internal-errors").iterdir()
    assert str(written) in hint and "planted_command.py" in written.read_text()


def test_a_traceback_that_cannot_be_written_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert cli.main(["planted", "--do", "key"]) == 70
    assert "planted_command.py" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["plantd"], "planted"),
        (["--versoin"], "--version"),
        (["planted", "--rom", "x"], "--room"),
        (["planted", "--trials", "0"], "--trials"),
        (["planted", "--trials", "many"], "--trials"),
        (["planted", "surplus"], "surplus"),
        (["planted", "--do"], "--do"),
    ],
)
def test_a_usage_error_is_2_and_names_what_is_meant(
    words: list[str], nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and nearest in captured.err and "hint: " in captured.err
    assert cli.main([*words[:1], "--json", *words[1:]]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["code"] == "invalid-input"


def test_json_after_a_double_dash_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["planted", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    overview = capsys.readouterr().out
    assert all(name in overview for name in cli.COMMANDS)
    assert cli.main([]) == 2
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("duratune ")
    assert cli.main(["planted", "--help"]) == 0
    assert "--trials" in capsys.readouterr().out


def test_the_version_is_told_without_importing_what_is_slow() -> None:
    source = (
        "import sys; from tuner.cli import main; main(['--version']); "
        "print(sorted({'typer', 'rich', 'optuna', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run(python(source), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_cleans_up_and_has_its_exit_code(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with running(python(PROGRAM, "planted", "--do", "wait", "--room", str(tmp_path))) as process:
        folder = Path(first_line(process))
        assert folder.exists()
        process.send_signal(number)
        assert process.wait(30) == code
    assert not folder.exists() and not list((state_folder() / "manifests").iterdir())


def test_the_next_start_sweeps_what_a_killed_one_left(tmp_path: Path) -> None:
    with running(python(PROGRAM, "planted", "--do", "wait", "--room", str(tmp_path))) as process:
        folder = Path(first_line(process))
        process.kill()
        process.wait()
    assert folder.exists()
    assert cli.main(["planted"]) == 0 and folder.exists()
    cli.COMMANDS["planted"] = cli.CommandEntry(PLANTED.module, PLANTED.summary, starts_engines=True)
    assert cli.main(["planted"]) == 0 and not folder.exists()


def test_a_reader_that_stops_is_no_verdict() -> None:
    command = [*python(PROGRAM, "planted", "--do", "flood")]
    with running(command) as process:
        first_line(process)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(30) == 128 + signal.SIGPIPE


def test_output_that_cannot_be_written_is_no_verdict() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(python(PROGRAM, "planted", "--do", "pid"), stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 3


def test_the_installed_program_is_this_one() -> None:
    program = Path(sys.executable).with_name("duratune")
    if not program.exists():
        pytest.skip("duratune is not installed in this environment")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, env=os.environ, check=True)
    assert done.stdout.startswith("duratune ")
