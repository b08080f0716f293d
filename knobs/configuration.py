"""A CONFIG argument: what people have, read into settings under full names.

Recognised by content, not by file name: a RocksDB OPTIONS file, a postgresql.conf, our JSON (flat
`{"name": value}`, or with the values under `"settings"`), or an option string `name=value;name=value`.
Several files joined by `+` are one configuration, and the later wins. What names a path, command or library
outside the data folder is taken out of the settings and listed as a finding, because a run keeps to its own
folder.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from knobs.catalogue import Catalogue, Settings, load, resolve_all
from knobs.errors import InvalidInput
from knobs.finding import Finding
from knobs.knob import Source
from knobs.text import decoded

if TYPE_CHECKING:
    from knobs.rocksdb.options_file import OptionsFile

# Engine name -> module that reads its own file (see FileFormat); imported only when needed.
FILE_FORMATS: dict[str, str] = {
    "rocksdb": "knobs.rocksdb.options_file",
    "postgresql": "knobs.postgresql.conf_file",
}

# No configuration that people write comes near this; a database file given by mistake does.
_BYTES_MAX = 4 * 1024 * 1024

_OPTION_STRING = re.compile(r"\s*[A-Za-z_][\w.]*\s*=[^\[\]\n]*(;[^\[\]\n]*)?\s*")


class EngineFile(Protocol):
    """One file of an engine's own form; ``settings`` of one part of it, where it has parts."""

    @property
    def findings(self) -> tuple[Finding, ...]: ...

    def settings(self, part: str, /) -> Settings: ...


class FileFormat(Protocol):
    """A module that reads an engine's own file.

    ``FORM`` says in words what the engine's configurations are, ``FILE_NAMES`` are patterns of the names that
    they have in a data folder.
    """

    FORM: str
    FILE_NAMES: tuple[str, ...]

    def recognises(self, text: str) -> bool: ...

    def parse(self, content: bytes, where: str) -> EngineFile: ...


@dataclass(frozen=True)
class Configuration:
    """Settings as the files state them (full names), and what reading them noticed.

    ``options_file`` is the last OPTIONS file among the sources, for its other column families, without what
    names something outside; None where there is none. What is run is `options_file.apply(settings)`.
    ``origins`` tells the file, and where it has lines the line, of each setting.
    """

    engine: str
    settings: Settings
    options_file: OptionsFile | None = None
    sources: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = field(default=())
    origins: Mapping[str, Source] = field(default_factory=dict)


def read(
    engine: str, argument: str, *, column_family: str = "default", version: str | None = None
) -> Configuration:
    """Reads CONFIG: one file, or several joined by `+`, as names of that version of the engine.

    Values are not checked here (`Catalogue.validate` does). Raises InvalidInput for a file that cannot be
    read, is none of the known forms, or states unknown names.
    """
    catalogue = load(engine, version)
    whole = Configuration(engine, {})
    for name in _split(argument):
        whole = _joined(whole, _read_one(catalogue, name, column_family))
    return whole


def with_settings(
    configuration: Configuration, settings: Mapping[str, str], version: str | None = None
) -> Configuration:
    """The configuration with these settings (full names) laid over it, as `--set` does."""
    origins = dict.fromkeys(settings, Source("--set", 0))
    kept, outside = _without_outside(load(configuration.engine, version), settings, origins)
    return _joined(
        configuration, Configuration(configuration.engine, kept, None, (), tuple(outside), _of(origins, kept))
    )


def parse_settings(
    engine: str, pairs: Sequence[str], version: str | None = None, *, where: str = "--set"
) -> Settings:
    """The values of `--set NAME=VALUE ...`, or of the option ``where``, under full names; a later one wins.

    Raises InvalidInput with every fault: no `=`, an empty or an unknown name.
    """
    faults, given = [], {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            faults.append(f"'{pair}' is no NAME=VALUE")
        else:
            given[name.strip()] = value.strip()
    catalogue = load(engine, version)
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
        raise InvalidInput("; ".join(faults), where=where, hint=f"`duratune knobs {engine}` lists every name")
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
    file_format = cast("FileFormat", importlib.import_module(FILE_FORMATS[catalogue.engine]))
    content = _content(name, file_format)
    text = decoded(content, name)
    file: EngineFile | None = None
    findings: list[Finding] = []
    if text.lstrip().startswith("{"):
        stated = resolve_all(catalogue, _json_settings(text, name, catalogue.engine), where=name)
    elif file_format.recognises(text):
        file = file_format.parse(content, name)
        stated, findings = _resolved(catalogue, file, column_family), list(file.findings)
    elif _OPTION_STRING.fullmatch(text):
        stated = resolve_all(catalogue, _string_settings(text, name), where=name)
    else:
        raise InvalidInput(
            f"this is neither {_kinds(file_format.FORM)}", where=name, hint=f"give {file_format.FORM}"
        )
    origins = {full: Source(name, 0) for full in stated}
    origins |= {catalogue.resolve(own): source for own, source in getattr(file, "origins", {}).items()}
    kept, outside = _without_outside(catalogue, stated, origins)
    return Configuration(
        catalogue.engine,
        kept,
        _options_file(file, catalogue),
        (name,),
        (*findings, *outside),
        _of(origins, kept),
    )


def _resolved(catalogue: Catalogue, file: EngineFile, part: str) -> Settings:
    """What a file states, under full names.

    Raises InvalidInput with every unknown name and, where the file knows it, the line.
    """
    origins: Mapping[str, Source] = getattr(file, "origins", {})
    stated, faults = {}, []
    for name, value in file.settings(part).items():
        if name not in origins:
            stated[name] = value  # the file has the catalogue's own names
            continue
        try:
            stated[catalogue.resolve(name)] = value
        except InvalidInput as error:
            faults.append(f"{origins[name]}: {error.what}")
    if faults:
        hint = f"`duratune knobs {catalogue.engine}` lists every name"
        raise InvalidInput("; ".join(faults), where="CONFIG", hint=hint)
    return stated


def _options_file(file: EngineFile | None, catalogue: Catalogue) -> OptionsFile | None:
    """The file itself, without what names something outside, where a run needs more than its settings."""
    if file is None or not hasattr(file, "without"):
        return None
    kept: OptionsFile = file.without({knob.name for knob in catalogue.knobs() if knob.outside})
    return kept


def _kinds(form: str) -> str:
    """ "an OPTIONS file nor JSON" of "an OPTIONS file, or JSON like ..."."""
    first, _, second = form.partition(", or ")
    return f"{first} nor {second.partition(' ')[0]}"


def _of(origins: Mapping[str, Source], kept: Settings) -> dict[str, Source]:
    return {name: origins[name] for name in kept if name in origins}


def _content(name: str, file_format: FileFormat) -> bytes:
    path = Path(name)
    if path.is_dir():
        raise _folder(path, file_format)
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


def _folder(path: Path, file_format: FileFormat) -> InvalidInput:
    files = [file for pattern in file_format.FILE_NAMES for file in sorted(path.glob(pattern))]
    hint = f"give its file {files[0]}" if files else "CONFIG is the path of a file"
    return InvalidInput("cannot read a folder as a configuration", where=str(path), hint=hint)


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
    catalogue: Catalogue, settings: Mapping[str, str], origins: Mapping[str, Source]
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
                knob.outside_why,
                str(origins[name]),
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
        {**first.origins, **second.origins},
    )
