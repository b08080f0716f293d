"""Where the time of a trial goes, seen from outside: a workload that notes when its engine is at work.

What is in none of the noted intervals is duratune's own: cloning, killing, reading ledger and log,
rebuilding states, judging, writing results.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from engines.process import Killed
from engines.rocksdb.launch import RocksdbLaunch
from workloads.workload import Event, Plan, Recovered
from workloads.ycsb.driver import DriverProcess
from workloads.ycsb.verifier import Verifier
from workloads.ycsb.workload import YcsbWorkload

LOAD, MEASURED, RECORDED, RECOVERY = "load", "warm-up and measuring", "recorded run", "recovery"


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


class WatchedRun(DriverProcess):
    """A driver whose work ends when it is killed."""

    part: str
    begin_s: float
    stopwatch: Stopwatch
    ended = False

    @staticmethod
    def around(run: DriverProcess, part: str, begin_s: float, stopwatch: Stopwatch) -> WatchedRun:
        """Take over a driver that was started already."""
        watched = WatchedRun.__new__(WatchedRun)
        vars(watched).update(vars(run))
        watched.part, watched.begin_s, watched.stopwatch = part, begin_s, stopwatch
        return watched

    def kill(self, at_last: Callable[[], object] = lambda: None) -> Killed:
        self._end()
        return super().kill(at_last)

    def __exit__(self, *exception: object) -> None:
        self._end()
        super().__exit__(*exception)

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self.stopwatch.note(self.part, self.begin_s)


class WatchedVerifier(Verifier):
    """A verifier whose recoveries are noted."""

    stopwatch: Stopwatch

    def verify(self, launch: RocksdbLaunch, deadline_s: float) -> Recovered:
        with self.stopwatch.timing(RECOVERY):
            return super().verify(launch, deadline_s)


@dataclass(frozen=True)
class WatchedWorkload(YcsbWorkload):
    """A workload that notes when its engine is at work."""

    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def load(
        self, launch: RocksdbLaunch, folder: Path, seed: int, *, threads: int = 2, deadline_s: float = 600.0
    ) -> Event:
        with self.stopwatch.timing(LOAD):
            return super().load(launch, folder, seed, threads=threads, deadline_s=deadline_s)

    def start(
        self,
        launch: RocksdbLaunch,
        plan: Plan,
        folder: Path,
        ledger: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> DriverProcess:
        begin_s = time.monotonic()
        run = super().start(launch, plan, folder, ledger, environment)
        return WatchedRun.around(run, RECORDED if environment else MEASURED, begin_s, self.stopwatch)

    def verifier(self, folder: Path) -> Verifier:
        verifier = WatchedVerifier(self.properties, folder, self.watcher)
        verifier.stopwatch = self.stopwatch
        return verifier
