"""A CONFIG argument: what people have, read into settings under full names.

Recognised by content, not by file name: a RocksDB OPTIONS file, our JSON (flat `{"name": value}`, or with the
values under `"settings"`), or an option string `name=value;name=value`. Several files joined by `+` are one
configuration, and the later wins. What names a path, command or library outside the data folder is taken out
of the settings and listed as a finding, because a run keeps to its own folder.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knobs.catalogue import Catalogue, Settings, load, resolve_all
from knobs.errors import InvalidInput
from knobs.finding import Finding
from knobs.text import decoded

if TYPE_CHECKING:
    from knobs.rocksdb.options_file import OptionsFile

# Engine name -> module that reads its own file: `recognises(text)` and `parse(content, where)`, whose
# result has `settings(part)`, `without(names)` and `findings`; imported only when needed.
FILE_FORMATS: dict[str, str] = {"rocksdb": "knobs.rocksdb.options_file"}

# No configuration that people write comes near this; a database file given by mistake does.
_BYTES_MAX = 4 * 1024 * 1024

_OPTION_STRING = re.compile(r"\s*[A-Za-z_][\w.]*\s*=[^\[\]\n]*(;[^\[\]\n]*)?\s*")


@dataclass(frozen=True)
class Configuration:
    """Settings as the files state them (full names), and what reading them noticed.

    ``options_file`` is the last OPTIONS file among the sources, for its other column families, without what
    names something outside; None where there is none. What is run is `options_file.apply(settings)`.
    """

    engine: str
    settings: Settings
    options_file: OptionsFile | None = None
    sources: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = field(default=())


def read(engine: str, argument: str, *, column_family: str = "default") -> Configuration:
    """Reads CONFIG: one file, or several joined by `+`.

    Values are not checked here (`Catalogue.validate` does). Raises InvalidInput for a file that cannot be
    read, is none of the known forms, or states unknown names.
    """
    catalogue = load(engine)
    whole = Configuration(engine, {})
    for name in _split(argument):
        whole = _joined(whole, _read_one(catalogue, name, column_family))
    return whole


def with_settings(configuration: Configuration, settings: Mapping[str, str]) -> Configuration:
    """The configuration with these settings (full names) laid over it, as `--set` does."""
    kept, outside = _without_outside(load(configuration.engine), settings, "--set")
    return _joined(configuration, Configuration(configuration.engine, kept, None, (), tuple(outside)))


def parse_settings(engine: str, pairs: Sequence[str]) -> Settings:
    """The values of `--set NAME=VALUE ...` under full names; a later one wins.

    Raises InvalidInput with every fault: no `=`, an empty or an unknown name.
    """
    faults, given = [], {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            faults.append(f"'{pair}' is no NAME=VALUE")
        else:
            given[name.strip()] = value.strip()
    catalogue = load(engine)
    resolved: Settings = {}
    for name, value in given.items():
        try:
            resolved[catalogue.resolve(name)] = value
        except InvalidInput as error:
            faults.append(error.what)
    if faults:
        # The values of the names that are known are told too, so that one message has every fault.
        try:
            catalogue.validate(resolved)
        except InvalidInput as error:
            faults.append(error.what)
        raise InvalidInput(
            "; ".join(faults), where="--set", hint=f"`duratune knobs {engine}` lists every name"
        )
    return resolved


def _split(argument: str) -> list[str]:
    """A `+` joins files, unless the whole argument is the name of one."""
    if Path(argument).is_file():
        return [argument]
    parts = argument.split("+")
    if any(not part for part in parts):
        raise InvalidInput(f"'{argument}' names an empty file", where="CONFIG", hint="join files as A+B")
    return parts


def _read_one(catalogue: Catalogue, name: str, column_family: str) -> Configuration:
    content = _content(name)
    text = decoded(content, name)
    file_format = importlib.import_module(FILE_FORMATS[catalogue.engine])
    file: OptionsFile | None = None
    findings: list[Finding] = []
    if text.lstrip().startswith("{"):
        stated = resolve_all(catalogue, _json_settings(text, name, catalogue.engine), where=name)
    elif file_format.recognises(text):
        file = file_format.parse(content, name)
        stated, findings = file.settings(column_family), list(file.findings)
    elif _OPTION_STRING.fullmatch(text):
        stated = resolve_all(catalogue, _string_settings(text, name), where=name)
    else:
        raise InvalidInput(
            "this is neither an OPTIONS file nor JSON",
            where=name,
            hint='give RocksDB\'s OPTIONS-nnnnnn file, or JSON like {"DBOptions.max_open_files": 512}',
        )
    kept, outside = _without_outside(catalogue, stated, name)
    if file is not None:
        file = file.without({knob.name for knob in catalogue.knobs() if knob.outside})
    return Configuration(catalogue.engine, kept, file, (name,), (*findings, *outside))


def _content(name: str) -> bytes:
    path = Path(name)
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise InvalidInput(
                "the file is too large for a configuration", where=name, hint="is it a database file?"
            )
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"cannot read the file: {error.strerror}", where=name, hint="CONFIG is the path of a file"
        ) from error


def _json_settings(text: str, where: str, engine: str) -> Settings:
    try:
        document: Any = json.loads(text, object_pairs_hook=_no_repetition)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"line {error.lineno} is no JSON: {error.msg}", where=where, hint="see docs/knobs.md for the form"
        ) from error
    except _Repeated as error:
        raise InvalidInput(f"'{error}' stands twice", where=where, hint="keep one of them") from error
    if "settings" in document:
        _check_engine(document.get("engine", engine), engine, where)
        document = document["settings"]
    if not isinstance(document, dict):
        raise InvalidInput("settings must be an object", where=where, hint='{"settings": {"name": "value"}}')
    faults = [
        f"{name}: a value is text, a number or true/false" for name, v in document.items() if not _is_plain(v)
    ]
    if faults:
        raise InvalidInput(
            "; ".join(faults), where=where, hint='write nested values as RocksDB does: "{a=1;}"'
        )
    return {name: _text(value) for name, value in document.items()}


class _Repeated(Exception):
    """A name that stands twice in one JSON object."""


def _no_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise _Repeated(name)
    return dict(pairs)


def _check_engine(named: object, engine: str, where: str) -> None:
    if named != engine:
        raise InvalidInput(
            f"this is a configuration of {named}", where=where, hint=f"it is used for {engine}"
        )


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _string_settings(text: str, where: str) -> Settings:
    settings: Settings = {}
    depth, start = 0, 0
    stripped = text.strip()
    for index, character in enumerate(stripped + ";"):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == ";" and depth == 0:
            part, start = stripped[start:index].strip(), index + 1
            if not part:
                continue
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or not name:
                raise InvalidInput(f"'{part}' is no name=value", where=where, hint="name=value;name=value")
            settings[name] = value
    return settings


def _without_outside(
    catalogue: Catalogue, settings: Mapping[str, str], where: str
) -> tuple[Settings, list[Finding]]:
    kept: Settings = {}
    findings: list[Finding] = []
    for name, value in settings.items():
        knob = catalogue.knob(name)
        if not knob.outside or value in ("", "nullptr", "{}"):
            kept[name] = value
            continue
        findings.append(
            Finding(
                "outside-overridden",
                name,
                value,
                "",
                "nothing",
                "it names something outside the data folder and is overridden to the private folder",
                where,
            )
        )
    return kept, findings


def _joined(first: Configuration, second: Configuration) -> Configuration:
    return Configuration(
        first.engine,
        {**first.settings, **second.settings},
        second.options_file or first.options_file,
        (*first.sources, *second.sources),
        (*first.findings, *second.findings),
    )
