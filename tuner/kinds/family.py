"""What the commands must know of one family of workloads: how its options make one, and how it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from crashlab.judging.verdict import LostWrite
from engines.process import Watcher
from knobs.finding import Finding
from tuner.options import Asked
from workloads.workload import Workload


@dataclass(frozen=True)
class Size:
    """How much a command loads by itself: YCSB's records, pgbench's scale."""

    records: int
    scale: int = 1


@dataclass(frozen=True)
class Made:
    """A workload as the options ask for it. ``clients`` is what its own file says, None where it says
    nothing; ``target_per_s`` the pace of a measured run that is no part of the workload; ``idle`` why its
    runs decide nothing of durability, "" where they do; ``options`` what asks for it again and is not told by
    the workload itself."""

    workload: Workload[Any]
    clients: int | None = None
    target_per_s: float = 0.0
    findings: tuple[Finding, ...] = ()
    idle: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Described:
    """A workload in words: its size for people; the bytes that it loads, that sum told, and what makes it
    smaller; what was stated of it, by which a study knows it again; the options that make it again."""

    in_words: str
    data_bytes: int
    arithmetic: str
    hint: str
    stated: Mapping[str, str]
    options: tuple[str, ...] = ()


class Family(Protocol):
    """A family of workloads, by the word before the colon."""

    def make(self, asked: Asked, name: str, size: Size) -> Made:
        """The workload that is asked for. Raises InvalidInput with every fault."""

    def again(
        self, name: str, parameters: Mapping[str, str], where: str, watcher: Watcher | None
    ) -> Workload[Any]:
        """The workload of a recording, from its name and parameters."""

    def watched(self, workload: Workload[Any], watcher: Watcher) -> Workload[Any]:
        """The same, its processes ended by the watcher should duratune be killed."""

    def describe(self, workload: Workload[Any]) -> Described: ...

    def loses(self, workload: Workload[Any]) -> str:
        """Why this load loses acknowledged writes at every crash, whatever the settings; else ""."""

    def name_of(self, lost: LostWrite, parameters: Mapping[str, str]) -> str:
        """What a user calls this write."""
