"""duratune ended by a signal at a random moment: what must be gone afterwards, and when."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from tests.tuner_tests.crash_runs import Room

COMMAND = (
    "crash",
    "rocksdb",
    "--states",
    "12",
    "--measure",
    "0.5",
    "--operations",
    "1500",
    "--scale",
    "2",
    "--json",
)
WHOLE_RUN_S = 6.0
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}


BLOCK_RUN_S = 12.0
"""With virtual disks: each control has one, and the run."""


def interrupted(
    parent: Path, number: signal.Signals, draw: random.Random, *options: str, whole_run_s: float = WHOLE_RUN_S
) -> list[str]:
    """Every fault of one interruption: a wrong exit code, and what was there that must not be."""
    room = Room.make(parent)
    moment_s = draw.random() * whole_run_s
    with room.start(*COMMAND, *options) as process:
        time.sleep(moment_s)
        ended_first = process.poll() is not None
        sent_s = time.time()
        if not ended_first:
            os.kill(process.pid, number)
        process.communicate(timeout=60.0)
    # It may have come behind the last step: the verdict was out, and only the program's end was left.
    told = [path.stat().st_mtime for path in room.folder.rglob("crash.json")]
    ended_first |= process.returncode == 0 and bool(told) and told[0] < sent_s
    where = f"{number.name} after {moment_s:.3f} s"
    faults = []
    # It may have been so early that Python itself had not set its handlers yet.
    too_early = process.returncode == -number and moment_s < 1.0
    if not ended_first and not too_early and process.returncode != SIGNALS[number]:
        faults.append(f"{where}: exit code {process.returncode}")
    if number is not signal.SIGKILL:
        faults += [f"{where}: {left} is left" for left in room.await_quiet(0.0 if not too_early else 10.0)]
        if not ended_first:
            faults += [
                f"{where}: {left} is left" for left in room.folder.rglob("*") if left.name == "crash.json"
            ]
        return faults
    faults += [f"{where}: {left} still runs" for left in _running(room)]
    swept = room.run("doctor", "--clean", "--json")
    if swept.code not in (0, 3):
        faults.append(f"{where}: doctor --clean ended with {swept.code}: {swept.err}")
    faults += [f"{where}: {left} is left after doctor --clean" for left in room.left_behind()]
    return faults


def _running(room: Room) -> list[str]:
    """What still runs five seconds after duratune was killed."""
    room.await_quiet(5.0)
    return room.processes()
