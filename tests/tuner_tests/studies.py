"""`duratune tune` as a process of its own, small enough for a test, and what must hold after its end."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import psutil
from optuna.trial import TrialState

from engines.identity import ProcessIdentity, identify
from engines.process import owned_by
from engines.scratch import left_behind, state_folder
from tests.tuner_tests.program import PROGRAM, Ended
from tuner.search.study import NOT_RUN

CHECKOUT = Path(__file__).resolve().parents[2]
QUICK = ("--scale", "1", "--measure", "0.3", "--clients", "4", "--seed", "5")
END_DEADLINE_S = 5.0
"""What DESIGN promises: processes end with duratune, within this time also when it is SIGKILLed."""
FINISH_DEADLINE_S = 600.0


@contextmanager
def started(words: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """`duratune` with these words in ``folder``; killed on the way out. Its stderr goes to a file there."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with (
        (folder / "stderr").open("w") as errors,
        subprocess.Popen(
            [*PROGRAM, *words],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def run(words: Sequence[str], folder: Path) -> Ended:
    """Run a command to its end."""
    with started(words, folder) as process:
        out, _ = process.communicate(timeout=FINISH_DEADLINE_S)
    return Ended(process.returncode, out, (folder / "stderr").read_text())


def await_file(path: Path, process: subprocess.Popen[str], deadline_s: float = 120.0) -> None:
    """Wait until the process has made the file; a process that ends first fails the test."""
    ends_s = time.monotonic() + deadline_s
    while not path.exists():
        assert process.poll() is None, f"it ended with {process.returncode} before {path} was there"
        assert time.monotonic() < ends_s, f"{path} is not there after {deadline_s:g} s"
        time.sleep(0.02)


def identity(process: subprocess.Popen[str]) -> ProcessIdentity:
    """Whom its children and its supervisor name as their owner; to be asked for while it lives."""
    found = identify(process.pid)
    assert found is not None, f"it ended with {process.poll()}"
    return found


def assert_ended(owner: ProcessIdentity, within_s: float = END_DEADLINE_S) -> None:
    """Nothing that this duratune has started runs any more, its supervisor included."""
    ends_s = time.monotonic() + within_s
    while running := [*owned_by(owner), *_supervisors(owner)]:
        assert time.monotonic() < ends_s, f"still there after {within_s:g} s: {running}"
        time.sleep(0.05)


def _supervisors(owner: ProcessIdentity) -> list[int]:
    found = psutil.process_iter(["cmdline"])
    return [process.pid for process in found if str(owner) in (process.info["cmdline"] or [])]


def assert_nothing_left(folder: Path) -> None:
    """No scratch path of a dead duratune is noted, and none lies below the folder."""
    left = left_behind()
    assert left == [], left
    manifests = state_folder() / "manifests"
    noted = list(manifests.iterdir()) if manifests.exists() else []
    assert noted == [], noted
    left = list(folder.rglob("duratune-*"))
    assert left == [], left


def kept_results(study: Path) -> dict[str, tuple[int, str]]:
    """Every finished trial's result, with the moment at which it was written."""
    return {
        path.parent.name: (path.stat().st_mtime_ns, path.read_text())
        for path in sorted(study.glob("trial-*/result.json"))
    }


def assert_kept(before: Mapping[str, tuple[int, str]], study: Path) -> None:
    """No trial that had finished was run again."""
    after = kept_results(study)
    assert {name: after[name] for name in before} == before


def assert_told(study: Path) -> None:
    """What Optuna holds is what the folder holds: nothing runs or waits, nothing is told twice."""
    (name,) = optuna.get_all_study_names(f"sqlite:///{study}/study.db")
    loaded = optuna.load_study(study_name=name, storage=f"sqlite:///{study}/study.db")
    results = {path.parent.name: json.loads(path.read_text()) for path in study.glob("trial-*/result.json")}
    tried = [trial for trial in loaded.trials if NOT_RUN not in trial.user_attrs]
    assert all(trial.state is TrialState.FAIL for trial in loaded.trials if trial not in tried)
    assert [f"trial-{trial.number:04d}" for trial in tried] == sorted(results)
    for trial in tried:
        result = results[f"trial-{trial.number:04d}"]
        wanted = TrialState.FAIL if result["verdict"] == "UNKNOWN" else TrialState.COMPLETE
        assert (trial.state, trial.user_attrs["verdict"]) == (wanted, result["verdict"])
        if wanted is TrialState.COMPLETE:
            assert trial.value == result["ratio"]


def tune_words(trials: int = 3) -> list[str]:
    """The command of a small study in the folder `study`."""
    return ["tune", "rocksdb", *QUICK, "--trials", str(trials), "--study", "study"]


def report(study: Path) -> Any:
    """The kept document of a finished study."""
    return json.loads((study / "report.json").read_text())
