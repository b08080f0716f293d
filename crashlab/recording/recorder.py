"""What observes the engine's writes and syncs during a run.

A recorder is believed only after its canary: a program that does one of each operation under it and
lists them. What the log lacks of that list, the recorder does not see on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from crashlab.recording.fault import Fault
from crashlab.recording.stage import Stage, Staging
from crashlab.recording.write_log import WriteLog


@dataclass(frozen=True)
class CanaryFile:
    """A file of the canary, and what of its content must and must not be in a `synced` state.

    ``path`` is relative to the root. ``survives`` is the whole content of the synced state;
    ``lost`` was written after it and never synced ("" where nothing was).
    """

    path: str
    survives: bytes
    lost: bytes


@dataclass(frozen=True)
class CanaryReport:
    """What the canary did, in order, as its own process saw it; an operation has the log's words."""

    pid: int
    operations: tuple[Mapping[str, Any], ...]
    files: tuple[CanaryFile, ...]


class Recorder(Protocol):
    """One way to get a write log of a run."""

    @property
    def name(self) -> str:
        """The word by which the user chooses it."""

    @property
    def plain(self) -> Recorder:
        """The same without what the user has asked of it, for controls."""

    def stage(self, staging: Staging) -> AbstractContextManager[Stage]:
        """Where a run is recorded; it is gone afterwards. Raises MachineLacks and Undecided."""

    def environment(self, root: Path, log: Path, ledger: Path) -> dict[str, str]:
        """The variables that a process needs to have its calls below ``root`` recorded in ``log``.

        Raises MachineLacks where the recorder is not there.
        """

    def acks_environment(self, ledger: Path, processes: Path) -> dict[str, str]:
        """The variables for a run without a write log, whose acknowledgements the recorder stamps.

        Processes report in ``processes``. Raises as `environment` does.
        """

    def fault_environment(self, fault: Fault, files: str) -> dict[str, str]:
        """What is added to `environment` so that one call fails, once its `FaultSwitch` is armed.

        ``files`` is an extended regular expression of the paths below the root on which calls are counted, ""
        for every path.
        """

    def run_canary(self, root: Path, log: Path, ledger: Path) -> CanaryReport:
        """Do one of each operation in ``root / "canary"``, recorded, before the engine starts.

        Raises Undecided where the canary cannot do that, and MachineLacks where it is not there.
        """

    def check_canary(self, log: WriteLog, report: CanaryReport) -> list[str]:
        """What the log lacks of the report, one line each; empty where the recorder can be believed."""
