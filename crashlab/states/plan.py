"""Where to crash: which positions of a recorded run are made into states, and why.

Six sources share the budget: *exposure* (just before the syncs that cover the widest windows of
acknowledgements, and the end of the run), *unsynced* (for models that tear writes: just before the syncs of
data files at which most writes to them were unsynced, which is the middle of a checkpoint), *logs* (for
models that draw survivors: while a log is written and the one before it is not synced yet, so that the older
may be lost and the newer survive), *fault* (where a fault that the run met shows what it has done; always
planned, beyond the budget if need be), *event* (one position inside or right after an operation of every kind
on every role of file: log switches, flushes, manifest edits, renames), and *uniform* (moments drawn uniformly
in time: the only ones that are a sample).
The plan is pure: the same run, budget and seed give the same plan.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

from crashlab.judging.audit import Audit
from crashlab.judging.timeline import Timeline
from crashlab.judging.verdict import CrashKind
from crashlab.models import MODELS
from crashlab.models.covering import changes_before, is_whole
from crashlab.models.names import Metadata
from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import CONTENT_CHANGES, NAME_CHANGES, SYNCS, Disk, File
from crashlab.states.horizon import Horizons
from engines.engine import FileRole

Source = Literal["exposure", "unsynced", "logs", "fault", "event", "uniform", "recovery"]
UNTOLD_ROLES = ("lock", "info-log", "cache")
"""Roles of files that recovery does not read: no moment is worth a state for them."""
_TOLD = NAME_CHANGES | CONTENT_CHANGES | SYNCS


@dataclass(frozen=True)
class PlannedState:
    """One crash state to build: its model, position and seed, and what it was chosen for."""

    model: str
    position: int
    seed: int
    source: Source
    why: str

    @property
    def id(self) -> str:
        return f"{self.model}@{self.position}#{self.seed}"

    @property
    def group(self) -> str:
        """Under which name it is summed up with others: its model's."""
        return self.model

    @property
    def crash(self) -> CrashKind:
        """What kind of crash leaves it."""
        return MODELS[self.model].crash

    @property
    def draws(self) -> bool:
        """Whether what survives in it is drawn."""
        return MODELS[self.model].draws

    @property
    def metadata(self) -> Metadata:
        """Which of the names survive in it."""
        return MODELS[self.model].metadata


@dataclass(frozen=True)
class RunView:
    """What planning needs to see of a recorded run. ``first_position`` is where the load began; ``device``
    the virtual disk below the files, where there is one; ``fault_moments`` are positions that a fault makes
    worth a state, and why."""

    disk: Disk
    horizons: Horizons
    timeline: Timeline
    audit: Audit
    role: Callable[[Operation], FileRole]
    first_position: int
    device: tuple[Disk, Horizons] | None = None
    fault_moments: Sequence[tuple[int, str]] = ()

    @cached_property
    def unsynced(self) -> list[tuple[int, int]]:
        """The begins of syncs of data files at which writes to such files were unsynced, and how many; those
        with most of them first. On a virtual disk it is the disk that is synced, and every write that
        counts."""
        if self.device is not None:
            return _unflushed(*self.device, range(self.first_position + 1, self.timeline.last_position))
        data = [
            file
            for file in self.disk.files
            if any(self.role(each) == "relation" for each in file.changes[:1])
        ]
        moments = {sync.begin for file in data for sync in file.syncs if sync.begin > self.first_position}
        found = [(moment, _unsynced_at(self, data, moment)) for moment in sorted(moments)]
        return sorted(((p, n) for p, n in found if n), key=lambda each: (-each[1], each[0]))

    @cached_property
    def crossings(self) -> list[tuple[int, int]]:
        """Between which positions a log has unsynced writes while the next one is written already, the
        longest first."""
        logs = sorted(
            (writes[0].begin, file)
            for file in self.disk.files
            if (writes := [each for each in file.changes if each.kind is Kind.WRITE])
            and self.role(writes[0]) == "wal"
        )
        found = []
        for (_, older), (began, _) in pairwise(logs):
            last = self.timeline.last_position
            until = min((end for end in self._ends_of(older) if end > began), default=last)
            if began > self.first_position and _unsynced_at(self, [older], until):
                found.append((began, until))
        return sorted(found, key=lambda each: (each[0] - each[1], each))

    def before_flush(self, position: int) -> int:
        """A moment when what a sync covers that ends at the position was not flushed yet: the position
        itself; on a virtual disk where the sync begins, for the disk is told to flush before the sync
        returns."""
        return position if self.device is None else self._sync_begins.get(position, position)

    @cached_property
    def _sync_begins(self) -> Mapping[int, int]:
        return {sync.end: sync.begin + 1 for sync in self.disk.syncs if sync.end is not None}

    def _ends_of(self, file: File) -> Iterator[int]:
        """Where syncs of a file end, and where its names are taken away."""
        yield from (sync.end for sync in file.syncs if sync.end is not None)
        yield from (
            change.operation.begin
            for change in self.disk.name_changes
            if change.file is file and change.operation.kind in (Kind.UNLINK, Kind.RENAME)
        )

    @cached_property
    def classes(self) -> Mapping[str, Sequence[Operation]]:
        """The ended operations of the load by their kind and the role of their file, in words."""
        classes: dict[str, list[Operation]] = {}
        for operation in self.disk.operations:
            if operation.begin < self.first_position or operation.end is None:
                continue
            if operation.kind not in _TOLD:
                continue
            role = self.role(operation)
            if role not in UNTOLD_ROLES:
                classes.setdefault(f"{operation.kind.name.lower()} of {role}", []).append(operation)
        return classes


def plan_states(view: RunView, model: str, states: int, seed: int) -> list[PlannedState]:
    """Choose ``states`` positions for a model: a third each for exposure, events and uniform moments.

    A model that tears writes has half of its states where most writes are unsynced, and the thirds of the
    rest. What one source cannot fill falls to the uniform moments.
    """
    crash = MODELS[model].crash
    share = states
    chosen: dict[int, PlannedState] = {}

    def add(position: int, source: Source, why: str, seed: int = seed) -> None:
        if len(chosen) < states and position not in chosen:
            chosen[position] = PlannedState(model, position, seed, source, why)

    for position, why in view.fault_moments:
        chosen[position] = PlannedState(model, position, seed, "fault", why)
    if view.fault_moments:
        last = view.timeline.last_position
        chosen[last] = PlannedState(model, last, seed, "fault", "the end of the run")
    if MODELS[model].tears:
        share = states - states // 2
        # Of few states these tell most. The first of them are not left to their draws.
        for number, (position, writes) in enumerate(view.unsynced[: max(1, states // 2)]):
            telling = MODELS[model].telling_seeds(position, seed)
            drawn = telling[number] if number < len(telling) else seed
            add(position, "unsynced", f"{writes} writes to data files unsynced", drawn)
    if MODELS[model].draws:
        places = random.Random(f"{seed}/{model}/logs")
        for number in range(max(1, states // 4) if view.crossings else 0):
            position = places.randint(*view.crossings[number % len(view.crossings)])
            *_, by_file = MODELS[model].telling_seeds(position, seed)
            add(position, "logs", "a log is written, the one before it not synced", by_file)
    add(view.timeline.last_position, "exposure", "the end of the run")
    for peak in view.audit.peaks(view.timeline, max(1, share // 3), crash):
        why = f"{peak.exposed} acks exposed for up to {peak.window_ms:.1f} ms"
        add(view.before_flush(peak.position), "exposure", why)
    for position, why in _events(view, max(1, share // 3), random.Random(f"{seed}/{model}/event")):
        add(position, "event", why)
    draw = random.Random(f"{seed}/{model}/uniform")
    first_ns = view.timeline.ns_at(view.first_position + 1)
    last_ns = view.timeline.span_ns[1]
    for _ in range(20 * states):
        if len(chosen) >= states:
            break
        moment = draw.uniform(first_ns, last_ns)
        add(view.timeline.position_at(int(moment)), "uniform", "a moment drawn uniformly in time")
    return sorted(chosen.values(), key=lambda state: state.position)


def _unflushed(disk: Disk, horizons: Horizons, load: range) -> list[tuple[int, int]]:
    """Where in the load a virtual disk was told to flush, and how many writes had come since the flush
    before."""
    [file] = disk.files
    horizon = horizons.of(file)
    begins = [write.begin for write in file.changes]
    found = []
    for moment in (sync.begin for sync in file.syncs if sync.begin in load):
        number = bisect_left(begins, moment) - bisect_left(begins, horizon.at(moment))
        if number:
            found.append((moment, number))
    return sorted(found, key=lambda each: (-each[1], each[0]))


def _unsynced_at(view: RunView, files: Sequence[File], position: int) -> int:
    return sum(
        1
        for file in files
        for change, durable in changes_before(file, view.horizons, position, position)
        if change.kind is Kind.WRITE and not is_whole(durable)
    )


def _events(view: RunView, count: int, draw: random.Random) -> Sequence[tuple[int, str]]:
    """One operation of each (kind, role of file) class, in seeded order, the classes taken in turn."""
    labels = sorted(view.classes)
    draw.shuffle(labels)
    events = []
    for turn in range(count):
        if not labels:
            break
        label = labels[turn % len(labels)]
        operation = draw.choice(view.classes[label])
        inside = draw.random() < 0.5
        position = operation.begin + 1 if inside else (operation.end or operation.begin) + 1
        events.append((position, f"{'inside' if inside else 'after'} a {label}"))
    return events
