"""Letting processes of another user be recorded: ownership of the files, and a library they can read.

As root the server runs as an unprivileged user, and root's files are its own (0600) in folders that
nobody else may enter. The creator gives log, ledger and list to that user and puts a copy of the library
beside them; it keeps reading them itself, as root may. Where the server runs as the creator, all of this
changes nothing.

A library that the loader cannot read is left out with a mere line on standard error, and the program runs
unrecorded. So `check_loads` tries it before anything is started.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from crashlab.preload.processes import ProcessList
from knobs.errors import MachineLacks

TRY_SECONDS_MAX = 20


@dataclass(frozen=True)
class Owner:
    """The user and group that the recorded processes run as."""

    uid: int
    gid: int


def hand_over(paths: Iterable[Path], owner: Owner) -> None:
    """Give files and folders (not what is in them) to the owner; their modes stay.

    Raises MachineLacks where this process may not do that.
    """
    for path in paths:
        status = path.stat()
        if (status.st_uid, status.st_gid) == (owner.uid, owner.gid):
            continue
        try:
            os.chown(path, owner.uid, owner.gid)
        except OSError as error:
            raise MachineLacks(
                f"cannot give it to user {owner.uid}: {error.strerror}",
                where=str(path),
                hint="run as root, or as the user that the server runs as",
            ) from error


def copy_library(library: Path, folder: Path) -> Path:
    """A copy of the library in ``folder`` that every user may read and load.

    The folder itself, and those above it, must let the user in; `check_loads` tells.
    """
    to = folder / library.name
    shutil.copyfile(library, to)
    to.chmod(0o555)
    return to


def opened_to(
    runs_as: tuple[int, int] | None, folder: Path, files: Iterable[Path], environment: Mapping[str, str]
) -> dict[str, str]:
    """The recorder's environment for processes that run as somebody else, who is let at what it names.

    ``folder`` holds the files and takes copies of the libraries; it is opened for passing, not for listing.
    Nothing changes where the processes run as this one (``runs_as`` None).
    """
    if runs_as is None:
        return dict(environment)
    folder.chmod(0o711)
    hand_over(files, Owner(*runs_as))
    libraries = [_within_reach(library, folder) for library in environment["LD_PRELOAD"].split()]
    return {**environment, "LD_PRELOAD": " ".join(libraries)}


def _within_reach(library: str, folder: Path) -> str:
    """A copy of a library; one without a folder is the loader's to find (ld.so(8)), for every user alike."""
    if "/" not in library:
        return library
    if (folder / Path(library).name).exists():
        # Another one of the same name: it gets a folder of its own.
        folder = Path(tempfile.mkdtemp(dir=folder))
        folder.chmod(0o711)
    return str(copy_library(Path(library), folder))


def check_loads(environment: Mapping[str, str], owner: Owner) -> None:
    """Run a program that does nothing under the recorder's environment, as the owner.

    ``environment`` is the recorder's alone. A list of processes of its own shows that the library
    was in it. Raises MachineLacks with the loader's or the library's words where it was not.
    """
    program = shutil.which("true") or "/bin/true"
    with tempfile.TemporaryDirectory(prefix="duratune-") as name:
        folder = Path(name)
        ProcessList.create(folder / "processes", 16)
        hand_over([folder, folder / "processes"], owner)
        tried = {**environment, "DURATUNE_RECORD_PROCESSES": str(folder / "processes")}
        is_other = owner.uid != os.geteuid()
        done = subprocess.run(
            [program],
            env={"PATH": os.defpath, **tried},
            cwd="/",
            user=owner.uid if is_other else None,
            group=owner.gid if is_other else None,
            extra_groups=[] if is_other else None,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TRY_SECONDS_MAX,
            check=False,
        )
        if done.returncode == 0 and ProcessList.read(folder / "processes"):
            return
    raise MachineLacks(
        f"the recorder is not loaded into a process of user {owner.uid}: "
        f"{done.stderr.strip() or f'it ended with {done.returncode}'}",
        where=environment.get("LD_PRELOAD", ""),
        hint="put the library, the log and the ledger where that user may read them",
    )
