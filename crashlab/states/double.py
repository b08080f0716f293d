"""Double crashes: a second crash while the engine recovers from the first, and where to aim it.

First come states that are held by themselves and have most log to replay; one whose survivors are not drawn
comes before any other, because what breaks there hangs on no draw. Each second position is one of the log of
its recovery: the end; right after a log, manifest or control file was renamed or removed, while what
replaces it may not be durable (and the removal is); just before a sync ends, those first that cover most.

Names survive as a journaled file system keeps them; those that only POSIX allows are not drawn twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from crashlab.judging.verdict import CrashKind
from crashlab.models import MODELS
from crashlab.models.covering import changes_before
from crashlab.models.names import Metadata
from crashlab.models.survivors import Reach
from crashlab.recording.recorded import Logged
from crashlab.recording.write_log import Kind
from crashlab.states.disk import written_bytes
from crashlab.states.plan import PlannedState
from engines.engine import FileRole

DOUBLE = "double"
"""What double states are summed up under, and what their controls are called by."""
SECONDS_MAX = 5
"""States that are made of one recorded recovery."""
STATES_MIN, SHARE = 20, 10
"""Of so many states one in ten is double; of fewer none."""
BEGINNINGS: tuple[FileRole, ...] = ("wal", "manifest", "current", "control")
"""Roles of what a recovery begins with: what replaces one of these files must be durable before it goes."""
HALF, ONE_LOST, ONE_KEPT = 0, 1, 2
"""Places among a model's telling seeds."""

Moment = tuple[int, str]
"""A position of a recovery's log, and what it was chosen for."""


@dataclass(frozen=True)
class DoubleState:
    """A crash state of a recorded run, and one of its recovery's log."""

    first: PlannedState
    second: PlannedState

    @property
    def id(self) -> str:
        return f"{self.first.id}>{self.second.id}"

    @property
    def group(self) -> str:
        """Under which name it is summed up with others."""
        return DOUBLE

    @property
    def model(self) -> str:
        return f"{self.first.model}>{self.second.model}"

    @property
    def position(self) -> int:
        """The cut by which it is judged: writes of a recovery are no client's."""
        return self.first.position

    @property
    def source(self) -> str:
        return self.second.source

    @property
    def why(self) -> str:
        return f"{self.second.why}, from: {self.first.why}"

    @property
    def crash(self) -> CrashKind:
        """A power cut if either is."""
        return "power-cut" if "power-cut" in (self.first.crash, self.second.crash) else "process-crash"

    @property
    def draws(self) -> bool:
        """Whether what survives either is drawn."""
        return self.first.draws or self.second.draws

    @property
    def metadata(self) -> Metadata:
        """Which of the names survive: no more than POSIX promises if that holds for either."""
        return "posix" if "posix" in (self.first.metadata, self.second.metadata) else "ordered"


State = PlannedState | DoubleState

NOWHERE = PlannedState("synced", 0, 0, "recovery", "its recovery could not be recorded")
"""Stands for every crash of a recovery whose log is not believed."""


def double_share(total: int) -> int:
    """How many of so many crash states are double."""
    return total // SHARE if total >= STATES_MIN else 0


def choose_firsts(held: Sequence[tuple[PlannedState, int]], states: int) -> list[PlannedState]:
    """Of states that are held, each with the bytes of log that its recovery replayed, those whose recoveries
    are worth recording for so many double states."""
    ranked = sorted(
        (each for each in held if each[0].metadata == "ordered"),
        key=lambda each: (each[0].draws, -each[1], each[0].position),
    )
    by_model: dict[str, list[PlannedState]] = {}
    for state, _ in ranked:
        by_model.setdefault(state.model, []).append(state)
    in_turn = [state for turn in zip_longest(*by_model.values()) for state in turn if state is not None]
    return in_turn[: -(-states // SECONDS_MAX)]


def plan_seconds(
    recovery: Logged, models: Sequence[str], states: int, seed: int, place: int = 0
) -> list[PlannedState]:
    """Choose ``states`` crashes of one recorded recovery, fewer where it has not so many moments.

    The end is always among them; by what few states begin with besides, recoveries at the next ``place``
    differ. The plan is pure: the same log, budget and seed give the same.
    """
    usable = [name for name in models if MODELS[name].metadata == "ordered"]
    drawing = [name for name in usable if MODELS[name].draws]
    drawing = [*drawing[place % len(drawing) :], *drawing[: place % len(drawing)]] if drawing else []
    end = [(recovery.disk.last_position + 1, "the end of the recovery")]
    removals, syncs = _removals(recovery), _syncs(recovery)
    turns = [
        _drawn(drawing, [*removals, *end], "most", (ONE_KEPT, HALF), seed),
        _drawn(drawing, syncs, "least", (HALF, ONE_LOST), seed),
        _of_model("synced", syncs if "synced" in usable else [], seed),
        _of_model("cache", [*removals, *syncs] if "cache" in usable else [], seed),
    ]
    turn_first = 2 * place % len(turns)
    at_end = _of_model("synced", end if "synced" in usable else [], seed)
    chosen: dict[tuple[str, int], PlannedState] = {}
    for turn in zip_longest(at_end, *turns[turn_first:], *turns[:turn_first]):
        for state in turn:
            if state is not None and len(chosen) < states:
                chosen.setdefault((state.model, state.position), state)
    return sorted(chosen.values(), key=lambda state: state.position)


def _of_model(model: str, moments: Sequence[Moment], seed: int) -> Iterator[PlannedState]:
    for position, why in moments:
        yield PlannedState(model, position, seed, "recovery", why)


def _drawn(
    models: Sequence[str], moments: Sequence[Moment], names: Reach, telling: Sequence[int], seed: int
) -> Iterator[PlannedState]:
    """Every moment by every model, the models in turn."""
    for turn in range(len(models)):
        for number, (position, why) in enumerate(moments):
            model = models[(number + turn) % len(models)]
            seeds = MODELS[model].telling_seeds(position, seed, names)
            place = telling[(number + turn) % len(telling)]
            yield PlannedState(model, position, seeds[place], "recovery", why)


def _removals(recovery: Logged) -> list[Moment]:
    """Right after a file that a recovery begins with got another name or none, the last first."""
    found = []
    for change in recovery.disk.name_changes:
        operation = change.operation
        if operation.begin <= recovery.facts.first_position or operation.end is None:
            continue
        role = recovery.role_of(operation)
        if operation.kind in (Kind.UNLINK, Kind.RENAME) and role in BEGINNINGS:
            found.append((operation.end + 1, f"after the {operation.kind.name.lower()} of {role}"))
    return found[::-1]


def _syncs(recovery: Logged) -> list[Moment]:
    """Just before a sync ends that covers what nothing has covered yet, those that cover most first."""
    found = []
    for file in recovery.disk.files:
        for sync in file.syncs:
            if sync.begin <= recovery.facts.first_position or sync.end is None:
                continue
            covered = sum(
                written_bytes(change)
                for change, durable in changes_before(file, recovery.horizons, sync.end, sync.end)
                if change.kind is Kind.WRITE and durable is None
            )
            if covered:
                why = f"before a sync of {recovery.role_of(sync)} covers {covered} bytes"
                found.append((covered, sync.end, why))
    return [(position, why) for _, position, why in sorted(found, key=lambda each: (-each[0], each[1]))]
