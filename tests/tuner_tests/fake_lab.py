"""A lab whose runs take no time: what a run does is a function of its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from crashlab.controls import Control
from crashlab.judging.oracle import Cut, History
from crashlab.judging.verdict import Verdict
from crashlab.kill import KilledRun, MeasurePlan
from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.record import RecordPlan
from crashlab.recording.recorded import Recording
from crashlab.subject import Subject
from crashlab.validate import Lab
from engines.postgresql.launch import PostgresqlLaunch
from engines.rocksdb.launch import RocksdbLaunch
from engines.scratch import Scratch
from knobs.contract import Contract
from knobs.errors import DuratuneError, Undecided
from knobs.rocksdb.options_file import from_default
from tests.tuner_tests.requests import ycsb_of
from tuner.request import Request
from workloads.ledger import Ledger
from workloads.workload import Event
from workloads.ycsb.workload import YcsbWorkload

Rate = Callable[[Mapping[str, str], int, bool], float]


LOADED = "loaded"


class Unloaded(YcsbWorkload):
    """A workload that loads nothing, and leaves a note of it."""

    def load(
        self,
        launch: RocksdbLaunch | PostgresqlLaunch,
        folder: Path,
        seed: int,
        threads: int = 2,
        deadline_s: float = 1.0,
    ) -> Event:
        (folder / LOADED).write_text(f"{launch.database} {seed} {threads} {deadline_s}")
        return {"event": "loaded"}


@dataclass(frozen=True)
class FakeLab(Lab):
    """``rate`` says how many operations per second settings do in the n-th run, and whether that run is to
    be recovered, as a trial's is; or it raises. ``runs`` are the settings of every run so far, ``seeds``
    their seeds. Recording raises ``unrecorded``."""

    rate: Rate = lambda _settings, _run, _recover: 1_000.0
    wrong: tuple[str, ...] = ()
    unrecorded: DuratuneError = field(default_factory=lambda: Undecided("nothing is recorded here"))
    runs: list[Mapping[str, str]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def controls(self, subject: Subject, models: Sequence[str], seed: int) -> list[Control]:
        assert subject.engine.controls and seed >= 0
        return [
            Control(f"{name}.lossy", Verdict.BROKEN, Verdict.HELD if name in self.wrong else Verdict.BROKEN)
            for name in ("kill", *models)
        ]

    def measure(
        self,
        subject: Subject,
        plan: MeasurePlan,
        seed: int,
        *,
        recover: bool = True,
        base: Path | None = None,
    ) -> KilledRun:
        assert plan.measure_s > 0 and recover is (base is None), "a trial loads its own data"
        assert base is None or (base.parent / LOADED).exists(), "what is cloned has been loaded"
        self.runs.append(dict(subject.settings))
        self.seeds.append(seed)
        rate = self.rate(subject.settings, len(self.runs) - 1, recover)
        measured = {"throughput_per_s": rate, "per_operation": {}, "seed": seed}
        with Ledger.create(self.data / f"ledger-{len(self.runs)}", 1, 1) as ledger:
            history = History(ledger.entries(), 0)
        (self.data / f"ledger-{len(self.runs)}").unlink()
        effective = from_default().apply(subject.settings, "default").render()
        return KilledRun(measured, effective, history, Cut(1, 1), None)

    def record(
        self, subject: Subject, contract: Contract, plan: RecordPlan, folder: Path, seed: int
    ) -> Recording:
        assert subject and contract and plan and folder and seed
        raise self.unrecorded


@contextmanager
def fake_lab(folder: Path, rate: Rate, wrong: tuple[str, ...] = ()) -> Iterator[FakeLab]:
    """A fake lab with real scratch paths below the folder."""
    data = folder / "data"
    data.mkdir(exist_ok=True)
    with Scratch() as scratch:
        yield FakeLab(PreloadRecorder(), scratch, data, rate=rate, wrong=wrong)


def unloaded(request: Request) -> Request:
    """The request on a workload that loads nothing."""
    return replace(request, workload=Unloaded(request.workload.name, ycsb_of(request).properties))
