"""Recording a run: the same settings, workload and seed as the measured one, on a smaller data set.

The run is bounded in operations and log bytes, not in time, and it provokes what matters by explicit
calls (flushes, a compaction). It ends with a SIGKILL while the load goes on; then its log is checked
against the live files and the engine's own count of syncs before anything may be concluded from it.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from crashlab.copying import clone_folder, copy_sparse
from crashlab.recording import belief
from crashlab.recording.belief import Witness
from crashlab.recording.check import SyncCount
from crashlab.recording.recorded import DATABASE_FOLDER, Facts, Recording
from crashlab.recording.recorder import Recorder
from crashlab.recording.write_log import BLOCK_BYTES, WriteLog
from crashlab.subject import Subject
from engines.scratch import Scratch
from knobs.errors import Undecided
from workloads.ledger import STOP_LEDGER_FULL, STOP_WRITE_LOG_FULL, Ledger
from workloads.workload import Plan, Run

SHARED_MEMORY = Path("/dev/shm")
LOG_BYTES = 512 << 20
REACH_DEADLINE_S = 120.0
OPEN_DEADLINE_S = 60.0
PROVOKE = "flush@0.3,compact@0.5,flush@0.7"


@dataclass(frozen=True)
class RecordPlan:
    """How much is recorded: operations of the load, the room for its log, what is provoked, at what
    rate the operations come (0: as fast as they go), and what is already known of the base."""

    operations: int = 6_000
    log_bytes: int = LOG_BYTES
    provoke: str = PROVOKE
    target_per_s: float = 0.0
    notes: tuple[str, ...] = ()


def record(
    subject: Subject,
    base: Path,
    folder: Path,
    scratch: Scratch,
    recorder: Recorder,
    plan: RecordPlan,
    seed: int,
) -> Recording:
    """Record one run of the subject from the loaded base; the recording is written into ``folder``.

    ``folder`` is created. Raises Undecided where the run does not get as far as it should.
    """
    folder.mkdir()
    clone_folder(base, folder / "base", subject.engine.log_reader)
    shared = scratch.folder(SHARED_MEMORY, "record")
    live = scratch.folder(folder, "live")
    root = live / "root"
    root.mkdir()
    try:
        _record_into(subject, folder, root, shared, recorder, plan, seed)
    finally:
        scratch.remove(live)
        scratch.remove(shared)
    return Recording(folder, subject.engine.log_reader)


def _record_into(
    subject: Subject, folder: Path, root: Path, shared: Path, recorder: Recorder, plan: RecordPlan, seed: int
) -> None:
    reader = subject.engine.log_reader
    live = root / DATABASE_FOLDER
    clone_folder(folder / "base", live, reader)
    base_inodes = {
        path.relative_to(root).as_posix(): path.stat().st_ino
        for path in sorted(live.rglob("*"))
        if path.is_file()
    }
    log_path, ledger_path = shared / "write.log", shared / "ledger"
    WriteLog.create(log_path, _log_bytes(plan))
    # Any one client may do all of the operations, and the load goes on a little until the kill.
    with Ledger.create(ledger_path, subject.threads, 2 * plan.operations + 1_000) as ledger:
        canary = recorder.run_canary(root, log_path, ledger_path)
        launch = subject.launch(folder).at(live)
        run_plan = Plan(
            threads=subject.threads,
            seed=seed,
            operations=plan.operations,
            target_per_s=plan.target_per_s,
            provoke=plan.provoke,
        )
        environment = recorder.environment(root, log_path, ledger_path)
        with subject.workload.start(launch, run_plan, shared, ledger_path, environment) as run:
            run.wait_for("opened", OPEN_DEADLINE_S)
            first_position = ledger.position
            notes = _await_operations(run, ledger, plan)
            operations, kill_ns = ledger.operations, time.monotonic_ns()
        # Leaving the block has killed it, in the middle of its load.
        sample = ledger.sync_sample()
    log_bytes = WriteLog.compact(log_path, folder / "write.log")
    copy_sparse(ledger_path, folder / "ledger")
    facts = Facts(
        engine=subject.engine.name,
        engine_version=subject.engine.version(),
        workload=subject.workload.name,
        workload_parameters=dict(subject.workload.properties),
        settings=dict(subject.settings),
        column_family=subject.column_family,
        threads=subject.threads,
        seed=seed,
        recorder=recorder.name,
        initial_records=subject.workload.properties.record_count,
        base_inodes=base_inodes,
        first_position=first_position,
        kill_ns=kill_ns,
        operations=operations,
        log_bytes=log_bytes,
        notes=(*plan.notes, *notes),
    )
    # Until the checks are through, whoever opens the folder must not believe it.
    replace(facts, faults=("its checks were not finished",)).save(folder)
    witness = Witness(root, canary, run.pid, None if sample is None else SyncCount(*sample))
    found = belief.faults(Recording(folder, reader), recorder, witness)
    replace(facts, faults=tuple(found)).save(folder)


def _log_bytes(plan: RecordPlan) -> int:
    """The log's room: what is planned, but no more than half of what its file system has free.

    A log that finds no page left would end the engine by SIGBUS; one that is full ends the load, and says so.
    """
    half = shutil.disk_usage(SHARED_MEMORY).free // 2
    return min(plan.log_bytes, max(2, half // BLOCK_BYTES) * BLOCK_BYTES)


def _await_operations(run: Run, ledger: Ledger, plan: RecordPlan) -> list[str]:
    """Wait until the load has done what was planned or has been stopped, and say which."""
    ends_s = time.monotonic() + REACH_DEADLINE_S
    while ledger.operations < plan.operations:
        if ledger.stop == STOP_WRITE_LOG_FULL:
            return [f"the write log of {plan.log_bytes} bytes was full after {ledger.operations} operations"]
        if ledger.stop == STOP_LEDGER_FULL:
            return [f"the ledger was full after {ledger.operations} operations"]
        if run.finished:
            run.wait_for("reached", 1.0)  # raises with what the driver said at its end
        if time.monotonic() > ends_s:
            raise Undecided(
                f"the recorded run did {ledger.operations} of {plan.operations} operations "
                f"in {REACH_DEADLINE_S:g} s",
                where="recorded run",
                hint="a stalled engine, or a machine under load; see the findings",
            )
        time.sleep(0.001)
    return []
