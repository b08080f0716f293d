"""The PostgreSQL catalogue: what a version's server says of its settings, with our own data laid over it."""

from __future__ import annotations

import copy
import difflib
import functools
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from knobs import render
from knobs.errors import InvalidInput
from knobs.knob import Kind, Knob, Source
from knobs.postgresql import manual, rules, server, values
from knobs.postgresql.meaning import MEANINGS, SESSION_NOTE
from knobs.postgresql.names import EXTENSION_WHY, GONE, OLD_NAMES, OUTSIDE_WHY, is_outside
from knobs.postgresql.tuning import RANGES

_SNAPSHOTS = Path(__file__).parent / "snapshots"

_KINDS: dict[str, Kind] = {
    "bool": "bool",
    "enum": "enum",
    "integer": "integer",
    "real": "real",
    "string": "string",
}


_NUMBERS = ("integer", "real")

# Choices that the servers which the snapshots were made of were not built with (18: --with-liburing).
_OTHER_BUILDS: dict[str, tuple[str, ...]] = {"io_method": ("io_uring",)}


class PostgresqlCatalogue:
    """Every setting of one PostgreSQL version (see knobs.catalogue).

    ``version`` is the major one. Names are PostgreSQL's own and compare without their case; a name with a dot
    belongs to an extension and is taken as it is, as the server does. `Knob.default` is the built-in default
    (pg_settings.boot_val) in its readable spelling; ``initdb`` holds what initdb writes over it.
    """

    engine = "postgresql"

    def __init__(self, snapshot: Mapping[str, Any]) -> None:
        self.server_version: str = snapshot["version"]
        self.version: str = server.major_of(self.server_version)
        self.source: str = snapshot["source"]
        self.initdb: dict[str, str] = dict(snapshot["initdb"])
        self._knobs: dict[str, Knob] = {entry["name"]: _knob(entry) for entry in snapshot["settings"]}
        self._by_lower = {name.lower(): name for name in self._knobs}
        self._not_built: Mapping[str, Sequence[str]] = {}

    def knobs(self) -> tuple[Knob, ...]:
        return tuple(self._knobs.values())

    def resolve(self, name: str) -> str:
        """The name as the server writes it.

        Raises InvalidInput for an unknown one, with the versions that have it, or the nearest names.
        """
        lowered = name.lower()
        found = self._by_lower.get(lowered) or self._by_lower.get(OLD_NAMES.get(lowered, ""))
        if found is not None:
            return found
        if _is_extension_name(lowered):
            return lowered
        raise InvalidInput(
            f"PostgreSQL {self.version} has no setting '{name}'{self._elsewhere(lowered)}",
            where=name,
            hint="`duratune knobs postgresql` lists every name",
        )

    def knob(self, name: str) -> Knob:
        full = self.resolve(name)
        return self._knobs.get(full) or _extension_knob(full)

    def normalise(self, name: str, value: str) -> str:
        return values.normalise(self.knob(name), value)

    def spelled(self, name: str, value: str) -> str:
        """The value with the largest unit that keeps it whole: 16384 pages of shared_buffers are 128MB."""
        return values.spelled(self.knob(name), value)

    def validate(self, settings: Mapping[str, str]) -> None:
        """Raises InvalidInput with every fault of ``settings``, joined by "; "."""
        faults = self.faults(settings)
        if faults:
            raise InvalidInput("; ".join(faults), where="settings", hint=self._hint(settings))

    # Beyond the protocol: what the other files of this folder and the reports ask for.

    def has(self, name: str) -> bool:
        """Whether ``name`` is a setting of this version that a configuration can state."""
        full = self._by_lower.get(name.lower())
        return full is not None and self._knobs[full].settable

    def faults(self, settings: Mapping[str, str]) -> list[str]:
        """Every fault of ``settings``: unknown names, values of a wrong type or range, broken rules."""
        faults: list[str] = []
        sound: dict[str, str] = {}
        for name, value in settings.items():
            try:
                fault = self._fault(self.knob(name), value)
            except InvalidInput as error:
                fault = error.what
            if fault is None:
                sound[name] = value
            else:
                faults.append(fault)
        # A value that is wrong by itself takes no part in the rules: they would misread it.
        return faults + [rule.message for rule in rules.broken(self.in_force(sound))]

    def in_force(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The built-in defaults of every setting with ``settings`` laid over them, normalised."""
        full = {self.resolve(name): value for name, value in settings.items()}
        return {
            name: values.normalise(knob, full.get(name, knob.default)) for name, knob in self._knobs.items()
        }

    def notes(self, name: str) -> list[str]:
        """What else to know about a setting: rules that it takes part in, who may change it for a session."""
        full = self.resolve(name)
        found = [f"{rule.message} ({rule.source})" for rule in rules.RULES if full in rule.names]
        found += [f"{change.why} ({change.source})" for change in rules.CHANGES if change.name == full]
        knob = self.knob(name)
        if knob.meaning and knob.context in ("user", "superuser"):
            found.append(SESSION_NOTE)
        found += [f"initdb's postgresql.conf says {self.initdb[full]}"] if full in self.initdb else []
        return found

    def manual(self, name: str) -> str:
        """The manual's text on a setting, of the installed manual of this version; "" where there is none."""
        source = self.knob(name).source.file
        return manual.text(self.version, source) if source else ""

    def without(self, choices: Mapping[str, Sequence[str]]) -> PostgresqlCatalogue:
        """The same of a server that was built without these choices, by the names of settings."""
        found = copy.copy(self)
        found._not_built = choices
        found._knobs = {
            name: replace(knob, choices=tuple(word for word in knob.choices if word not in choices[name]))
            if name in choices
            else knob
            for name, knob in self._knobs.items()
        }
        return found

    def nearest(self, name: str) -> list[str]:
        """Up to three names that are close to ``name``."""
        close = difflib.get_close_matches(name.lower(), self._by_lower, n=3, cutoff=0.7)
        return [self._by_lower[word] for word in close]

    def _hint(self, settings: Mapping[str, str]) -> str:
        """What each number takes that is wrong by itself; of an enum its fault says it."""
        wrong: list[Knob] = []
        for name, value in settings.items():
            with suppress(InvalidInput):  # An unknown name takes nothing.
                wrong += [self.knob(name)] if self._fault(self.knob(name), value) is not None else []
        numbers = [knob for knob in wrong if knob.settable and knob.kind in _NUMBERS]
        told = [f"{knob.name} takes {render.takes(knob)}" for knob in numbers]
        page = f"`duratune knobs postgresql {wrong[0].name if len(wrong) == 1 else 'NAME'}`"
        return "; ".join([*told, f"{page} says what a setting takes"])

    def _fault(self, knob: Knob, value: str) -> str | None:
        if not knob.settable:
            return f"{knob.name} cannot be set: it tells how the server was built or the cluster made"
        if value.lower() in self._not_built.get(knob.name, ()):
            return f"{knob.name}: this server was built without {value.lower()}"
        wrong = values.fault(knob, value)
        return None if wrong is None else f"{knob.name}: {wrong}"

    def _elsewhere(self, lowered: str) -> str:
        having = [major for major in versions() if lowered in _names(major)]
        own = server.version_key(self.version)
        later = [major for major in having if server.version_key(major) > own]
        if later:
            return f": new in {later[0]}"
        if having or lowered in GONE:
            gone_in, instead = GONE.get(lowered, ("", ""))
            gone_in = gone_in or str(int(having[-1]) + 1)
            return f": removed in {gone_in}" + (f", use {instead}" if instead else "")
        near = self.nearest(lowered)
        return f"; nearest: {', '.join(near)}" if near else ""


def versions() -> tuple[str, ...]:
    """The major versions with a shipped snapshot, oldest first."""
    return tuple(sorted((file.stem for file in _SNAPSHOTS.glob("*.json")), key=server.version_key))


def load(version: str | None = None) -> PostgresqlCatalogue:
    """The catalogue of ``version`` ("15", or "15.18"); without one, of the newest server on this machine, and
    where there is none, of the newest version that ships.

    Raises InvalidInput if that version has no snapshot.
    """
    known = versions()
    chosen = server.major_of(version) if version is not None else _installed() or known[-1]
    if chosen not in known:
        raise InvalidInput(
            f"there is no catalogue of PostgreSQL {version or chosen}",
            where="engine version",
            hint=f"shipped: {', '.join(known)}; `python -m knobs.postgresql.snapshot BINDIR` makes another",
        )
    return _load(chosen)


@functools.cache
def _load(major: str) -> PostgresqlCatalogue:
    return PostgresqlCatalogue(_snapshot(major))


@functools.cache
def _installed() -> str | None:
    found = server.bindirs()
    return server.major_of(server.version_text(found[-1])) if found else None


@functools.cache
def _names(major: str) -> frozenset[str]:
    return frozenset(entry["name"].lower() for entry in _snapshot(major)["settings"])


def _snapshot(major: str) -> dict[str, Any]:
    snapshot: dict[str, Any] = json.loads((_SNAPSHOTS / f"{major}.json").read_text(encoding="utf-8"))
    return snapshot


def _is_extension_name(name: str) -> bool:
    parts = name.split(".")
    return len(parts) > 1 and all(part.replace("$", "_").isidentifier() for part in parts)


def _extension_knob(name: str) -> Knob:
    return Knob(
        name=name,
        kind="string",
        type="string",
        default="",
        documentation="",
        source=Source("", 0),
        outside=is_outside(name),
        category="Customized Options",
        outside_why=EXTENSION_WHY,
    )


def _knob(entry: Mapping[str, Any]) -> Knob:
    name: str = entry["name"]
    about = [text for text in (entry["short_desc"], entry["extra_desc"]) if text]
    knob = Knob(
        name=name,
        kind=_KINDS[entry["vartype"]],
        type="",
        default=entry["boot"],
        documentation="\n".join(about),
        source=Source(entry["anchor"], 0),
        unit=entry["unit"],
        minimum=_bound(entry["min"]),
        maximum=_bound(entry["max"]),
        choices=(*entry["enumvals"], *_OTHER_BUILDS.get(name, ())),
        dynamic=entry["context"] not in ("internal", "postmaster"),
        settable=entry["context"] != "internal",
        outside=is_outside(name),
        tuning=RANGES.get(name),
        meaning=MEANINGS.get(name),
        spellings=tuple(sorted(entry["hidden"].items())),
        category=entry["category"],
        context=entry["context"],
        outside_why=OUTSIDE_WHY,
    )
    # Readable, as the manual tells it: 128MB, not 16384.
    return replace(knob, default=values.spelled(knob, entry["boot"]), units=values.units_of(knob))


def _bound(text: str | None) -> float | None:
    if text is None:
        return None
    return int(text) if text.lstrip("-").isdigit() else float(text)
