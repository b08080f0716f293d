"""What a workload is to the rooms that use it: something that loads, runs under a ledger, and is read back.

A workload is one folder plus one line in ``registry.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from engines.process import Killed, Watcher
from knobs.errors import InvalidInput

ROW = np.dtype(
    [("key", "<u8"), ("sequence", "<u8"), ("client", "<u4"), ("flags", "<u4"), ("checksum", "<u8")]
)
"""One record of a recovered database; docs/formats.md, "Recovered content"."""
HEADER_READABLE, CHECKSUM_RIGHT, KEY_MATCHES = 1, 2, 4

EFFECTIVE_NAME = "effective.settings"
"""The settings in force, in the folder of a run, in the engine's own form: once it has said ``warming``."""

Event = dict[str, Any]
"""One line of a driver's protocol; its kind is under the key ``event``."""

LaunchT = TypeVar("LaunchT", contravariant=True)


@dataclass(frozen=True)
class Plan:
    """How one run goes.

    ``operations`` 0 bounds the run in time only; ``target_per_s`` 0 is as fast as it goes; ``provoke`` is
    ``flush@0.25,compact@0.5``: what the engine is made to do at which fraction of ``operations``. A run
    goes on until it is killed, unless ``stop_after``: then it ends cleanly. ``ticker_ms`` 0 leaves the sync
    counter unsampled.
    """

    threads: int
    seed: int
    warmup_s: float = 0.0
    measure_s: float = 0.0
    operations: int = 0
    target_per_s: float = 0.0
    provoke: str = ""
    stop_after: bool = False
    ticker_ms: int = 20

    def __post_init__(self) -> None:
        faults = [
            f"{name}={value} is negative"
            for name, value in vars(self).items()
            if isinstance(value, (int, float)) and value < 0
        ]
        if self.threads < 1:
            faults.append(f"threads={self.threads} is below 1")
        if faults:
            raise InvalidInput("; ".join(faults), where="plan of a run")


@dataclass(frozen=True)
class Redo:
    """How much log a recovery replayed, and how long that took; the rest of a start is no replay.

    ``image_bytes`` of the log are images of whole pages.
    """

    log_bytes: int
    seconds: float
    image_bytes: int = 0


@dataclass(frozen=True, eq=False)
class Recovered:
    """What the engine made of a crash state.

    ``recovered`` tells whether it came back with the candidate's settings; ``stage`` is where something
    failed (``recover``, ``scan``, ``neutral-open``, ``neutral-scan``, ``checksum``, ...) with the engine's
    words in ``error``, both "" if nothing did. ``candidate`` and ``neutral`` are the rows (dtype ROW) that
    the two starts read, in key order.
    """

    recovered: bool
    stage: str
    error: str
    recovery_s: float
    candidate: NDArray[np.void]
    neutral: NDArray[np.void]
    is_late: bool = False
    """Whether it was given up at the deadline: nothing but the time is known then."""
    checks: tuple[str, ...] = ()
    """What it was checked for, in words."""
    notes: tuple[str, ...] = ()
    """What explains a loss, if there is one."""
    base_rows_lost: int = 0
    """How many rows of the loaded base, beside the registers, are not there."""
    transactions: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    """For each row of ``candidate`` the engine's own number of the transaction that wrote it; empty where
    the engine's log says whose each write is."""
    redo: Redo | None = None
    """What recovery replayed, where the engine tells it."""


def not_recovered(stage: str, error: str) -> Recovered:
    """What did not come back: the stage where it failed, and why."""
    nothing = np.empty(0, dtype=ROW)
    return Recovered(False, stage, error, 0.0, nothing, nothing)


@dataclass(frozen=True)
class Reopening:
    """One recovery with the candidate's settings alone: what was read then (nothing with neutral ones), and
    the processes of the engine that were known when it ended."""

    recovered: Recovered
    pids: tuple[int, ...]


class Run(Protocol):
    """A load that is running."""

    @property
    def pid(self) -> int:
        """The process that a SIGKILL is for."""
        ...

    @property
    def finished(self) -> bool:
        """Whether that process has ended."""

    def wait_for(self, event: str | tuple[str, ...], deadline_s: float) -> Event:
        """The next event of this name, or of one of these names.

        Raises Undecided if the process ends or the deadline passes before it, and the driver's own error if
        it reports one.
        """
        ...

    def kill(self, at_last: Callable[[], object] = lambda: None) -> Killed:
        """SIGKILL its processes and reap them; again returns what the first call did.

        ``at_last`` is called just before the first signal.
        """

    def figures(self) -> Event:
        """What the measured phase came to; asked after the kill."""

    def faults(self) -> list[str]:
        """Why nothing may be concluded from the run's ledger; asked after the kill."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None:
        """Kills it too."""


class Verifier(Protocol[LaunchT]):
    """Recovers many instances one after another. Used in a ``with`` statement."""

    def verify(self, launch: LaunchT, deadline_s: float, *, is_touched: bool = True) -> Recovered:
        """Recover the instance that ``launch`` names, which is changed by it, and read it back.

        One that takes longer than the deadline is not recovered, which is no error. Where its data files are
        the base's own (not ``is_touched``) what is slow and looks at those alone may be left out.
        """

    def reopen(self, launch: LaunchT, deadline_s: float, environment: Mapping[str, str]) -> Reopening:
        """Recover it as the application would, syncs and all, read it once, and end it.

        ``environment`` is added to that of the engine's processes.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class Workload(Protocol[LaunchT]):
    """A named load. ``launch`` says which instance, in the words of its engine."""

    @property
    def name(self) -> str:
        """The word by which the user chooses it."""

    @property
    def watcher(self) -> Watcher | None:
        """Who ends its processes should duratune be killed."""

    @property
    def parameters(self) -> Mapping[str, str]:
        """Everything that makes this load what it is, beside its name."""

    @property
    def initial_records(self) -> int:
        """How many registers have a version before the run."""

    @property
    def register_per_write(self) -> bool:
        """Whether each write is a register of its own, which the ledger does not name."""

    def at_most(self, records: int) -> Self:
        """The same on a data set of at most so many records."""

    def load(self, launch: LaunchT, folder: Path, seed: int, *, deadline_s: float = ...) -> Event:
        """Create the instance's data; ``folder`` takes the driver's own files.

        Raises if the data is there already.
        """

    def start(
        self,
        launch: LaunchT,
        plan: Plan,
        folder: Path,
        ledger: Path | None = ...,
        environment: Mapping[str, str] | None = ...,
    ) -> Run:
        """Start the load; without a ledger nothing is recorded.

        ``environment`` is added to the driver's own.
        """

    def verify(self, launch: LaunchT, folder: Path, deadline_s: float) -> Recovered:
        """What a verifier does, for one instance."""

    def verifier(self, folder: Path) -> Verifier[LaunchT]:
        """For many instances; ``folder`` takes its files."""
