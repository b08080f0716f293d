"""Recording a run: the same settings, workload and seed as the measured one, on a smaller data set.

The run is bounded in operations and log bytes, not in time, and it provokes what matters by explicit
calls (flushes, a compaction). The load goes on until the last of them has ended, however soon its
operations are done, and then ends with a SIGKILL in its middle; a full log or ledger ends it earlier,
which is said and spoils nothing. Then the log is checked against the live files and the engine's own
count of syncs before anything may be concluded from it.

A run may be made to meet a fault (fault.py), over which the engine may stop: then it ends there, and is as
good as any. An engine is kept from starting again by itself: such a start syncs the whole folder and answers
nobody any more, its clients being gone; and what it builds on are calls that the end of its processes cut
off, of which the log cannot say whether they happened. So what recovery makes of content that is in the page
cache alone is not seen.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crashlab.copying import clone_folder, copy_sparse
from crashlab.recording import belief
from crashlab.recording.belief import Witness
from crashlab.recording.check import SyncCount
from crashlab.recording.fault import Fault, FaultSwitch
from crashlab.recording.places import DATABASE_FOLDER, Places, inodes_below, recording_places
from crashlab.recording.recorded import Facts, Recording, save_owners
from crashlab.recording.recorder import Recorder
from crashlab.recording.stage import Staging
from crashlab.recording.write_log import BLOCK_BYTES, WriteLog
from crashlab.subject import Subject
from engines.process import DeadlinePassed
from engines.scratch import SHARED_MEMORY_FOLDER, Scratch
from knobs.errors import DuratuneError, Undecided
from workloads.ledger import ENTRY_BYTES, STOP_LEDGER_FULL, STOP_WRITE_LOG_FULL, Ledger
from workloads.workload import Event, Plan, Run

LOG_BYTES, LOG_READY_BYTES = 512 << 20, 128 << 20
"""The log's room, and what of it has its memory before the run: about what a second of pgbench writes."""
SPARE_ENTRIES = 100_000
"""What a client may write while what is provoked goes on; untouched pages of it take no memory."""
REACH_DEADLINE_S = 120.0
STOPPED_LINES_MAX = 3
"""Of what an engine says when it stops."""
OPEN_DEADLINE_S, OWNERS_DEADLINE_S = 60.0, 600.0
PROVOKE = "flush@0.3,compact@0.5,flush@0.7"
PROVOKE_FAULT = "flush@0.2,flush@0.4,flush@0.6,flush@0.8,flush@1"
"""Under a fault: what a sync has lost shows once a later checkpoint has been completed, if nothing writes it
again meanwhile, as VACUUM does."""


@dataclass(frozen=True)
class RecordPlan:
    """How much is recorded: operations of the load at least, the room for its log, what is provoked, at what
    rate the operations come (0: as fast as they go), what is already known of the base, how many seconds
    operations and provocations may take together, each client's room for writes beyond the operations, and
    the fault that the run meets."""

    operations: int = 6_000
    log_bytes: int = LOG_BYTES
    provoke: str = PROVOKE
    target_per_s: float = 0.0
    notes: tuple[str, ...] = ()
    deadline_s: float = REACH_DEADLINE_S
    spare_entries: int = SPARE_ENTRIES
    fault: Fault | None = None


def record(
    subject: Subject,
    base: Path,
    folder: Path,
    scratch: Scratch,
    recorder: Recorder,
    plan: RecordPlan,
    seed: int,
    parent: Path | None = None,
) -> Recording:
    """Record one run of the subject from the loaded base; the recording is written into ``folder``.

    ``folder`` is created; ``parent`` takes the live data, else ``folder`` does. The run is done on ``base``
    itself, which is gone afterwards; the recording keeps a copy of how it was. Raises Undecided where
    the run does not get as far as it should: its operations are not done, or what is provoked has not
    ended, at the deadline, no client is left, or its fault is never reached or comes too late to tell.
    """
    folder.mkdir()
    clone_folder(base, folder / "base", subject.engine.log_reader)
    with recording_places(subject.engine, scratch, parent or folder) as places:
        staging = Staging(base, places, folder, log_room_bytes(plan.log_bytes))
        _record_into(subject, staging, recorder, plan, seed)
    return Recording(folder, subject.engine.log_reader)


def _record_into(subject: Subject, staging: Staging, recorder: Recorder, plan: RecordPlan, seed: int) -> None:
    reader = subject.engine.log_reader
    folder, places = staging.folder, staging.places
    WriteLog.create(places.log, staging.log_bytes, ready_bytes=min(staging.log_bytes, LOG_READY_BYTES))
    with (
        Ledger.create(places.ledger, subject.threads, _ledger_capacity(subject, plan)) as ledger,
        recorder.stage(staging) as stage,
    ):
        root = stage.root
        base_inodes, folder_inodes = inodes_below(root, reader)
        canary = recorder.run_canary(root, places.log, places.ledger)
        canary_position = ledger.position
        launch = _launched(subject, plan).launch(folder).at(root / DATABASE_FOLDER)
        run_plan = _run_plan(subject, plan, seed)
        environment = _environment(subject, recorder, plan, root, places)
        with (
            FaultSwitch(places.log) as switch,
            subject.workload.start(launch, run_plan, places.shared, places.ledger, environment) as run,
        ):
            run.wait_for("opened", OPEN_DEADLINE_S)
            first_position = ledger.position
            if plan.fault is not None:
                switch.arm()
            awaited = await_recorded(run, ledger, plan, switch)
            operations, kill_ns = ledger.operations, time.monotonic_ns()
            stage.unblock()
            # In the middle of its load.
            killed = run.kill()
            unlike = run.faults()
            fault_position = switch.position
        sample = ledger.sync_sample()
        log_bytes = WriteLog.compact(places.log, folder / "write.log")
        copy_sparse(places.ledger, folder / "ledger")
        facts = Facts(
            engine=subject.engine.name,
            engine_version=subject.engine.version(),
            workload=subject.workload.name,
            workload_parameters=dict(subject.workload.parameters),
            settings=dict(subject.settings),
            engine_parameters=dict(subject.engine.parameters),
            threads=subject.threads,
            seed=seed,
            recorder=recorder.name,
            initial_records=subject.workload.initial_records,
            register_per_write=subject.workload.register_per_write,
            base_inodes=base_inodes,
            folder_inodes=folder_inodes,
            first_position=first_position,
            kill_ns=kill_ns,
            operations=operations,
            log_bytes=log_bytes,
            file_system=stage.file_system,
            canary_position=canary_position,
            provoked_until=awaited.provoked_until,
            fault="" if plan.fault is None else str(plan.fault),
            fault_position=fault_position,
            notes=(*plan.notes, *(note.replace(f"{root}/", "") for note in awaited.notes)),
        )
        # Until the checks are through, whoever opens the folder must not believe it.
        replace(facts, faults=("its checks were not finished",)).save(folder)
        unlike += stage.settle()
        pids = tuple(process.pid for process in killed.processes)
        witness = Witness(root, canary, pids, None if sample is None else SyncCount(*sample))
        facts = _checked(facts, Recording(folder, reader), recorder, witness, unlike)
        if subject.engine.stamps_in_server:
            # Only now: what recovery changes is not what the run left.
            _save_owners(subject, launch, root.parent, folder)
        facts.save(folder)


def _checked(
    facts: Facts, recording: Recording, recorder: Recorder, witness: Witness, unlike: Sequence[str]
) -> Facts:
    """The facts, with every reason not to believe the log, and what is worth saying of one that is
    believed."""
    found = [*unlike, *belief.faults(recording, recorder, witness)]
    noted = belief.notes(recording, witness.syncs)
    return replace(facts, faults=tuple(found), notes=(*facts.notes, *noted))


def _run_plan(subject: Subject, plan: RecordPlan, seed: int) -> Plan:
    return Plan(
        threads=subject.threads,
        seed=seed,
        operations=plan.operations,
        target_per_s=plan.target_per_s,
        provoke=plan.provoke,
    )


def _launched(subject: Subject, plan: RecordPlan) -> Subject:
    """The subject as it runs: under a fault its engine stays down once it has stopped."""
    more = {} if plan.fault is None else subject.engine.stays_down
    return subject.with_settings({**subject.settings, **more})


def _environment(
    subject: Subject, recorder: Recorder, plan: RecordPlan, root: Path, places: Places
) -> dict[str, str]:
    """What the engine's processes are started with, opened to their user."""
    variables = recorder.environment(root, places.log, places.ledger)
    if plan.fault is not None:
        role = plan.fault.role
        files = subject.engine.log_reader.files_of(role) if role is not None else ""
        variables |= recorder.fault_environment(plan.fault, files)
    return places.opened(subject.engine, variables)


def _save_owners(subject: Subject, launch: Any, root: Path, folder: Path) -> None:
    """Keep what each transaction wrote, as the ledger notes it; where nobody has noted it, ask the tables of
    the live data, once recovered, which transaction wrote each row that is left.

    A transaction that recovery does not bring back, or whose row was written over, stays without an owner.
    """
    with Ledger.open(folder / "ledger") as ledger:
        entries = ledger.entries()
    noted = entries.extra & np.uint64(0xFFFFFFFF)
    owners: dict[int, list[tuple[int, int]]] = {}
    if noted.any():
        written = zip(noted.tolist(), entries.client.tolist(), entries.sequence.tolist(), strict=True)
    else:
        with subject.workload.verifier(root) as verifier:
            recovered = verifier.verify(launch, OWNERS_DEADLINE_S, is_touched=False)
        rows = recovered.candidate
        written = zip(
            recovered.transactions.tolist(), rows["client"].tolist(), rows["sequence"].tolist(), strict=True
        )
    for transaction, client, sequence in written:
        if transaction:
            owners.setdefault(transaction, []).append((client, sequence))
    save_owners(folder, owners)


def log_room_bytes(wanted: int) -> int:
    """A log's room: what is wanted, but no more than half of what its file system has free.

    A log that finds no page left would end the engine by SIGBUS; one that is full ends the load, and says so.
    """
    half = shutil.disk_usage(SHARED_MEMORY_FOLDER).free // 2
    return min(wanted, max(2, half // BLOCK_BYTES) * BLOCK_BYTES)


def _ledger_capacity(subject: Subject, plan: RecordPlan) -> int:
    """Entries for each client: any one may do all of the operations, and goes on until the kill.

    The spare ones take no more than a quarter of what their file system has free.
    """
    quarter = shutil.disk_usage(SHARED_MEMORY_FOLDER).free // 4
    return 2 * plan.operations + 1_000 + min(plan.spare_entries, quarter // (ENTRY_BYTES * subject.threads))


@dataclass(frozen=True)
class Awaited:
    """How a recorded run went: what is worth saying, and the position where its last provocation ended."""

    notes: tuple[str, ...]
    provoked_until: int = 0


def await_recorded(run: Run, ledger: Ledger, plan: RecordPlan, switch: FaultSwitch | None = None) -> Awaited:
    """Wait until the operations are done and every provocation has ended, or the load was stopped.

    Where the plan has a fault, ``switch`` tells of it; an engine that stops after it is no error. Raises
    Undecided at the plan's deadline, where no client is left, where the fault was not met or nothing was
    provoked after it, and with what the driver says if it ends.
    """
    awaiting = _Awaiting(run, ledger, plan, switch)
    try:
        awaiting.to_the_end()
    except DeadlinePassed:
        raise
    except DuratuneError as error:
        if not awaiting.fault_position:
            raise
        said = "; ".join([error.what, *error.hint.splitlines()[:STOPPED_LINES_MAX]])
        awaiting.notes.append(
            f"the engine stopped after the fault at position {awaiting.fault_position}: {said}"
        )
        awaiting.is_stopped = True
    awaiting.check_fault()
    return Awaited(tuple(_once_each(awaiting.notes)), awaiting.provoked_until)


def _once_each(notes: Sequence[str]) -> list[str]:
    """Each note on one line, and once: what an engine says that has met a fault, it mostly says again."""
    times = Counter(" ".join(note.split()) for note in notes)
    return [note + (f" ({count} times)" if count > 1 else "") for note, count in times.items()]


class _Awaiting:
    """A recorded run that is waited for, and what it has said so far."""

    def __init__(self, run: Run, ledger: Ledger, plan: RecordPlan, switch: FaultSwitch | None) -> None:
        self._run, self._ledger, self._plan, self._switch = run, ledger, plan, switch
        self.notes: list[str] = []
        self.provoked_until = 0
        self.is_stopped = False
        self._last_begun = 0

    @property
    def fault_position(self) -> int:
        return self._switch.position if self._switch is not None else 0

    def to_the_end(self) -> None:
        plan = self._plan
        ends_s = time.monotonic() + plan.deadline_s
        provocations = plan.provoke.count("@")
        ended, is_reached = 0, False
        while not is_reached or ended < provocations:
            so_far = f"{ended} of {provocations} provocations had ended"
            try:
                event = self._run.wait_for(
                    ("provoked", "reached", "stopped"), max(0.0, ends_s - time.monotonic())
                )
            except DeadlinePassed as error:
                raise DeadlinePassed(
                    f"the recorded run did {self._ledger.operations} of {plan.operations} operations "
                    f"in {plan.deadline_s:g} s, and {so_far}",
                    where="recorded run",
                    hint="a stalled engine, or a machine under load; see the findings",
                ) from error
            if event["event"] == "stopped":
                full = _full(self._ledger, plan, event)
                self.notes.append(f"{full} after {self._ledger.operations} operations; {so_far}")
                self.is_stopped = True
                return
            if event["event"] == "reached":
                is_reached = True
            else:
                ended += 1
                self._take_provoked(event)

    def _take_provoked(self, event: Event) -> None:
        self.provoked_until = event["end_position"]
        if event["error"]:
            self.notes.append(f"provoking {event['what']} failed: {event['error']}")
        if event["what"] == "flush":
            self._last_begun = max(self._last_begun, event["begin_position"])

    def check_fault(self) -> None:
        """Raises Undecided where the plan's fault was not met, or nothing shows what it leads to."""
        if self._plan.fault is None or self._switch is None:
            return
        if not self.fault_position:
            raise self._plan.fault.never_reached(self._switch.count)
        if not self.is_stopped and self._last_begun < self.fault_position:
            raise Undecided(
                f"UNKNOWN: the fault {self._plan.fault} came at position {self.fault_position}, behind the "
                "last checkpoint of the run, so nothing shows what it leads to",
                where="recorded run",
                hint="choose a smaller N, or more --operations",
            )


def _full(ledger: Ledger, plan: RecordPlan, stopped: Event) -> str:
    """What was full and so stopped the load; raises Undecided where nothing was."""
    if ledger.stop == STOP_WRITE_LOG_FULL:
        return f"the write log of {plan.log_bytes} bytes was full"
    if ledger.stop == STOP_LEDGER_FULL:
        return "the ledger was full"
    raise Undecided(
        f"the load stopped after {ledger.operations} operations: {stopped['why']}",
        where="recorded run",
        hint=stopped["last_error"],
    )
