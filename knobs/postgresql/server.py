"""The installed PostgreSQL servers: where they are, their version, and what one makes of a value.

`postgres -C NAME` prints a setting and ends: it needs no cluster, starts nothing and may be run by root.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from knobs.errors import MachineLacks, Undecided

DEBIAN_FOLDER = Path("/usr/lib/postgresql")

_ANSWER_S = 30


@dataclass(frozen=True)
class Answer:
    """What the server printed for a setting, or None and its message."""

    value: str | None
    error: str = ""


def bindirs() -> tuple[Path, ...]:
    """The folders with a `postgres` program on this machine, oldest version first."""
    found = [file.parent for file in DEBIAN_FOLDER.glob("*/bin/postgres") if file.is_file()]
    on_path = shutil.which("postgres")
    if on_path is not None:
        folder = Path(on_path).resolve().parent
        found += [folder] if folder not in found else []
    return tuple(sorted(found, key=lambda folder: version_key(version_text(folder))))


@functools.cache
def version_text(bindir: Path) -> str:
    """The version of the server in ``bindir``, such as "15.18"; raises MachineLacks without one."""
    try:
        done = subprocess.run(
            [str(bindir / "postgres"), "--version"], capture_output=True, encoding="utf-8", timeout=_ANSWER_S
        )
    except OSError as error:
        raise MachineLacks(
            f"there is no PostgreSQL server: {error.strerror}",
            where=str(bindir),
            hint="apt-get install postgresql",
        ) from error
    match = re.search(r"\(PostgreSQL\) (\d+[\w.]*)", done.stdout)
    if match is None:
        raise Undecided("the server does not tell its version", where=str(bindir / "postgres"))
    return match[1]


def major_of(version: str) -> str:
    """The major version: "15" of "15.18", "19" of "19beta1"."""
    match = re.match(r"\d+", version)
    return match[0] if match else version


def version_key(version: str) -> tuple[int, ...]:
    """A version text as numbers that compare."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def ask(bindir: Path, settings: Mapping[str, str], name: str) -> Answer:
    """What ``name`` is under ``settings``, as the server in ``bindir`` reads them from a postgresql.conf.

    Values are read, ranges and check hooks applied; nothing is started, so rules between settings that the
    server checks at its start are not. Numbers come in the setting's own unit.
    """
    lines = [f"{key} = '{_quoted(value)}'\n" for key, value in settings.items()]
    return ask_file(bindir, "".join(lines), name)


def ask_file(bindir: Path, text: str, name: str) -> Answer:
    """What ``name`` is under a postgresql.conf with this text."""
    with tempfile.TemporaryDirectory(prefix="duratune-ask-") as scratch:
        folder = Path(scratch)
        (folder / "postgresql.conf").write_text(text, encoding="utf-8")
        return ask_folder(bindir, folder, name)


def ask_folder(bindir: Path, folder: Path, name: str, as_user: str | None = None) -> Answer:
    """What ``name`` is under the postgresql.conf (and postgresql.auto.conf) in ``folder``.

    What the server computes (shared_memory_size) it tells only of a real data directory, to its owner.
    """
    # Only as the first argument is -C allowed to root.
    done = subprocess.run(
        [str(bindir / "postgres"), "-C", name, "-D", str(folder)],
        capture_output=True,
        encoding="utf-8",
        env={"LC_ALL": "C"},
        cwd="/",
        user=as_user,
        timeout=_ANSWER_S,
    )
    if done.returncode != 0:
        return Answer(None, done.stderr)
    return Answer(done.stdout.removesuffix("\n"), done.stderr)


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n").replace("\r", "\\r")
