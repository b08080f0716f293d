"""pgbench as it is measured here: plain, with acknowledgements stamped, or recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from crashlab.block.file_system import FILE_SYSTEMS
from crashlab.block.recorder import BlockRecorder
from crashlab.block.virtual_disk import make_base, mounted
from crashlab.preload.access import opened_to
from crashlab.preload.processes import ProcessList
from crashlab.recording.places import DATABASE_FOLDER, Places
from crashlab.recording.record import LOG_READY_BYTES
from crashlab.recording.stage import Staging
from crashlab.recording.write_log import WriteLog
from crashlab.subject import Subject
from engines.postgresql.launch import PostgresqlLaunch
from tests.bench.driver import ENTRIES_PER_S, LOG_BYTES, OPEN_DEADLINE_S
from tests.bench.postgresql_lab import PostgresqlLab
from workloads.ledger import Ledger
from workloads.workload import Plan

Mode = Literal["plain", "acks stamped", "recorded"]
Disk = Literal["folder", "journaled", "virtual"]
WARMUP_S = 0.5


@dataclass
class PgbenchRuns:
    """Runs of one subject in one mode, each on a fresh clone of the loaded cluster, which is synced first.

    ``disk`` is where the cluster lies: in a folder, on an ext4 with a journal on a loop device over a file
    there, or on a virtual disk, which is recorded too. ``cpu_us`` are the CPU microseconds of the server's
    processes for a transaction, in each run.
    """

    place: PostgresqlLab
    subject: Subject
    seconds: float
    mode: Mode
    disk: Disk = "folder"
    cpu_us: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.mode if self.disk == "folder" else f"{self.mode}, {self.disk}"

    def transactions_per_s(self, seed: int) -> float:
        """One run, by pgbench's own log."""
        scratch, workload = self.place.lab.scratch, self.subject.workload
        folder = scratch.folder(self.place.lab.data, "bench")
        shared = scratch.folder(Path("/dev/shm"), "bench")
        folder.chmod(0o711)
        base = folder / "base"
        launch = self.subject.launch(folder).at(base)
        assert isinstance(launch, PostgresqlLaunch)
        try:
            workload.load(launch, folder, seed)
            launch.adopt().sync()
            plan = Plan(self.subject.threads, seed, warmup_s=WARMUP_S, measure_s=self.seconds, ticker_ms=0)
            capacity = int(ENTRIES_PER_S * (WARMUP_S + self.seconds))
            staging = Staging(base, Places(folder, shared), folder, LOG_BYTES)
            with (
                Ledger.create(staging.places.ledger, self.subject.threads, capacity),
                self._stage(staging) as root,
                workload.start(
                    launch.at(root / DATABASE_FOLDER), plan, folder, *self._recording(root, staging)
                ) as run,
            ):
                run.wait_for("measuring", OPEN_DEADLINE_S)
                before_s = _cpu_s(run.pid)
                run.wait_for("measured", OPEN_DEADLINE_S + self.seconds)
                used_s = _cpu_s(run.pid) - before_s
                run.kill()
                measured, faults = run.figures(), run.faults()
        finally:
            scratch.remove(folder)
            scratch.remove(shared)
        assert measured["operations"] > 0 and faults == [], (measured, faults)
        self.cpu_us.append(1e6 * used_s / measured["operations"])
        return float(measured["throughput_per_s"])

    @contextlib.contextmanager
    def _stage(self, staging: Staging) -> Iterator[Path]:
        if self.disk == "journaled":
            image, at = staging.places.live / "image", staging.places.live / "mount"
            at.mkdir()
            make_base(FILE_SYSTEMS["ext4"], staging.base, image, at)
            with mounted(image, "ext4", "", at):
                yield at
            return
        on_disk = BlockRecorder(watcher=self.place.supervisor)
        recorder = on_disk if self.disk == "virtual" else self.place.lab.recorder
        with recorder.stage(staging) as stage:
            yield stage.root

    def _recording(self, root: Path, staging: Staging) -> tuple[Path | None, dict[str, str] | None]:
        """The ledger and the environment of the run."""
        if self.mode == "plain":
            return None, None
        recorder, shared = self.place.lab.recorder, staging.places.shared
        if self.mode == "recorded":
            other = shared / "write.log"
            WriteLog.create(other, LOG_BYTES, ready_bytes=LOG_READY_BYTES)
            environment = recorder.environment(root, other, staging.places.ledger)
        else:
            other = shared / "processes"
            ProcessList.create(other)
            environment = recorder.acks_environment(staging.places.ledger, other)
        runs_as = self.place.engine.runs_as
        return staging.places.ledger, opened_to(runs_as, shared, (staging.places.ledger, other), environment)


def _cpu_s(pid: int) -> float:
    """User and system time so far of the postmaster's tree, and of those of it that have ended."""
    total = 0.0
    postmaster = psutil.Process(pid)
    for process in [postmaster, *postmaster.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
            if process == postmaster:
                total += times.children_user + times.children_system
    return total
