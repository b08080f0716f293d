"""Where to crash: which positions of a recorded run are made into states, in which order, and why.

Each model takes its positions from these sources in turn, best first: *unsynced* (for models that tear
writes: just before the syncs of data files at which most writes to them were unsynced, which is the middle
of a checkpoint), *logs* (for models that draw survivors: while a log is written and the one before it is not
synced yet, so that the older may be lost and the newer survive), *fault* (where a fault shows what it has
done), *exposure* (just before the syncs that
cover the widest windows of acknowledgements, and the end of the run), *event* (before, inside and after what
the engine's people call an event: a checkpoint, a memtable flush), *operation* (inside or right after an
operation of every kind on every role of file), and *uniform* (moments drawn uniformly in time: the only ones
that are a sample). A source that has no more is left out.

The order is the one in which detection is likeliest, whatever the number of states: of each model fewer
states are the first ones of more. The models go side by side, each by its share. The plan is pure: the same
run, shares and seed give the same plan.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, count, cycle, islice
from typing import Literal, TypeVar

from crashlab.judging.verdict import CrashKind
from crashlab.models import MODELS
from crashlab.models.names import Metadata
from crashlab.states.coverage import OPERATION_PHASES
from crashlab.states.events import PHASES
from crashlab.states.run_view import RunView

Source = Literal["exposure", "unsynced", "logs", "fault", "event", "operation", "uniform", "recovery"]
Cell = TypeVar("Cell")
TRIES = 50
"""Of one source, until it gives a position that is not taken yet; in a short run most are."""


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
class _Turns:
    """Whose turn it is: the first states' sources, then those of all the others, over and over."""

    first: tuple[Source, ...]
    then: tuple[Source, ...]


_KEEPS_ALL_OR_NONE = _Turns(
    ("exposure", "exposure"), ("event", "uniform", "operation", "uniform", "exposure", "uniform")
)
_DRAWS = _Turns(("logs", "exposure"), ("event", "uniform", "logs", "operation", "uniform", "exposure"))
_TEARS = _Turns(
    ("unsynced", "exposure", "logs", "unsynced"),
    ("event", "unsynced", "uniform", "unsynced", "operation", "unsynced", "logs", "exposure"),
)


@dataclass(frozen=True)
class _Place:
    """A position with its reason, and the seed under which it tells most where that is another one."""

    position: int
    why: str
    seed: int | None = None


def plan_models(view: RunView, shares: Mapping[str, int], seed: int) -> Iterator[PlannedState]:
    """The states of all models, so many of each, in the order in which they are to be judged: first one of
    each model, then each as often as its share says."""

    def by_share(number: int, model: str) -> Iterator[tuple[float, int, PlannedState]]:
        share = max(shares[model], _least(view))
        for taken, state in enumerate(islice(plan_model(view, model, seed), share)):
            yield taken / share, number, state

    ordered = merge(
        *(by_share(number, model) for number, model in enumerate(shares)), key=lambda each: each[:2]
    )
    return (state for _, _, state in ordered)


def plan_states(view: RunView, model: str, states: int, seed: int) -> list[PlannedState]:
    """The first ``states`` of one model, where a fault shows what it has done in any case."""
    return list(islice(plan_model(view, model, seed), max(states, _least(view))))


def _least(view: RunView) -> int:
    """How many states of each model a run is made into at least: where a fault shows, and the end of the
    run."""
    return len(view.fault_moments) + 1 if view.fault_moments else 0


def plan_model(view: RunView, model: str, seed: int) -> Iterator[PlannedState]:
    """The states of one model, best first, until the run has no other position."""
    turns = _turns(model)
    # What a fault has done shows where it is looked for, and the end of the run is one such place.
    first: list[Source] = ["fault"] * _least(view)
    first += turns.first
    places = {source: _places(view, model, source, seed) for source in (*first, *turns.then)}
    taken: set[int] = set()
    for source in chain(first, cycle(turns.then)):
        if places.keys() <= {"fault"}:
            return
        if source not in places:
            continue
        for place in islice(places[source], TRIES):
            if place.position not in taken:
                taken.add(place.position)
                drawn = seed if place.seed is None else place.seed
                yield PlannedState(model, place.position, drawn, source, place.why)
                break
        else:
            del places[source]


def _turns(model: str) -> _Turns:
    if MODELS[model].tears:
        return _TEARS
    return _DRAWS if MODELS[model].draws else _KEEPS_ALL_OR_NONE


def _places(view: RunView, model: str, source: Source, seed: int) -> Iterator[_Place]:
    """What one source has for a model, best first."""
    draw = random.Random(f"{seed}/{model}/{source}")
    found = {
        "unsynced": lambda: _unsynced(view, model, seed),
        "logs": lambda: _logs(view, model, seed, draw),
        "fault": lambda: _fault(view),
        "exposure": lambda: _exposure(view, model),
        "event": lambda: _events(view, model, seed, draw),
        "operation": lambda: _operations(view, model, seed, draw),
        "uniform": lambda: _uniform(view, draw),
    }
    return found[source]()


def _unsynced(view: RunView, model: str, seed: int) -> Iterator[_Place]:
    """Of few states these tell most. The first of them are not left to their draws."""
    left = len(MODELS[model].telling_seeds(0, seed))
    for number, (position, writes) in enumerate(view.unsynced):
        drawn = MODELS[model].telling_seeds(position, seed)[number] if number < left else None
        yield _Place(position, f"{writes} writes to data files unsynced", drawn)


def _logs(view: RunView, model: str, seed: int, draw: random.Random) -> Iterator[_Place]:
    for crossing in cycle(view.crossings):
        position = draw.randint(*crossing)
        *_, by_file = MODELS[model].telling_seeds(position, seed)
        yield _Place(position, "a log is written, the one before it not synced", by_file)


def _exposure(view: RunView, model: str) -> Iterator[_Place]:
    """The widest window, the end of the run, and the other windows."""
    aimed = [
        _Place(
            view.before_flush(peak.position), f"{peak.exposed} acks exposed for up to {peak.window_ms:.1f} ms"
        )
        for peak in view.peaks(MODELS[model].crash)
    ]
    yield from aimed[:1]
    yield _Place(view.timeline.last_position, "the end of the run")
    yield from aimed[1:]


def _fault(view: RunView) -> Iterator[_Place]:
    yield from (_Place(position, why) for position, why in view.fault_moments)
    yield _Place(view.timeline.last_position, "the end of the run")


def _events(view: RunView, model: str, seed: int, draw: random.Random) -> Iterator[_Place]:
    """Each kind of event in turn, and of each the phases in turn, at one of its events."""
    names = sorted(view.events)
    random.Random(f"{seed}/events").shuffle(names)
    cells = [(name, PHASES[(turn + number) % 3]) for turn in range(3) for number, name in enumerate(names)]
    for name, phase in _own_part(cells, model):
        event = draw.choice(view.events[name])
        positions = event.positions(phase)
        if positions:
            is_before_sync = phase == "before" and event.has_sync
            where = "before the first sync of" if is_before_sync else phase
            yield _Place(draw.choice(positions), f"{where} a {name}")


def _operations(view: RunView, model: str, seed: int, draw: random.Random) -> Iterator[_Place]:
    """Each kind of operation on each role of file in turn, inside one of them and after one."""
    cells = [(each, phase) for each in view.classes for phase in OPERATION_PHASES]
    random.Random(f"{seed}/operations").shuffle(cells)
    for each, phase in _own_part(cells, model):
        operation = draw.choice(view.classes[each])
        position = operation.begin + 1 if phase == "inside" else (operation.end or operation.begin) + 1
        yield _Place(position, f"{phase} a {each}")


def _own_part(cells: Sequence[Cell], model: str) -> Iterator[Cell]:
    """The cells over and over, from another one on for each model: together few states cover many."""
    first = list(MODELS).index(model) * len(cells) // len(MODELS)
    return cycle([*cells[first:], *cells[:first]])


def _uniform(view: RunView, draw: random.Random) -> Iterator[_Place]:
    first_ns, last_ns = view.timeline.ns_at(view.first_position + 1), view.timeline.span_ns[1]
    for _ in count():
        moment = int(draw.uniform(first_ns, last_ns))
        yield _Place(view.timeline.position_at(moment), "a moment drawn uniformly in time")
