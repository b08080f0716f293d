"""The catalogue of one engine's knobs, and the registry that finds it by the engine's name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Protocol, cast, runtime_checkable

from knobs.errors import InvalidInput
from knobs.knob import Knob

Settings = dict[str, str]

# Engine name -> module with `load(version: str | None) -> Catalogue`; imported only when chosen.
CATALOGUES: dict[str, str] = {
    "rocksdb": "knobs.rocksdb.catalogue",
    "postgresql": "knobs.postgresql.catalogue",
}


class Catalogue(Protocol):
    """What may be set in one version of one engine.

    `resolve` turns a short or full name into the full one, `knob` looks a full or short name up,
    `normalise` makes two spellings of one value equal, `spelled` writes one as people do, `validate` raises
    InvalidInput with every fault of some settings: unknown names, wrong types, values out of range, broken
    rules. Nothing is ever clamped or repaired.
    """

    engine: str
    version: str

    def knobs(self) -> tuple[Knob, ...]: ...

    def resolve(self, name: str) -> str: ...

    def knob(self, name: str) -> Knob: ...

    def normalise(self, name: str, value: str) -> str: ...

    def spelled(self, name: str, value: str) -> str: ...

    def validate(self, settings: Mapping[str, str]) -> None: ...


class Notes(Protocol):
    """A further power of a catalogue: sentences about an option that its knob does not carry."""

    def notes(self, name: str) -> list[str]: ...


@runtime_checkable
class Manual(Protocol):
    """A further power of a catalogue: the text of the engine's own manual, where that is installed."""

    def manual(self, name: str) -> str: ...


def load(engine: str, version: str | None = None) -> Catalogue:
    """The catalogue of ``engine``: of ``version``, or else of the installed one where the engine can tell it,
    or else of the newest that ships.

    Raises InvalidInput for an engine or a version that has none.
    """
    if engine not in CATALOGUES:
        known = ", ".join(sorted(CATALOGUES))
        raise InvalidInput(f"'{engine}' has no catalogue", where="engine", hint=f"use one of: {known}")
    module = importlib.import_module(CATALOGUES[engine])
    return cast("Catalogue", module.load(version))


def resolve_all(catalogue: Catalogue, settings: Mapping[str, str], *, where: str = "") -> Settings:
    """The same settings under full names.

    Raises InvalidInput with every unknown, ambiguous or twice-given name.
    """
    resolved: Settings = {}
    faults: list[str] = []
    for name, value in settings.items():
        try:
            full = catalogue.resolve(name)
        except InvalidInput as error:
            faults.append(error.what)
            continue
        if full in resolved and resolved[full] != value:
            faults.append(f"{full} is given twice with different values")
        resolved[full] = value
    if faults:
        hint = f"`duratune knobs {catalogue.engine}` lists every name"
        raise InvalidInput("; ".join(faults), where=where, hint=hint)
    return resolved
