"""The installed RocksDB, asked through `duratune-rocksdb-options`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knobs import native
from knobs.errors import InvalidInput, MachineLacks

TOOL = "duratune-rocksdb-options"

# The tool answers in well under a second; opening a database on a busy disk may take longer.
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Probe:
    """The library's answer to one value: what it prints for it, or why it refuses it."""

    accepted: bool
    text: str

    @property
    def registered(self) -> bool:
        """Whether the library knows the option's name at all."""
        return self.accepted or "Could not find option" not in self.text


def options() -> dict[str, Any]:
    """Version, defaults by section, options changeable at run time, linked compressions.

    Raises MachineLacks where the tool is not built.
    """
    answer: dict[str, Any] = json.loads(_run(["options"]))
    return answer


def probe(values: Iterable[tuple[str, str, str]]) -> list[Probe]:
    """One answer for each (section, name, value), each set alone on the defaults.

    Raises MachineLacks where the tool is not built.
    """
    lines = "".join(f"{section}\t{name}\t{value}\n" for section, name, value in values)
    answers = _run(["probe"], lines).splitlines()
    return [Probe(answer.startswith("ok\t"), answer.partition("\t")[2]) for answer in answers]


def roundtrip(file: Path) -> str:
    """The OPTIONS text that the library prints after it has loaded ``file`` strictly.

    Raises InvalidInput with RocksDB's message if it refuses, MachineLacks where the tool is not built.
    """
    return _run(["roundtrip", str(file)])


def open_database(file: Path, folder: Path) -> str:
    """The OPTIONS text in force after a database in ``folder`` was opened (created) with ``file``.

    Raises InvalidInput with RocksDB's message if it refuses, MachineLacks where the tool is not built.
    """
    return _run(["open", str(file), str(folder)])


def write_one(file: Path, folder: Path, *flags: str) -> None:
    """Opens as `open_database` and writes one record with the WriteOptions in ``flags`` (sync, disableWAL).

    Raises InvalidInput with RocksDB's message if it refuses, MachineLacks where the tool is not built.
    """
    _run(["write", str(file), str(folder), *flags])


def _run(arguments: list[str], text: str = "") -> str:
    done = subprocess.run(
        [str(native.find(TOOL)), *arguments],
        input=text,
        capture_output=True,
        encoding="utf-8",
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode == 0:
        return done.stdout
    message = done.stderr.strip() or f"{TOOL} ended with code {done.returncode}"
    if done.returncode == 2:
        raise InvalidInput(f"RocksDB refuses: {message}", where=" ".join(arguments[1:]))
    if done.returncode == 127:
        raise MachineLacks(message, where=TOOL, hint="install librocksdb and build duratune again")
    # RocksDB's own assertions abort the process: the values reached code that never expected them.
    raise InvalidInput(f"RocksDB aborted: {message}", where=" ".join(arguments[1:]))
