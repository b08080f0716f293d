"""Recording a recovery: what the engine does to one crash state until it is read, as a write log of its own.

The state is rebuilt on a disk and recovered there by the real engine, with the candidate's settings and its
syncs, under the recorder of the run and with a counter of positions of its own. What is kept is the log, in
the run's folder under the state's id; its base is the state, which log, position, model and seed of the run
make again.

The log must pass what the run's own must, but for one check: the engines' counts of syncs do not cover a
recovery. RocksDB's ticker counts rounds of write groups (db_impl_write.cc), PostgreSQL resets its statistics
before it recovers (manual, 28.2), and most of what is synced then is no log. So a recorder that missed syncs
of a recovery alone would not be found; one that misses them in the run is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from crashlab.copying import clone_folder
from crashlab.recording import belief
from crashlab.recording.belief import Witness
from crashlab.recording.places import DATABASE_FOLDER, inodes_below, recording_places
from crashlab.recording.record import log_room_bytes
from crashlab.recording.recorded import Facts, Logged, Recording
from crashlab.recording.recorder import Recorder
from crashlab.recording.write_log import Operation, WriteLog
from crashlab.states.builder import Builder
from crashlab.states.plan import PlannedState
from crashlab.subject import Subject
from engines.scratch import Scratch
from knobs.errors import InvalidInput
from workloads.ledger import Ledger
from workloads.workload import Recovered

AGAIN = "again"
LOG_BYTES, LOG_READY_BYTES = 512 << 20, 8 << 20
UNFINISHED = ("its checks were not finished",)
DEADLINE_S = 120.0
"""Of one recovery, whose syncs go to a disk."""


def folder_of(recording: Recording, first: PlannedState) -> Path:
    """Where the log of this state's recovery is kept."""
    return recording.folder / AGAIN / first.id


def recovered_positions(recording: Recording, first: PlannedState) -> tuple[int, int]:
    """The position where the recovery from this state began, and the one past its last event; zeros where
    its log is not believed.

    Raises InvalidInput where none was recorded.
    """
    folder = folder_of(recording, first)
    if not folder.is_dir():
        raise InvalidInput(
            f"no recovery from {first.id} was recorded in this run",
            where=str(folder.parent),
            hint="its crash.json lists the states that were judged",
        )
    facts = Facts.load(folder)
    if facts.faults:
        return 0, 0
    operations = WriteLog.read(folder / "write.log").operations
    return facts.first_position, 1 + max(max(each.begin, each.end or 0) for each in operations)


class RecordedRecovery(Logged):
    """One recorded recovery, over the state that it began with."""

    def __init__(
        self,
        recording: Recording,
        first: PlannedState,
        base: Path,
        leaves_out: Callable[[Operation], bool] = lambda _: False,
    ) -> None:
        """``base`` holds the state's database, rebuilt. Raises InvalidInput where this recovery was not
        recorded."""
        super().__init__(folder_of(recording, first), recording.reader, leaves_out)
        self._recording = recording
        self._first = first
        self._base = base

    @property
    def base(self) -> Path:
        """The rebuilt state's database."""
        return self._base

    def without(self, leaves_out: Callable[[Operation], bool]) -> RecordedRecovery:
        """The same recovery as if these operations had never been done."""
        return RecordedRecovery(self._recording, self._first, self._base, leaves_out)


@contextmanager
def recorded_recovery(
    recording: Recording,
    subject: Subject,
    first: PlannedState,
    scratch: Scratch,
    recorder: Recorder,
    parent: Path,
) -> Iterator[RecordedRecovery]:
    """Rebuild the state below ``parent``, record its recovery, and keep the log with the recording; the
    rebuilt state, which is the log's base, is there until the end of the context.

    Where that fails the facts say why, and the log is not believed. Raises FileExistsError where it was
    recorded before.
    """
    folder = folder_of(recording, first)
    folder.mkdir(parents=True)
    facts = replace(recording.facts, operations=0, log_bytes=0, provoked_until=0, faults=(), notes=())
    # Until the checks are through, whoever opens the folder must not believe it.
    replace(facts, faults=UNFINISHED).save(folder)
    work = scratch.folder(parent, "again")
    try:
        if subject.engine.runs_as is not None:
            work.chmod(0o711)
        base = work / "state" / DATABASE_FOLDER
        try:
            Builder(recording, work / "pool").build(first, base.parent)
            _record_into(recording, subject, first, base, facts, scratch, recorder)
        except Exception as error:  # what cannot be recorded is UNKNOWN, with its words kept
            replace(facts, faults=(f"{type(error).__name__}: {error}",)).save(folder)
        yield RecordedRecovery(recording, first, base)
    finally:
        scratch.remove(work)


def _record_into(
    recording: Recording,
    subject: Subject,
    first: PlannedState,
    base: Path,
    facts: Facts,
    scratch: Scratch,
    recorder: Recorder,
) -> None:
    """Recover a copy of the base under the recorder; the log and its facts go to the kept folder."""
    folder, work, reader = folder_of(recording, first), base.parent.parent, recording.reader
    with recording_places(subject.engine, scratch, work) as places:
        root = places.make_root()
        clone_folder(base, root / DATABASE_FOLDER, reader)
        files, folders = inodes_below(root, reader)
        WriteLog.create(places.log, log_room_bytes(LOG_BYTES), ready_bytes=LOG_READY_BYTES)
        with Ledger.create(places.ledger, 1, 1) as ledger:
            canary = recorder.run_canary(root, places.log, places.ledger)
            begins_at = ledger.position
            launch = subject.launch(work).at(root / DATABASE_FOLDER)
            with subject.workload.verifier(work) as verifier:
                recorded = recorder.environment(root, places.log, places.ledger)
                environment = places.opened(subject.engine, recorded)
                reopening = verifier.reopen(launch, DEADLINE_S, environment)
        facts = replace(
            facts,
            base_inodes=files,
            folder_inodes=folders,
            first_position=begins_at,
            canary_position=begins_at,
            kill_ns=time.monotonic_ns(),
            log_bytes=WriteLog.compact(places.log, folder / "write.log"),
        )
        replace(facts, faults=UNFINISHED).save(folder)
        log = RecordedRecovery(recording, first, base)
        witness = Witness(root, canary, reopening.pids, None, counts=False)
        found = [*_unlike(log, reopening.recovered), *belief.faults(log, recorder, witness)]
        replace(facts, faults=tuple(found)).save(folder)


def _unlike(log: RecordedRecovery, recovered: Recovered) -> list[str]:
    """Why this recovery was not what an unrecorded one is."""
    if log.log.full:
        return [f"the log of {log.facts.log_bytes} bytes was full"]
    return [f"under the recorder {recovered.stage} failed: {recovered.error}"] if recovered.stage else []
