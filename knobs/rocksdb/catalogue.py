"""The RocksDB catalogue: a version's snapshot, with our own data laid over it."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from knobs.errors import InvalidInput
from knobs.knob import Knob, Source
from knobs.rocksdb import changes, rules, values
from knobs.rocksdb.meaning import APPLICATION, BOUNDS, MEANINGS, OUTSIDE
from knobs.rocksdb.tuning import RANGES

_SNAPSHOTS = Path(__file__).parent / "snapshots"

# Other spellings of a section: the C++ struct's name, and the section title of an OPTIONS file.
_SECTION_ALIASES = {
    "ColumnFamilyOptions": "CFOptions",
    "TableOptions/BlockBasedTable": "BlockBasedTableOptions",
    "BlockBasedTable": "BlockBasedTableOptions",
}


class RocksdbCatalogue:
    """Every option of one RocksDB version, `WriteOptions.*` and `Application.*` (see knobs.catalogue)."""

    engine = "rocksdb"

    def __init__(self, snapshot: Mapping[str, Any]) -> None:
        self.version: str = snapshot["version"]
        self.linked_compressions: tuple[str, ...] = tuple(snapshot["linked_compressions"])
        listed = [_knob(entry) for entry in snapshot["options"]]
        self._knobs = {knob.name: knob for knob in (*listed, *APPLICATION)}
        self._printed = frozenset(entry["name"] for entry in snapshot["options"] if entry["printed"])
        self._by_short: dict[str, list[str]] = {}
        for knob in self._knobs.values():
            self._by_short.setdefault(knob.short_name, []).append(knob.name)

    def knobs(self) -> tuple[Knob, ...]:
        return tuple(self._knobs.values())

    def resolve(self, name: str) -> str:
        """The full name; raises InvalidInput with the nearest names if it is unknown or ambiguous."""
        section, dot, short = name.partition(".")
        if dot:
            full = f"{_SECTION_ALIASES.get(section, section)}.{short}"
            if full in self._knobs:
                return full
        found = self._by_short.get(name, [])
        # A name that survives in another section only as a deprecated spelling means the living one.
        living = [full for full in found if not self._knobs[full].deprecated]
        if len(living) == 1 or len(found) == 1:
            return (living or found)[0]
        if found:
            raise InvalidInput(f"'{name}' is ambiguous", where=name, hint=f"use one of: {', '.join(found)}")
        near = self.nearest(name)
        closest = f"; nearest: {', '.join(near)}" if near else ""
        raise InvalidInput(
            f"RocksDB {self.version} has no option '{name}'{closest}",
            where=name,
            hint="`duratune knobs rocksdb` lists every name",
        )

    def knob(self, name: str) -> Knob:
        return self._knobs[self.resolve(name)]

    def normalise(self, name: str, value: str) -> str:
        return values.normalise(self.knob(name), value)

    def spelled(self, name: str, value: str) -> str:
        """The value itself: RocksDB reads no units in an OPTIONS file."""
        del name
        return value

    def validate(self, settings: Mapping[str, str]) -> None:
        """Raises InvalidInput with every fault of ``settings`` (full names), joined by "; "."""
        faults = self.faults(settings)
        if faults:
            raise InvalidInput(
                "; ".join(faults),
                where="settings",
                hint="`duratune knobs rocksdb NAME` says what a knob takes",
            )

    # Beyond the protocol: what the other files of this folder and the reports ask for.

    def has(self, name: str) -> bool:
        """Whether ``name`` is the full name of an option that text can set."""
        return name in self._knobs and self._knobs[name].settable

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
        return faults + [
            rule.message for rule in rules.broken(self.in_force(sound), self.linked_compressions)
        ]

    def in_force(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The defaults of every option with ``settings`` laid over them, normalised."""
        full = {self.resolve(name): value for name, value in settings.items()}
        return {
            name: values.normalise(knob, full.get(name, knob.default)) for name, knob in self._knobs.items()
        }

    def notes(self, name: str) -> list[str]:
        """What else to know about an option: rules that it takes part in, silent changes."""
        full = self.resolve(name)
        found = [f"{rule.message} ({rule.source})" for rule in rules.RULES if full in rule.names]
        found += [
            f"may be changed by the engine without a word: {change.why} ({change.source})"
            for change in changes.CHANGES
            if change.name == full
        ]
        return found

    def defaults(self, section: str) -> dict[str, str]:
        """What the library writes for ``section`` into an OPTIONS file of a default database."""
        return {
            knob.short_name: knob.default
            for knob in self._knobs.values()
            if knob.section == section and knob.name in self._printed
        }

    def nearest(self, name: str) -> list[str]:
        """Up to three full names whose short or full name is close to ``name``."""
        short = name.rpartition(".")[2]
        lowered: dict[str, str] = {}
        for known in self._by_short:
            lowered.setdefault(known.lower(), known)
        close = difflib.get_close_matches(short.lower(), lowered, n=3, cutoff=0.7)
        return [self._by_short[lowered[word]][0] for word in close]

    def _fault(self, knob: Knob, value: str) -> str | None:
        if not knob.settable:
            return f"{knob.name} cannot be set by text, only by a program"
        wrong = values.fault(knob, value)
        return None if wrong is None else f"{knob.name}: {wrong}"


def versions() -> tuple[str, ...]:
    """The RocksDB versions with a shipped snapshot, oldest first."""
    found = [file.stem for file in _SNAPSHOTS.glob("*.json")]
    return tuple(sorted(found, key=version_key))


def version_key(version: str) -> tuple[int, ...]:
    """A version text as numbers that compare; parts that are no number count as 0."""
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split("."))


@functools.cache
def load(version: str | None = None) -> RocksdbCatalogue:
    """The catalogue of ``version``, or of the newest one that ships.

    Raises InvalidInput if that version has no snapshot.
    """
    known = versions()
    chosen = version if version is not None else known[-1]
    if chosen not in known:
        raise InvalidInput(
            f"there is no catalogue of RocksDB {chosen}",
            where="engine version",
            hint=f"shipped: {', '.join(known)}; `python -m knobs.rocksdb.snapshot` makes the installed one's",
        )
    return RocksdbCatalogue(json.loads((_SNAPSHOTS / f"{chosen}.json").read_text(encoding="utf-8")))


def _knob(entry: Mapping[str, Any]) -> Knob:
    name: str = entry["name"]
    low, high = BOUNDS.get(name) or values.INTEGER_TYPES.get(entry["type"]) or (None, None)
    return Knob(
        name=name,
        kind=entry["kind"],
        type=entry["type"],
        default=entry["default"],
        documentation=entry["documentation"],
        source=Source(entry["file"], entry["line"]),
        unit=entry["unit"],
        minimum=low,
        maximum=high,
        choices=tuple(entry["choices"]),
        dynamic=entry["dynamic"],
        settable=entry["settable"],
        deprecated=entry["deprecated"],
        outside=name in OUTSIDE,
        tuning=RANGES.get(name),
        meaning=MEANINGS.get(name),
    )
