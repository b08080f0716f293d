"""Which user the server runs as.

PostgreSQL refuses to run as root. duratune as anyone else runs it as itself; duratune as root gives the
server an unprivileged user of its own accord: `nobody`, since a production cluster on the same host is
usually `postgres`' and the server under test is to have no hold on it; else `postgres`.

What the server needs must be within that user's reach. Its data lie where the user of duratune asked
for them, also below folders that the server's user may not pass (a home folder, results of mode 0700):
then the server gets its data folder as an open descriptor, and its path is /proc/self/fd/N, which
proc(5) resolves without walking the folders above.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from knobs.errors import InvalidInput, MachineLacks

CANDIDATES = ("nobody", "postgres")
_TEST_DEADLINE_S = 20.0


@dataclass(frozen=True)
class ServerUser:
    """The user of the server's processes; ``is_other`` tells whether it is not duratune's own."""

    name: str
    uid: int
    gid: int
    is_other: bool

    @property
    def note(self) -> str:
        """One sentence for the user where somebody else was chosen, else ""."""
        return f"PostgreSQL refuses to run as root: the server runs as {self.name}" if self.is_other else ""

    def give(self, path: Path) -> None:
        """Make ``path`` this user's own; nothing to do where it is duratune's too."""
        if self.is_other:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def may(self, path: Path, what: str) -> bool:
        """Whether this user may read ("r"), write ("w"), or run or pass ("x") this path.

        The kernel is asked by a process of that user: mode bits alone do not tell (ACLs, idmapped mounts).
        """
        if not self.is_other:
            return os.access(path, {"r": os.R_OK, "w": os.W_OK, "x": os.X_OK}[what])
        command = ["test", f"-{what}", str(path)]
        done = subprocess.run(command, **self.popen(), timeout=_TEST_DEADLINE_S, check=False)
        return done.returncode == 0

    def may_pass(self, folder: Path) -> bool:
        """Whether this user may pass a folder; asked once for each."""
        return _may_pass(self, folder)

    def popen(self) -> dict[str, Any]:
        """The arguments that make `subprocess` start a process as this user, with none of root's groups."""
        if not self.is_other:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": [], "cwd": "/"}


@lru_cache(maxsize=1024)
def _may_pass(user: ServerUser, folder: Path) -> bool:
    return user.may(folder, "x")


def choose(name: str | None = None) -> ServerUser:
    """The user for the server; ``name`` asks for one, which only root may.

    Raises InvalidInput for a user that does not exist, is root, or cannot be had; MachineLacks where
    root can become nobody else (a container without CAP_SETUID, or with one user only).
    """
    own = _entry(os.geteuid())
    if os.geteuid() != 0:
        if name not in (None, own.name):
            raise InvalidInput(
                f"the server cannot run as {name}",
                where=own.name,
                hint="only root can run it as somebody else",
            )
        return own
    if name is not None:
        return _named(name)
    tried = []
    for candidate in CANDIDATES:
        try:
            return _named(candidate)
        except (InvalidInput, MachineLacks) as error:
            tried.append(str(error))
    raise MachineLacks(
        f"PostgreSQL refuses to run as root, and no other user can be had ({'; '.join(tried)})",
        where="root",
        hint="run duratune as an unprivileged user, or give the container CAP_SETUID and CAP_SETGID",
    )


def _named(name: str) -> ServerUser:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise InvalidInput("no such user", where=name, hint="name a user of this machine") from None
    if entry.pw_uid == 0:
        raise InvalidInput("PostgreSQL refuses to run as root", where=name, hint="name another user")
    user = ServerUser(name, entry.pw_uid, entry.pw_gid, is_other=True)
    try:
        reached = user.may(Path("/"), "x")
    except OSError as error:
        raise MachineLacks(
            f"root cannot become this user: {error.strerror}",
            where=name,
            hint="the container needs CAP_SETUID and CAP_SETGID",
        ) from error
    if not reached:
        raise MachineLacks("this user cannot run a program", where=name, hint="name another user")
    return user


def _entry(uid: int) -> ServerUser:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        # initdb looks its user up and gives up where there is no name.
        raise MachineLacks(
            f"user {uid} has no name, and initdb needs one",
            where="/etc/passwd",
            hint="run as a user that the machine knows (docker: --user with an entry in /etc/passwd)",
        ) from None
    return ServerUser(entry.pw_name, uid, os.getegid(), is_other=False)
