"""What an engine did, in the words of the people who know it: a checkpoint, a memtable flush.

An event is read from the steps of a write log alone: which file was written, synced or renamed after which.
What that means is the engine's own knowledge and lies in its folder; here is what each of them needs for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

StepKind = Literal[
    "create", "write", "truncate", "fallocate", "rename", "link", "unlink", "sync", "sync-folder"
]
GIVES_A_NAME: tuple[StepKind, ...] = ("rename", "link")


class Step(NamedTuple):
    """One operation that changed or synced something.

    ``path`` is the file's at that time (the folder's for "sync-folder"), ``new_path`` what it was renamed or
    linked to; ``data`` is what a write wrote at ``offset``.
    """

    kind: StepKind
    path: str
    thread: int
    new_path: str = ""
    offset: int = 0
    data: bytes | memoryview = b""


@dataclass(frozen=True)
class EngineEvent:
    """One event by its name, and the steps that it was made of: their numbers in the log, ascending."""

    name: str
    steps: tuple[int, ...]

    @staticmethod
    def of(name: str, steps: Iterable[int | None]) -> EngineEvent:
        """The event of those steps that the log has."""
        return EngineEvent(name, tuple(sorted({step for step in steps if step is not None})))


class StepIndex:
    """The numbers of a log's steps, by kind and path; a new name counts as well as the old one."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._rows: dict[tuple[StepKind, str], list[int]] = {}
        rows = self._rows
        for number, step in enumerate(steps):
            rows.setdefault((step.kind, step.path), []).append(number)
            if step.new_path:
                rows.setdefault((step.kind, step.new_path), []).append(number)

    def first(self, kind: StepKind, path: str, after: int = -1) -> int | None:
        """The first such step after another one; None where there is none."""
        rows = self._rows.get((kind, path), [])
        place = bisect_right(rows, after)
        return rows[place] if place < len(rows) else None

    def last(self, kind: StepKind, path: str, before: int) -> int | None:
        """The last such step before another one; None where there is none."""
        rows = self._rows.get((kind, path), [])
        place = bisect_right(rows, before - 1)
        return rows[place - 1] if place else None

    def all(self, kind: StepKind, path: str) -> Sequence[int]:
        """Every such step, ascending."""
        return self._rows.get((kind, path), [])

    def paths(self, kind: StepKind) -> list[str]:
        """Every path that such a step was done to."""
        return [path for each, path in self._rows if each == kind]


def log_switches(
    index: StepIndex, name: str, is_log: Callable[[str], bool], rank: Callable[[str], int]
) -> list[EngineEvent]:
    """Where an engine went on to a new log: its first write, until the first sync of it."""
    begun = [
        (first, path)
        for path in index.paths("write")
        if is_log(path) and (first := index.first("write", path)) is not None
    ]
    return [
        EngineEvent.of(name, (first, index.first("sync", path, first)))
        for (_, before), (first, path) in pairwise(sorted(begun))
        if rank(path) > rank(before)
    ]


def folder_of(path: str) -> str:
    """The folder that an entry lies in; "" is the recorded root."""
    return path.rpartition("/")[0]
