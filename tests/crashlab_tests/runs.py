"""Recorded and killed runs made by hand: what was recorded, written and recovered, without an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crashlab.controls import Control
from crashlab.judging.judge import RecoveredState
from crashlab.judging.oracle import Cut, History
from crashlab.judging.verdict import Verdict
from crashlab.kill import KilledRun
from crashlab.recording.recorded import Facts, Recording
from crashlab.states.disk import Disk
from crashlab.states.plan import PlannedState, Source
from engines.engine import LogMap, LogOrder, LogPlace
from engines.rocksdb.log_reader import RocksdbLogReader
from tests.crashlab_tests.tapes import MILLISECOND, Tape
from workloads.workload import ROW, Recovered

RIGHT = [
    Control(f"{name}.{pick}", wanted, wanted)
    for pick, wanted in (("lossy", Verdict.BROKEN), ("honest", Verdict.HELD))
    for name in ("cache", "kill", "synced")
]
"""Controls that came out as they must, for evidence whose controls are not what is tested."""
NOTHING: npt.NDArray[np.void] = np.empty(0, dtype=ROW)


def facts(**changed: Any) -> Facts:
    """Facts of a run of no consequence."""
    known = {
        "engine": "rocksdb",
        "engine_version": "7.8.3",
        "workload": "ycsb:a",
        "workload_parameters": {},
        "settings": {},
        "engine_parameters": {"column_family": "default"},
        "threads": 1,
        "seed": 1,
        "recorder": "preload",
        "initial_records": 0,
        "register_per_write": False,
        "base_inodes": {},
        "folder_inodes": {},
        "first_position": 0,
        "kill_ns": 0,
        "operations": 0,
        "log_bytes": 0,
    }
    return Facts(**{**known, **changed})


def recording(disk: Disk, history: History, log_map: LogMap | None = None, **changed: Any) -> Recording:
    """A recording whose parts are given instead of read; ``changed`` are its facts."""
    made = object.__new__(Recording)
    made.folder = Path("nowhere")
    made.reader = RocksdbLogReader()
    made.facts = facts(**changed)
    made.__dict__.update(disk=disk, history=history, log_map=log_map or LogMap([], [], []))
    return made


def recorded_log(past: History) -> tuple[Tape, LogMap]:
    """One log: every write of the history written at its begin, ten bytes each, and never synced."""
    tape = Tape()
    tape.create("db/000001.log", 1)
    tape.fsync_folder()
    places = []
    for index in range(len(past)):
        tape.write(1, 10 * index, b"0123456789")
        places.append(LogPlace(int(past.client[index]), int(past.sequence[index]), 0, 10 * (index + 1)))
    return tape, LogMap(places, [LogOrder(0, 1)], [])


def recovered(
    rows: npt.NDArray[np.void], *, neutral: npt.NDArray[np.void] | None = None, recovery_s: float = 0.1
) -> Recovered:
    """A recovery that went well; both views are the same unless ``neutral`` is given."""
    return Recovered(True, "", "", recovery_s, rows, rows if neutral is None else neutral)


def failed(stage: str, error: str, *, back: bool = False, rows: npt.NDArray[np.void] = NOTHING) -> Recovered:
    """A recovery that failed at a stage; ``back`` tells whether the candidate's settings opened it."""
    return Recovered(back, stage, error, 0.1, rows, rows)


def state(
    model: str, position: int, made: Recovered | None, failure: str = "", source: Source = "uniform"
) -> RecoveredState:
    return RecoveredState(PlannedState(model, position, 1, source, "a test"), made, failure)


def killed(history: History, made: Recovered | None, position: int) -> KilledRun:
    return KilledRun({"throughput_per_s": 1.0}, "", history, Cut(position, position * MILLISECOND), made)
