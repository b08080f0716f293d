"""The driver as it is measured here: with or without the ledger, with or without the recorder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from crashlab.recording.record import LOG_READY_BYTES
from crashlab.recording.recorder import Recorder
from crashlab.recording.write_log import WriteLog
from crashlab.subject import Subject
from crashlab.validate import Lab
from workloads.ledger import Ledger
from workloads.workload import Plan

OPEN_DEADLINE_S = 60.0
LOG_BYTES = 4 << 30
"""Sparse, in shared memory: only what is written takes room."""
ENTRIES_PER_S = 200_000


@dataclass
class Driver:
    """Runs of one subject, each on a freshly loaded database, timed from its first operation.

    ``cpu_us`` are the CPU microseconds of an operation in each run, background threads included: they
    tell what things cost where other processes make rates worthless. ``log_bytes`` are those of an
    operation in each recorded run.
    """

    lab: Lab
    subject: Subject
    seconds: float
    ledger: bool = True
    recorder: Recorder | None = None
    ticker_ms: int = 0
    """How often the engine's count of syncs is sampled, which only recorded runs do (crashlab/kill.py)."""
    cpu_us: list[float] = field(default_factory=list)
    log_bytes: list[float] = field(default_factory=list)

    def operations_per_s(self, seed: int) -> float:
        """One run."""
        folder = self.lab.scratch.folder(self.lab.data, "bench")
        shared = self.lab.scratch.folder(Path("/dev/shm"), "bench")
        launch = self.subject.launch(folder)
        root = folder / "root"
        root.mkdir()
        launch = launch.at(root / "db")
        self.subject.workload.load(launch, folder, seed)
        plan = Plan(self.subject.threads, seed, measure_s=self.seconds, ticker_ms=self.ticker_ms)
        environment = self._environment(root, shared)
        try:
            with (
                self._ledger(shared / "ledger") as ledger,
                self.subject.workload.start(
                    launch, plan, folder, shared / "ledger" if ledger else None, environment
                ) as run,
            ):
                run.wait_for("opened", OPEN_DEADLINE_S)
                before_s = _cpu_s(run.pid)
                measured = run.wait_for("measured", OPEN_DEADLINE_S + self.seconds)
                self.cpu_us.append(1e6 * (_cpu_s(run.pid) - before_s) / measured["operations"])
                run.kill()
                if self.recorder and ledger:
                    used = WriteLog.read(shared / "write.log").used_bytes
                    self.log_bytes.append(used / ledger.operations)
        finally:
            self.lab.scratch.remove(folder)
            self.lab.scratch.remove(shared)
        assert measured["operations"] > 0 and measured["last_error"] == "", measured
        return float(measured["throughput_per_s"])

    def _environment(self, root: Path, shared: Path) -> dict[str, str]:
        if self.recorder is None:
            return {}
        assert shutil.disk_usage(shared).free > LOG_BYTES // 2, "too little shared memory for a write log"
        WriteLog.create(shared / "write.log", LOG_BYTES, ready_bytes=LOG_READY_BYTES)
        return self.recorder.environment(root, shared / "write.log", shared / "ledger")

    @contextmanager
    def _ledger(self, path: Path) -> Iterator[Ledger | None]:
        if not self.ledger:
            yield None
            return
        with Ledger.create(path, self.subject.threads, int(ENTRIES_PER_S * self.seconds)) as ledger:
            yield ledger


def _cpu_s(pid: int) -> float:
    """User and system time of a process so far (proc(5), /proc/pid/stat, fields 14 and 15)."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
