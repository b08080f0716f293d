from __future__ import annotations

import io
import json

import pytest

from tests.engines_tests.programs import python
from tuner.output import BarProgress, Output, PlainProgress, Progress, SilentProgress


@pytest.mark.parametrize(
    ("as_json", "quiet", "out", "err"),
    [
        (False, False, "result\n", "note\n"),
        (False, True, "result\n", ""),
        (True, False, '{"a":1}', "result\nnote\n"),
        (True, True, '{"a":1}', ""),
    ],
)
def test_each_word_goes_to_its_stream(
    capsys: pytest.CaptureFixture[str], as_json: bool, quiet: bool, out: str, err: str
) -> None:
    output = Output(json=as_json, quiet=quiet)
    output.result("result")
    output.note("note")
    output.document({"a": 1})
    captured = capsys.readouterr()
    assert captured.out.replace("\n  ", "").replace(": ", ":").replace("\n}\n", "}") == out
    assert captured.err == err


def test_a_document_is_json_or_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(json=True)
    with pytest.raises(ValueError):
        output.document({"ratio": float("nan")})
    output.document({"text": 'ä "quoted"\n'})
    assert json.loads(capsys.readouterr().out) == {"text": 'ä "quoted"\n'}


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_plain_lines_are_few_and_the_last_is_there() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = PlainProgress(stream, interval_s=5, clock_s=clock)
    progress.start(40, "trials")
    for step in range(40):
        clock.now_s += 1
        progress.advance(1, f"trial {step}")
    progress.close()
    progress.close()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "trials 0/40" and lines[1] == "trials 5/40: trial 4"
    assert lines[-1] == "trials 40/40: trial 39" and len(lines) == 9


def test_unfinished_work_is_told() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream, clock_s=Clock())
    progress.start(3, "trials")
    progress.advance()
    progress.close()
    assert stream.getvalue() == "trials 0/3\ntrials 1/3: stopped\n"


def test_work_of_which_nobody_knows_how_much_it_is_ends_with_what_was_done() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream, clock_s=Clock())
    progress.start(None, "states")
    for _ in range(4):
        progress.advance()
    progress.close()
    progress.close()
    assert stream.getvalue() == "states 0\nstates 4\n"


def test_progress_is_plain_where_there_is_no_terminal_and_silent_when_quiet() -> None:
    assert isinstance(Output().progress(), PlainProgress)
    assert isinstance(Output(quiet=True).progress(), SilentProgress)


@pytest.mark.parametrize("progress", [SilentProgress(), PlainProgress(io.StringIO()), BarProgress()])
def test_every_progress_can_be_used_twice(progress: Progress) -> None:
    for _ in range(2):
        progress.start(2, "rounds [1]")
        progress.advance(2, "note [bold]")
        progress.close()
        progress.close()


def test_a_terminal_gets_a_bar_and_stdout_stays_clean() -> None:
    import pexpect

    source = (
        "from tuner.output import Output; p = Output().progress(); p.start(2, 'trials'); "
        "p.advance(1, 'trial [1]'); p.advance(1); p.close(); print(type(p).__name__)"
    )
    program, *arguments = python(source)
    child = pexpect.spawn(program, arguments, encoding="utf-8", timeout=30, dimensions=(24, 120))
    child.expect("trials.*2/2")
    child.expect("BarProgress")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
