"""Names and numbers of result folders."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engines.lock import LOCK_NAME, exclusive
from knobs.contract import Contract
from knobs.errors import InvalidInput, MachineLacks

RESULTS = Path("results")
RECORDING = "recording"
"""What a run may have written into its folder before its document."""


def default_name(engine: str, workload: str, contract: Contract, prefix: str = "") -> str:
    """`results/<engine>-<workload>-<contract>`, in characters that every file system takes."""
    name = f"{prefix}{engine}-{workload}-{contract}"
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-").lower()


def numbered(folder: Path) -> Path:
    """The folder itself if it does not exist, else the first of folder-2, folder-3 ... that does not."""
    candidate, number = folder, 2
    while candidate.exists():
        candidate = folder.with_name(f"{folder.name}-{number}")
        number += 1
    return candidate


def for_one_run(named: Path | None, default: str) -> Path:
    """The folder of a run that cannot be resumed: the named one as it is, else the next of the default's.

    What a killed run has left of its default folder is removed first, since nothing can be made of it.
    Raises InvalidInput where the named one holds something: it is what somebody asked to be kept.
    """
    if named is None:
        _remove_abandoned(RESULTS / default)
        return make(numbered(RESULTS / default))
    if named.is_dir() and any(named.iterdir()):
        raise InvalidInput(
            "the folder holds something already, and a run is not resumed",
            where=str(named),
            hint="name a new folder, or leave --study out: results are numbered then",
        )
    return make(named)


def _remove_abandoned(folder: Path) -> None:
    """Remove those of folder, folder-2 ... whose run was killed: only its own files, and no document."""
    candidate, number = folder, 2
    while candidate.exists():
        if _is_abandoned(candidate):
            shutil.rmtree(candidate, ignore_errors=True)
        candidate = folder.with_name(f"{folder.name}-{number}")
        number += 1


def _is_abandoned(folder: Path) -> bool:
    """Whether a run began here and neither goes on nor came to its end.

    A run that ends in any way but by SIGKILL empties its lock file, or takes the folder with it.
    """
    lock = folder / LOCK_NAME
    if folder.is_symlink() or not lock.is_file() or lock.stat().st_size == 0:
        return False
    if any(path.name not in (LOCK_NAME, RECORDING) for path in folder.iterdir()):
        return False
    try:
        with exclusive(folder):
            return True
    except InvalidInput:
        return False


@contextmanager
def kept_with(folder: Path, *names: str) -> Iterator[None]:
    """Remove the folder at the end where none of ``names`` (glob patterns) is in it: nothing was found out.

    To be used by the process that has the folder to itself.
    """
    try:
        yield
    finally:
        if not any(any(folder.glob(name)) for name in names):
            shutil.rmtree(folder, ignore_errors=True)
            if folder.parent == RESULTS:
                # It may hold other results, and is then left as it is.
                with suppress(OSError):
                    RESULTS.rmdir()


def refuse_unreadable(folder: Path) -> None:
    """Raises InvalidInput for a path that is no UTF-8, or none in this locale: the driver is told of it so.

    Python keeps the bytes of such a name as lone surrogates (os.fsdecode).
    """
    try:
        str(folder.absolute()).encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(
            "the folder's name is not UTF-8, or this locale is not",
            where=str(folder.absolute()),
            hint="set LC_ALL=C.UTF-8, or work in a folder of another name",
        ) from None


def _refuse_other_than_folder(folder: Path) -> None:
    """mkdir(2) says of both that the file exists."""
    if folder.is_symlink() and not folder.exists():
        what = f"is a symbolic link to {folder.readlink()}, which is not there"
    elif folder.exists() and not folder.is_dir():
        what = "is a file, and no folder"
    else:
        return
    raise InvalidInput(what, where=str(folder), hint="name another folder: --study DIR")


def make(folder: Path) -> Path:
    """Create a result folder.

    Raises InvalidInput if it cannot be made or has no name in UTF-8, MachineLacks on a full disk.
    """
    refuse_unreadable(folder)
    _refuse_other_than_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        kind = MachineLacks if error.errno in (errno.ENOSPC, errno.EDQUOT) else InvalidInput
        raise kind(
            f"results cannot be written: {error.strerror}",
            where=str(folder),
            hint="name another folder: --study DIR",
        ) from error
    return folder
