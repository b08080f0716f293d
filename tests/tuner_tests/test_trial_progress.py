"""A study's progress where no terminal is: each trial has its line, and the end says why it came."""

from __future__ import annotations

import io

import pytest

from tuner.output import Output
from tuner.search.trial_progress import TrialProgress


def test_each_trial_has_a_line_and_the_end_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with TrialProgress(Output(), 2, 5) as progress:
        progress.one_more("trial 2 held", 4)
        progress.one_more("trial 3 held", 4)
        progress.one_more("trial 4 held", 4)
        progress.end("the time is used")
    assert capsys.readouterr().err.splitlines() == [
        "trials 2/5",
        "trials 3/4: trial 2 held",
        "trials 4/4: trial 3 held",
        "trials 5/5: trial 4 held",
        "trials 5 finished: the time is used",
    ]


def test_only_an_end_without_a_reason_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), TrialProgress(Output(), 0, 3) as progress:
        progress.one_more("trial 0 held", 3)
        raise KeyboardInterrupt
    assert capsys.readouterr().err.splitlines()[-1] == "trials 1/3: stopped"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar_and_the_reason_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with TrialProgress(Output(), 1, 3) as progress:
        progress.one_more("trial 1 held", 3)
        progress.end("the time is used")
    said = terminal.getvalue()
    assert "2/3" in said and "trial 1 held" in said
    assert said.rstrip().endswith("trials 2 finished: the time is used")


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with TrialProgress(Output(quiet=True), 0, 1) as progress:
        progress.one_more("trial 0 held", 1)
        progress.end("the number is reached")
    assert capsys.readouterr().err == ""
