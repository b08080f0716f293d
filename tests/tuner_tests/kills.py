"""Ends of `duratune tune` at chosen moments, with what must hold right after each and at the end."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from engines.scratch import sweep
from tests.tuner_tests import studies
from tests.tuner_tests.studies import started, tune_words

CODES: Mapping[signal.Signals, int] = {
    signal.SIGKILL: -signal.SIGKILL,
    signal.SIGTERM: 143,
    signal.SIGINT: 130,
    signal.SIGHUP: 129,
}
SIGNALLED_END_DEADLINE_S = 60.0
"""A SIGTERM's clean-up waits for what it kills and removes; only a SIGKILL has a promised limit."""


def end_at(
    folder: Path, end: tuple[signal.Signals, float] | None, trials: int = 3, deadline_s: float = 600.0
) -> bool:
    """Start the study's command and end it so many seconds after its first line; None: let it finish.

    Returns whether it was ended before it had finished by itself.
    """
    before = studies.kept_results(folder / "study")
    with started(tune_words(trials), folder) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("contract "), (line, (folder / "stderr").read_text())
        owner = studies.identity(process)
        try:
            process.communicate(timeout=deadline_s if end is None else end[1])
        except subprocess.TimeoutExpired:
            assert end is not None, f"it has not finished within {deadline_s:g} s"
        is_alive = process.poll() is None
        if is_alive and end is not None:
            process.send_signal(end[0])
        code = process.wait(SIGNALLED_END_DEADLINE_S)
        # A signal may find it past its last step.
        assert code == 0 or (is_alive and end is not None and code == CODES[end[0]]), _said(folder, end)
        studies.assert_ended(owner)
    if code == -signal.SIGKILL:
        # Processes end with it; files go at the latest with the next start, which begins with a sweep.
        sweep()
    studies.assert_kept(before, folder / "study")
    studies.assert_nothing_left(folder)
    return code != 0


def _said(folder: Path, end: tuple[signal.Signals, float] | None) -> str:
    return f"ended at {end}: {(folder / 'stderr').read_text()}"


def kill_until_finished(folder: Path, moments: Iterable[tuple[signal.Signals, float]]) -> int:
    """End the study at each moment in turn; returns how many ends came before its own."""
    ended = 0
    for moment in moments:
        if not end_at(folder, moment):
            break
        ended += 1
    return ended


def finish(folder: Path, trials: int = 3, doctor: bool = False) -> None:
    """Let the study finish, if it has not, and hold it to what a study without kills gives."""
    study = folder / "study"
    if not (study / "report.json").exists():
        end_at(folder, None, trials)
    report = studies.report(study)
    assert [trial["trial"] for trial in report["trials"]] == list(range(trials))
    assert report["trials"][0]["proposer"] == "reference"
    assert report["winner"]["verdict"] == "HELD"
    studies.assert_told(study)
    if doctor:
        found = studies.run(["doctor", "--json"], folder).document
        assert [check["what"] for check in found["checks"] if check["name"] == "left behind"] == ["nothing"]
