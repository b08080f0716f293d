"""Where the time of a trial goes, seen from outside: a workload that notes when its engine is at work.

What is in none of the noted intervals is duratune's own: cloning, killing, reading ledger and log,
rebuilding states, judging, writing results.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Self

from crashlab.judging.verdict import Verdict
from crashlab.validate import Lab
from engines.process import Killed, Watcher
from tests.bench.figures import Figure
from tests.crashlab_tests.runs import RIGHT
from tuner.request import Request
from tuner.search.trial import Reference, TrialPlan, TrialResult, TrialRunner
from workloads.workload import Event, Plan, Recovered, Reopening, Run, Verifier, Workload

LOAD, MEASURED, RECORDED, RECOVERY = "load", "warm-up and measuring", "recorded run", "recovery"
_UNREACHED_RATIO = 1e9
"""Of a best trial: what is timed gets the few states that every trial gets."""


class Stopwatch:
    """Intervals by the part of a trial that they belong to; several threads may note."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._intervals: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def note(self, part: str, begin_s: float) -> None:
        """An interval of this part has ended now."""
        with self._lock:
            self._intervals[part].append((begin_s, time.monotonic()))

    @contextmanager
    def timing(self, part: str) -> Iterator[None]:
        """The block is an interval of this part."""
        begin_s = time.monotonic()
        try:
            yield
        finally:
            self.note(part, begin_s)

    def seconds(self, *parts: str) -> float:
        """How long at least one of these parts (none named: any) was going on."""
        spans = sorted(span for part in parts or self._intervals for span in self._intervals[part])
        total, until = 0.0, float("-inf")
        for begin, end in spans:
            total += max(0.0, end - max(begin, until))
            until = max(until, end)
        return total


@dataclass
class WatchedRun:
    """A run whose work ends when it is killed."""

    run: Run
    part: str
    begin_s: float
    stopwatch: Stopwatch
    is_ended: bool = False

    @property
    def pid(self) -> int:
        return self.run.pid

    @property
    def finished(self) -> bool:
        return self.run.finished

    def wait_for(self, event: str | tuple[str, ...], deadline_s: float) -> Event:
        return self.run.wait_for(event, deadline_s)

    def kill(self, at_last: Callable[[], object] = lambda: None) -> Killed:
        self._end()
        return self.run.kill(at_last)

    def figures(self) -> Event:
        return self.run.figures()

    def faults(self) -> list[str]:
        return self.run.faults()

    def __enter__(self) -> Self:
        self.run.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()
        self.run.__exit__(*exception)

    def _end(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            self.stopwatch.note(self.part, self.begin_s)


@dataclass
class WatchedVerifier:
    """A verifier whose recoveries are noted."""

    verifier: Verifier[Any]
    stopwatch: Stopwatch

    def verify(self, launch: Any, deadline_s: float, *, is_touched: bool = True) -> Recovered:
        with self.stopwatch.timing(RECOVERY):
            return self.verifier.verify(launch, deadline_s, is_touched=is_touched)

    def reopen(self, launch: Any, deadline_s: float, environment: Mapping[str, str]) -> Reopening:
        with self.stopwatch.timing(RECOVERY):
            return self.verifier.reopen(launch, deadline_s, environment)

    def __enter__(self) -> Self:
        self.verifier.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.verifier.__exit__(*exception)


@dataclass(frozen=True)
class WatchedWorkload:
    """A workload of any engine that notes when its engine is at work."""

    inner: Workload[Any]
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def watcher(self) -> Watcher | None:
        return self.inner.watcher

    @property
    def parameters(self) -> Mapping[str, str]:
        return self.inner.parameters

    @property
    def initial_records(self) -> int:
        return self.inner.initial_records

    @property
    def register_per_write(self) -> bool:
        return self.inner.register_per_write

    def at_most(self, records: int) -> Self:
        return replace(self, inner=self.inner.at_most(records))

    def load(self, launch: Any, folder: Path, seed: int, *, deadline_s: float = 600.0) -> Event:
        with self.stopwatch.timing(LOAD):
            return self.inner.load(launch, folder, seed, deadline_s=deadline_s)

    def start(
        self,
        launch: Any,
        plan: Plan,
        folder: Path,
        ledger: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> WatchedRun:
        begin_s = time.monotonic()
        run = self.inner.start(launch, plan, folder, ledger, environment)
        # A measured run has a length, a recorded one a number of operations.
        return WatchedRun(run, MEASURED if plan.measure_s else RECORDED, begin_s, self.stopwatch)

    def verify(self, launch: Any, folder: Path, deadline_s: float) -> Recovered:
        with self.stopwatch.timing(RECOVERY):
            return self.inner.verify(launch, folder, deadline_s)

    def verifier(self, folder: Path) -> WatchedVerifier:
        return WatchedVerifier(self.inner.verifier(folder), self.stopwatch)


def time_trials(
    lab: Lab, request: Request, plan: TrialPlan, trials: int, own_s_max: float, folder: Path
) -> Sequence[Figure]:
    """Run so many trials of the request's settings: seconds of their parts, and the goal for the rest."""
    reference = Reference(lab, request.subject(), plan.measure, request.seed)
    parts: dict[str, list[float]] = {part: [] for part in (LOAD, MEASURED, RECORDED, RECOVERY)}
    totals, own = [], []
    for number in range(1, trials + 1):
        stopwatch = Stopwatch()
        result, total_s = _timed(lab, request, plan, reference, stopwatch, folder, number)
        assert result.verdict != Verdict.UNKNOWN.value, result.why
        for part, found in parts.items():
            found.append(stopwatch.seconds(part))
        totals.append(total_s)
        own.append(total_s - stopwatch.seconds())
    figures = [Figure(part, found, "s") for part, found in parts.items()]
    figures.append(Figure("duratune's own", own, "s", f"<= {own_s_max:g}", median(own) <= own_s_max))
    figures.append(Figure("the whole trial", totals, "s"))
    return figures


def _timed(
    lab: Lab,
    request: Request,
    plan: TrialPlan,
    reference: Reference,
    stopwatch: Stopwatch,
    folder: Path,
    number: int,
) -> tuple[TrialResult, float]:
    watched = WatchedWorkload(request.workload, stopwatch=stopwatch)
    reference.subject = replace(reference.subject, workload=watched)
    runner = TrialRunner(lab, replace(request, workload=watched), plan, reference, RIGHT)
    room = folder / f"trial-{number}"
    room.mkdir()
    begin_s = time.monotonic()
    result = runner.run(number, room, dict(request.settings), "bench", _UNREACHED_RATIO)
    result.save(room)
    return result, time.monotonic() - begin_s
