"""A study: an ordinary Optuna study in SQLite, and a folder with everything that its trials found.

`study.json` says what the study is for; it is written once, before the first trial. A trial's result
is written into its own folder before Optuna is told, so a study that was killed goes on with the
same command: a trial that had finished is told from its folder, one that had not is tried again under
its own number, so that the reference stays trial 0.
"""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from crashlab.judging.verdict import Verdict
from engines.lock import LOCK_NAME
from knobs.errors import InvalidInput
from tuner.search.search_space import Parameter, SearchSpace
from tuner.search.trial import REJECTED, TrialResult

SEEDS = 2**32
"""What NumPy's RandomState, which Optuna seeds, takes."""
CONTRACT = "contract"
STARTS = "starts"
NOT_RUN = "not run"
"""The user attribute of a trial that was queued and never ran."""
_DATABASE = "study.db"
_STORED = "study.json"
_FINISHED = "report.json"


class StudyFolder:
    """The folder of one study."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def finished(self) -> bool:
        """Whether the study has told its end."""
        return (self.folder / _FINISHED).exists()

    def trial(self, number: int) -> Path:
        """The folder of one trial, made if it is not there."""
        folder = self.folder / f"trial-{number:04d}"
        folder.mkdir(exist_ok=True)
        return folder

    def clear(self, number: int) -> None:
        """Remove what a trial left that was interrupted."""
        folder = self.trial(number)
        shutil.rmtree(folder)

    def results(self) -> list[TrialResult]:
        """Every result that is kept, in order of trial number. Raises InvalidInput for a damaged one."""
        kept = [TrialResult.load(folder) for folder in sorted(self.folder.glob("trial-*"))]
        return [result for result in kept if result is not None]

    def open(self, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the study is for: stored if it is new, else held against what is stored.

        The seed of an unfinished study is kept. Raises InvalidInput where the folder belongs to
        another engine, contract, workload or reference.
        """
        path = self.folder / _STORED
        if not path.exists():
            self.write(_STORED, wanted)
            return wanted
        try:
            stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            int(stored["seed"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"the study's description is damaged: {error}", where=str(path)) from error
        different = [
            difference
            for name, value in wanted.items()
            if name not in ("seed", "schema")
            for difference in _differences(name, stored.get(name), value)
        ]
        if different:
            raise InvalidInput(
                f"an unfinished study of something else: {'; '.join(different)}",
                where=str(self.folder),
                hint="name another folder with --study, or give the same options to resume",
            )
        return stored

    def refuse_foreign(self) -> None:
        """Raises InvalidInput for a folder that holds something and is no study: it is somebody else's."""
        if not self.folder.is_dir() or (self.folder / _STORED).exists():
            return
        if any(entry.name != LOCK_NAME for entry in self.folder.iterdir()):
            raise InvalidInput(
                "the folder is not empty and holds no study",
                where=str(self.folder),
                hint="name a new folder, or that of a study",
            )

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a JSON file of the study whole or not at all."""
        part = self.folder / f"{name}.part"
        part.write_text(json.dumps(document, indent=1, allow_nan=False), encoding="utf-8")
        part.replace(self.folder / name)

    def finish(self, document: Mapping[str, Any]) -> None:
        """Keep the report; from then on the study is finished."""
        self.write(_FINISHED, document)


def _differences(name: str, there: Any, here: Any) -> list[str]:
    """What differs between two descriptions; of maps only the entries that do."""
    if isinstance(there, dict) and isinstance(here, dict):
        names = sorted(key for key in {*there, *here} if there.get(key) != here.get(key))
        return [f"{key} is {there.get(key)!r} there and {here.get(key)!r} here" for key in names]
    return [] if there == here else [f"{name} is {there!r} there and {here!r} here"]


class OptunaStudy:
    """Optuna's side: what to try next, and what it is told."""

    def __init__(
        self, folder: StudyFolder, name: str, space: SearchSpace, seed: int, constrained: bool
    ) -> None:
        optuna.logging.set_verbosity(logging.WARNING)
        self._folder = folder
        self._space = space
        self._constrained = constrained
        self._asked: optuna.trial.Trial | None = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=seed % SEEDS, multivariate=True)
        self._storage = optuna.storages.get_storage(f"sqlite:///{folder.folder / _DATABASE}")
        self.study = optuna.create_study(
            storage=self._storage,
            study_name=name,
            sampler=sampler,
            direction="maximize",
            load_if_exists=True,
        )

    def recover(self) -> int:
        """After a kill: tell every running trial whose result is kept, and queue the others again.

        A trial that is queued again keeps its number and values and comes before every other. Returns
        how many those are.
        """
        again = 0
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            result = TrialResult.load(self._folder.folder / f"trial-{trial.number:04d}")
            # Optuna has no public way from a trial's number to what its storage or a Trial asks for.
            if result is not None:
                self._asked = optuna.trial.Trial(self.study, trial._trial_id)
                self.tell(result)
                continue
            self._folder.clear(trial.number)
            self._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)
            again += 1
        return again

    @property
    def known_trials(self) -> int:
        """How many trials the study knows, one that is queued included, those that never ran not."""
        return sum(NOT_RUN not in trial.user_attrs for trial in self.study.get_trials(deepcopy=False))

    @property
    def has_queued(self) -> bool:
        """Whether a trial is queued, so that the next one is known."""
        return bool(self._queued())

    def close(self) -> None:
        """Nothing more is run: a trial that is still queued fails, and says why.

        That can only be one that a kill interrupted and that there was no time left for.
        """
        for trial in self._queued():
            self._storage.set_trial_user_attr(trial._trial_id, NOT_RUN, "the study ended before it ran")
            self._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)

    def _queued(self) -> list[optuna.trial.FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))

    def enqueue(self, settings: Mapping[str, str], attributes: Mapping[str, str]) -> None:
        """Queue a start point. Raises InvalidInput where it lies outside the space."""
        self.study.enqueue_trial(self._space.parameters(settings), user_attrs=dict(attributes))

    def ask(self) -> tuple[int, dict[str, str], dict[str, str]]:
        """The next trial: its number, its settings over the reference, and what was queued with it."""
        self._asked = trial = self.study.ask(dict(self._space.distributions))
        parameters: dict[str, Parameter] = dict(trial.params)
        attributes = {name: str(value) for name, value in trial.user_attrs.items()}
        attributes.setdefault("proposer", "tpe")
        return trial.number, self._space.settings(parameters), attributes

    def tell(self, result: TrialResult) -> None:
        """Tell the result of the trial that was asked for last.

        COMPLETE with a positive constraint where the contract broke or the engine refused the
        settings; FAIL only where the lab could not tell, since a failed trial teaches nothing.
        """
        trial = self._asked
        assert trial is not None and trial.number == result.number, "trials are told in the order of asking"
        trial.set_user_attr("verdict", result.verdict)
        trial.set_user_attr("reasons", list(result.reasons))
        trial.set_user_attr("throughput_per_s", result.throughput_per_s)
        trial.set_user_attr("settings", dict(result.settings))
        if result.verdict == Verdict.UNKNOWN.value:
            self.study.tell(trial, state=TrialState.FAIL)
            return
        constraints = {STARTS: result.verdict == REJECTED}
        if self._constrained:
            constraints[CONTRACT] = result.broken
        for name, is_violated in constraints.items():
            # One that was set just before a kill stays as it is, and Optuna would warn of a second time.
            if name not in trial.constraints:
                trial.set_constraint(name, 1.0 if is_violated else -1.0)
        self.study.tell(trial, result.ratio)
