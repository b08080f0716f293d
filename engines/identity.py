"""Which process is meant: a pid is trusted only together with its start time and the boot it belongs to.

Pids are handed out again; the start time (clock ticks since boot, field 22 of /proc/PID/stat in
proc(5)) tells the new owner from the old one, and the boot id tells two boots apart.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessIdentity:
    """One process of this boot: its pid and when it started, in clock ticks since the boot."""

    pid: int
    start_ticks: int

    def alive(self) -> bool:
        """Whether that very process still runs. A zombie has ended: it only waits to be reaped."""
        stat = _stat(self.pid)
        return stat is not None and stat.start_ticks == self.start_ticks and stat.state not in ("Z", "X")

    def __str__(self) -> str:
        return f"{self.pid}@{self.start_ticks}"

    @staticmethod
    def parse(text: str) -> ProcessIdentity:
        """Read what ``str`` wrote; raises ValueError for anything else."""
        pid, _, ticks = text.partition("@")
        return ProcessIdentity(int(pid), int(ticks))


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of the process that has this pid now; None if there is none."""
    stat = _stat(pid)
    return ProcessIdentity(pid, stat.start_ticks) if stat else None


def own_identity() -> ProcessIdentity:
    """The identity of the calling process."""
    found = identify(os.getpid())
    assert found is not None, "a running process has its entry in /proc"
    return found


@functools.cache
def boot_id() -> str:
    """This boot's random id, 32 hexadecimal digits (random(4), /proc/sys/kernel/random/boot_id)."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")


@dataclass(frozen=True)
class _Stat:
    state: str
    start_ticks: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program's name stands in parentheses and may itself hold spaces and parentheses.
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(state=fields[0], start_ticks=int(fields[19]))
