"""Which PostgreSQL is used: the folder of its programs, and what it calls itself.

Looked for in this order: the named folder; Debian's /usr/lib/postgresql/MAJOR/bin (postgresql-common(7));
the PATH. Of several the newest is taken, and the note says so. An installation that was merely unpacked
is welcome: its programs find their own files from where they lie, and `environment` names its libraries.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from knobs.errors import InvalidInput, MachineLacks

MAJOR_MIN, MAJOR_MAX = 13, 18
DEBIAN_FOLDER = Path("/usr/lib/postgresql")
VERSION_DEADLINE_S = 20.0

# pg_amcheck came with PostgreSQL 14 (its release notes).
_PROGRAMS = ("postgres", "initdb", "pg_controldata", "pg_checksums", "pgbench", "pg_amcheck")
_AMCHECK_MAJOR_MIN = 14
_DEBIAN_PACKAGE = {"pg_amcheck": "postgresql-client-{major}"}


@dataclass(frozen=True, order=True)
class Version:
    """What `postgres --version` says: 15.18, or 19 with ``minor`` 0 before its release."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True)
class Binaries:
    """One installed PostgreSQL. ``note`` is "" or tells the user which of several was taken."""

    folder: Path
    version: Version
    full_version: str
    note: str = ""

    def program(self, name: str) -> Path:
        """One of its programs, such as ``pgbench``. Raises MachineLacks if it is not there."""
        path = self.folder / name
        if not os.access(path, os.X_OK):
            raise _missing([name], self.folder, self.version)
        return path

    def environment(self) -> dict[str, str]:
        """What its programs need besides a PATH: where the libraries of an unpacked one lie."""
        beside = self.folder.parent / "lib"
        return {"LD_LIBRARY_PATH": str(beside)} if any(beside.glob("libpq.so*")) else {}


def find(folder: Path | None = None, search_path: str | None = None) -> Binaries:
    """The PostgreSQL to use; ``folder`` is the one that holds its programs (``--bindir``).

    ``search_path`` stands for PATH. Raises InvalidInput if ``folder`` holds no PostgreSQL of major
    version 13 to 18, MachineLacks if none is installed or one of its programs is missing.
    """
    if folder is not None:
        return _complete(_named(folder))
    found = sorted(_installed(search_path), key=lambda one: one.version)
    usable = [one for one in found if MAJOR_MIN <= one.version.major <= MAJOR_MAX]
    if not usable:
        seen = f" (found only {', '.join(str(one.version) for one in found)})" if found else ""
        raise MachineLacks(
            f"no PostgreSQL {MAJOR_MIN} to {MAJOR_MAX} is installed{seen}",
            where="PostgreSQL",
            hint="install the Debian package postgresql, or name the folder of its programs with --bindir",
        )
    newest = usable[-1]
    if len(usable) > 1:
        others = ", ".join(f"{one.version} in {one.folder}" for one in usable[:-1])
        note = f"PostgreSQL {newest.version} in {newest.folder} is used, the newest; also there: {others}"
        newest = Binaries(newest.folder, newest.version, newest.full_version, note)
    return _complete(newest)


def parse_version(text: str) -> Version | None:
    """The version in `postgres --version`: "postgres (PostgreSQL) 15.18 (Debian ...)"; None if none."""
    found = re.match(r"\S+ \(PostgreSQL\) (\d+)(?:\.(\d+))?", text)
    return Version(int(found[1]), int(found[2] or 0)) if found else None


def _named(folder: Path) -> Binaries:
    folder = folder.absolute()
    found = _ask(folder)
    if found is None:
        inner = [place for place in (folder / "bin", *folder.glob("*/bin")) if (place / "postgres").exists()]
        raise InvalidInput(
            "holds no program postgres that runs",
            where=str(folder),
            hint=f"name {inner[0]}" if inner else "name the folder that holds postgres and initdb",
        )
    if not MAJOR_MIN <= found.version.major <= MAJOR_MAX:
        raise InvalidInput(
            f"holds PostgreSQL {found.version}",
            where=str(folder),
            hint=f"duratune works with {MAJOR_MIN} to {MAJOR_MAX}",
        )
    return found


def _installed(search_path: str | None) -> list[Binaries]:
    """Debian's; only where there is none, the PATH's, so that a wrapper script is never preferred."""
    found = _asked(sorted(DEBIAN_FOLDER.glob("*/bin")))
    if found:
        return found
    on_path = shutil.which("postgres", path=search_path)
    return _asked([Path(on_path).resolve().parent] if on_path else [])


def _asked(folders: Sequence[Path]) -> list[Binaries]:
    return [found for found in map(_ask, folders) if found is not None]


def _ask(folder: Path) -> Binaries | None:
    command = [str(folder / "postgres"), "--version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=VERSION_DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = parse_version(done.stdout)
    return Binaries(folder, version, done.stdout.strip()) if version else None


def _complete(found: Binaries) -> Binaries:
    wanted = [name for name in _PROGRAMS if name != "pg_amcheck" or found.version.major >= _AMCHECK_MAJOR_MIN]
    missing = [name for name in wanted if not os.access(found.folder / name, os.X_OK)]
    if missing:
        raise _missing(missing, found.folder, found.version)
    return found


def _missing(names: Sequence[str], folder: Path, version: Version) -> MachineLacks:
    packages = {_DEBIAN_PACKAGE.get(name, "postgresql-{major}").format(major=version.major) for name in names}
    return MachineLacks(
        f"PostgreSQL {version} lacks {', '.join(names)}",
        where=str(folder),
        hint=f"install the Debian package {' and '.join(sorted(packages))}",
    )
