"""One proposed candidate: settings over the reference, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Proposal:
    """``settings`` over the reference, under full names; ``reason`` and ``source`` are for the report."""

    proposer: str
    settings: Mapping[str, str]
    reason: str = ""
    source: str = ""


@dataclass(frozen=True)
class HostLimits:
    """What a proposer may count on: cores and memory, cgroup limits included."""

    cores: int
    memory_bytes: int


class Proposer(Protocol):
    """Proposes start points for a study."""

    name: str

    def start_points(self, host: HostLimits) -> Sequence[Proposal]:
        """Candidates worth trying before any search, the most promising first."""
        ...


@dataclass(frozen=True)
class StartPoint:
    """A rule: what to set, and where the advice comes from."""

    reason: str
    source: str
    settings: Mapping[str, str] = field(default_factory=dict)
