"""The real process crash: the measured run is killed by SIGKILL while its load goes on.

What the kill leaves is kept untouched; recovery runs on a clone. Acknowledgements after the moment
just before the first signal are in doubt. This verdict needs no write log and stands by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crashlab.copying import clone_folder
from crashlab.judging.judge import (
    RECOVERY_DEADLINE_S,
    judge_recovered,
    lack_of_room,
    recover_patiently,
    with_reason,
)
from crashlab.judging.oracle import Cut, History
from crashlab.judging.verdict import Judgement, Verdict
from crashlab.preload.access import opened_to
from crashlab.preload.processes import ProcessList, unreported
from crashlab.recording.recorder import Recorder
from crashlab.subject import Subject
from engines.engine import Engine, LogReader, LongestReplay, Replay
from engines.process import Killed
from engines.scratch import SHARED_MEMORY_FOLDER, Scratch, remove_tree
from knobs.contract import Contract
from knobs.errors import MachineLacks
from workloads.ledger import Ledger
from workloads.workload import EFFECTIVE_NAME, Plan, Recovered, Redo

OPEN_DEADLINE_S = 60.0
MEASURE_SLACK_S = 60.0
LOAD_DEADLINE_S, LOAD_RECORDS_PER_S_MIN = 60.0, 500
"""A slower load stands still: some settings deadlock RocksDB 7.8 (unordered_write with manual_wal_flush)."""
LOG_BYTES_FOR_A_RATE = 8 << 20
WRITES_PER_SECOND_MAX = 100_000
"""Room in each client's part of the ledger; untouched pages of it take no memory."""


@dataclass(frozen=True)
class MeasurePlan:
    """One measured run: seconds of warm-up and of measuring, and a rate (0: as fast as it goes)."""

    warmup_s: float = 1.0
    measure_s: float = 3.0
    target_per_s: float = 0.0


@dataclass(frozen=True)
class KilledRun:
    """A run that was measured and killed, and what recovery made of it.

    ``measured`` is the driver's own account; ``effective`` the settings in force, in the engine's own form.
    ``replay`` is what recovery had to replay, ``longest`` what the settings allow that to become.
    ``faults`` say why nothing may be concluded from its ledger.
    """

    measured: Mapping[str, Any]
    effective: str
    history: History
    cut: Cut
    recovered: Recovered | None
    replay: Replay | None = None
    longest: LongestReplay | None = None
    faults: tuple[str, ...] = ()

    @property
    def recovery_s_predicted(self) -> float | None:
        """Recovery at the distance that the settings allow, at this run's redo rate.

        A short run never gets that far, so what it shows is less than what may come. None where the
        run left too little log to tell a rate, or the settings bound nothing.
        """
        if self.recovered is None or self.replay is None or self.longest is None:
            return None
        # What a start takes beside the replay does not grow with the log.
        return self.recovered.recovery_s + self.longest.redo_s - self.replay.redo_s

    @property
    def throughput(self) -> float:
        """Operations per second in the measured phase."""
        return float(self.measured["throughput_per_s"])

    def judge(self, contract: Contract) -> Judgement:
        """The kill's judgement under a contract."""
        if self.recovered is None:
            return Judgement.unknown("the killed run was not recovered")
        if self.faults:
            return Judgement.unknown("; ".join(self.faults))
        judgement = judge_recovered(self.history, self.recovered, self.cut, contract, "process-crash")
        if judgement.verdict is Verdict.HELD and judgement.acks == 0:
            return Judgement.unknown("the killed run acknowledged no write, so there is nothing to lose")
        predicted = self.recovery_s_predicted
        if contract.recovery_s is None or predicted is None or predicted <= contract.recovery_s:
            return judgement
        assert self.longest is not None, "there is no prediction without it"
        return with_reason(
            judgement,
            "slow-recovery",
            f"the settings allow {self.longest.log_bytes} bytes of log, whose recovery would take "
            f"{predicted:.1f} s at this run's rate; the limit is {contract.recovery_s:g} s",
        )


def measure_and_kill(
    subject: Subject,
    plan: MeasurePlan,
    recorder: Recorder,
    scratch: Scratch,
    parent: Path,
    seed: int,
    *,
    recover: bool = True,
    base: Path | None = None,
) -> KilledRun:
    """Load or clone, warm up, measure, kill while the load runs, and recover a clone.

    ``parent`` takes the data folder; ``base`` is a loaded database to clone instead of loading; ``recorder``
    stamps the acknowledgements where the clients do not. With
    ``recover`` False the run is only measured. Raises
    InvalidInput where the engine rejects the settings, MachineLacks on a full disk, Undecided where
    the run does not get as far as being measured.
    """
    folder = scratch.folder(parent, "measured")
    shared = scratch.folder(SHARED_MEMORY_FOLDER, "ledger")
    try:
        return _run(subject, plan, recorder, folder, shared, seed, recover, base)
    finally:
        scratch.remove(folder)
        scratch.remove(shared)


def _run(
    subject: Subject,
    plan: MeasurePlan,
    recorder: Recorder,
    folder: Path,
    shared: Path,
    seed: int,
    recover: bool,
    base: Path | None,
) -> KilledRun:
    launch = subject.launch(folder)
    if base is None:
        records = subject.workload.initial_records
        deadline_s = LOAD_DEADLINE_S + records / LOAD_RECORDS_PER_S_MIN
        subject.workload.load(launch, folder, seed, deadline_s=deadline_s)
    else:
        clone_folder(base, launch.database, subject.engine.log_reader)
    seconds = plan.warmup_s + plan.measure_s + MEASURE_SLACK_S
    capacity = int(WRITES_PER_SECOND_MAX * (plan.warmup_s + plan.measure_s + 2.0))
    run_plan = Plan(
        threads=subject.threads,
        seed=seed,
        warmup_s=plan.warmup_s,
        measure_s=plan.measure_s,
        target_per_s=plan.target_per_s,
        ticker_ms=0,  # the kill needs no write log, so nobody asks for the engine's count of syncs
    )
    ledger_path = shared / "ledger"
    with Ledger.create(ledger_path, subject.threads, capacity) as ledger:
        stamping = _Stamping(subject.engine, recorder, shared, ledger_path)
        with subject.workload.start(launch, run_plan, folder, ledger_path, stamping.environment) as run:
            run.wait_for("opened", OPEN_DEADLINE_S)
            run.wait_for("measured", seconds)
            positions: list[int] = []
            # As late as can be: what is acknowledged between the look and the signal does not count.
            killed = run.kill(lambda: positions.append(ledger.position))
            measured, faults = run.figures(), [*run.faults(), *stamping.faults(killed)]
        effective = (folder / EFFECTIVE_NAME).read_text(encoding="utf-8")
        workload = subject.workload
        history = History(ledger.entries(), workload.initial_records, workload.register_per_write)
    recovered, reader = None, subject.engine.log_reader
    if recover:

        def attempt() -> Recovered:
            clone = folder / "clone"
            remove_tree(clone)
            clone_folder(launch.database, clone, reader)
            return subject.workload.verify(launch.at(clone), folder, RECOVERY_DEADLINE_S)

        recovered = recover_patiently(attempt)
        lack = lack_of_room(recovered, folder)
        if lack:
            raise MachineLacks(lack, where=str(folder), hint="free space, or name another folder with --data")
    began_ns = int(history.begin_ns.min(initial=killed.at_ns))
    replay = _replay(launch.database, recovered, reader, (killed.at_ns - began_ns) / 1e9)
    return KilledRun(
        measured,
        effective,
        history,
        Cut(positions[-1], killed.at_ns),
        recovered,
        replay,
        _longest(subject.engine, effective, replay),
        tuple(faults),
    )


class _Stamping:
    """The recorder in a run without a write log, where it is the server that stamps acknowledgements."""

    def __init__(self, engine: Engine, recorder: Recorder, shared: Path, ledger: Path) -> None:
        self.environment: Mapping[str, str] | None = None
        self._processes = shared / "processes"
        if engine.stamps_in_server:
            ProcessList.create(self._processes)
            environment = recorder.acks_environment(ledger, self._processes)
            files = (ledger, self._processes)
            self.environment = opened_to(engine.runs_as, shared, files, environment)

    def faults(self, killed: Killed) -> list[str]:
        """Whether a process of the engine was there in which the recorder was not."""
        if self.environment is None:
            return []
        missing = unreported((process.pid for process in killed.processes), ProcessList.read(self._processes))
        return [f"the recorder did not report in from process {pid}" for pid in missing]


def _replay(
    database: Path, recovered: Recovered | None, reader: LogReader, written_s: float
) -> Replay | None:
    """What recovery replayed: as the engine says, else the logs that were left, for as long as it took."""
    if recovered is None:
        return None
    redo = recovered.redo
    if redo is None:
        paths = [path for path in database.rglob("*") if path.is_file()]
        sizes = [
            path.stat().st_size
            for path in paths
            if reader.role(path.relative_to(database).as_posix()) == "wal"
        ]
        redo = Redo(sum(sizes), recovered.recovery_s)
    return Replay(redo.log_bytes, redo.image_bytes, redo.seconds, written_s)


def _longest(engine: Engine, effective: str, replay: Replay | None) -> LongestReplay | None:
    """What the settings allow; None where the run left too little log to tell a rate."""
    if replay is None or replay.log_bytes < LOG_BYTES_FOR_A_RATE or replay.written_s <= 0:
        return None
    return engine.longest_replay(effective, replay)
