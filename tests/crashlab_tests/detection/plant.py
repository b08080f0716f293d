"""A recorder whose engine has a planted bug, and the verdict on one run of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

from crashlab.block.recorder import BlockRecorder
from crashlab.judging.evidence import CrashEvidence, CrashVerdict, Terms
from crashlab.judging.verdict import Verdict
from crashlab.limits import EngineLimits
from crashlab.models import MODELS
from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.record import RecordPlan
from crashlab.recording.recorder import Recorder
from crashlab.subject import Subject
from crashlab.validate import plan_all, split_states
from knobs.contract import Contract
from tests.crashlab_tests import postgresql_table, rocksdb_table
from tests.crashlab_tests.detection.bugs import Bug, Spoil
from tests.crashlab_tests.labs import WatchedLab
from tests.crashlab_tests.preload_tests.programs import compile_c
from tests.crashlab_tests.rocksdb_table import SYNC
from tests.crashlab_tests.runs import RIGHT
from workloads.workload import Recovered, Verifier, Workload

RECORD = {"rocksdb": RecordPlan(operations=2_000), "postgresql": RecordPlan(operations=1_500)}
STATES = 30
"""What `duratune crash` judges by default."""


def build_plant(folder: Path) -> Path:
    """The library that plants syncs."""
    source = Path(__file__).parent / "planted.c"
    return compile_c(folder / "planted.so", [source], "-shared", "-fPIC")


class PlantedRecorder(PreloadRecorder):
    """The preload recorder, with a library before it in the engine's processes, and only there."""

    def __init__(self, plant: str, library: Path) -> None:
        super().__init__()
        self._plant, self._planting = plant, library

    def environment(self, root: Path, log: Path, ledger: Path) -> dict[str, str]:
        known = super().environment(root, log, ledger)
        if not self._plant or log.name == "disk.log":
            return known
        preloaded = f"{self._planting} {known['LD_PRELOAD']}"
        return {**known, "LD_PRELOAD": preloaded, "DURATUNE_PLANT": self._plant}


def recorder_of(bug: Bug, name: str, library: Path, lab: WatchedLab) -> Recorder:
    """The recorder of this name with the bug's syncs."""
    preload = PlantedRecorder(bug.plant, library)
    if name == "preload":
        return preload
    return BlockRecorder(mount_options=bug.mount_options, preload=preload, watcher=lab.watcher)


def subject_of(bug: Bug, lab: WatchedLab) -> Subject:
    """Settings that hold `strict`, and the bug's own over them."""
    if bug.engine == "rocksdb":
        subject = rocksdb_table.subject((SYNC, *bug.settings))
    else:
        table = postgresql_table.TABLE if bug.checksums else postgresql_table.WITHOUT_CHECKSUMS
        subject = table.subject(lab).with_settings(dict(bug.settings))
    if bug.spoil is None:
        return subject
    return replace(subject, workload=cast(Workload[Any], _Spoiling(subject.workload, bug.spoil)))


@dataclass(frozen=True)
class Outcome:
    """What one seed of a bug came to: the verdict, and of each model how many states broke it."""

    verdict: Verdict
    reasons: tuple[str, ...]
    broken: dict[str, tuple[int, int]]
    first_s: float
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict.value,
            "reasons": list(self.reasons),
            "models": {name: list(counts) for name, counts in self.broken.items()},
            "first_s": round(self.first_s, 2),
            "why": self.why,
        }


def try_bug(bug: Bug, recorder: str, lab: WatchedLab, library: Path, folder: Path, seed: int) -> Outcome:
    """Record a run with the bug, and judge the states of the default plan."""
    began = time.monotonic()
    planted = replace(lab, recorder=recorder_of(bug, recorder, library, lab))
    subject, contract = subject_of(bug, lab), Contract.parse(bug.contract)
    plan = RECORD[bug.engine]
    recording = planted.record(subject, contract, plan, folder / "recording", seed)
    models = [
        name
        for name in subject.engine.controls
        if recorder == "preload" or MODELS[name].metadata == "ordered"
    ]
    planned = plan_all(recording, split_states(models, STATES, bug.metadata), seed)
    states = planted.recover(recording, subject, planned)
    evidence = CrashEvidence(None, recording, states, RIGHT)
    terms = Terms(contract, bug.metadata, bug.strict_model)
    verdict = EngineLimits(lab, terms, plan, seed).under(evidence, subject)
    return Outcome(
        verdict.verdict,
        verdict.reasons,
        _broken(verdict),
        time.monotonic() - began,
        verdict.disbelief,
    )


def _broken(verdict: CrashVerdict) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for state in verdict.states:
        broken, judged = found.get(state.planned.model, (0, 0))
        is_broken = state.judgement.verdict is Verdict.BROKEN and not state.aside
        found[state.planned.model] = (broken + is_broken, judged + 1)
    return found


class _Spoiling:
    """A workload whose verifier spoils a crash state before the engine recovers it."""

    def __init__(self, workload: Workload[Any], spoil: Spoil) -> None:
        self._workload, self._spoil = workload, spoil

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workload, name)

    def at_most(self, records: int) -> Any:
        return _Spoiling(self._workload.at_most(records), self._spoil)

    def verifier(self, folder: Path) -> Verifier[Any]:
        found = self._workload.verifier(folder)
        # The loaded base, which is reopened first, is no crash state.
        return _SpoilingVerifier(found, self._spoil) if folder.name.startswith("worker") else found


class _SpoilingVerifier:
    def __init__(self, verifier: Verifier[Any], spoil: Spoil) -> None:
        self._verifier, self._spoil = verifier, spoil

    def __enter__(self) -> Self:
        self._verifier.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._verifier.__exit__(*exception)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._verifier, name)

    def verify(self, launch: Any, deadline_s: float, *, is_touched: bool = True) -> Recovered:
        self._spoil(launch.database)
        return self._verifier.verify(launch, deadline_s, is_touched=is_touched)
