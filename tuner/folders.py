"""Names and numbers of result folders."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from knobs.contract import Contract
from knobs.errors import InvalidInput, MachineLacks

RESULTS = Path("results")


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

    Raises InvalidInput where the named one holds something: it is what somebody asked to be kept.
    """
    if named is None:
        return make(numbered(RESULTS / default))
    if named.is_dir() and any(named.iterdir()):
        raise InvalidInput(
            "the folder holds something already, and a run is not resumed",
            where=str(named),
            hint="name a new folder, or leave --study out: results are numbered then",
        )
    return make(named)


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


def make(folder: Path) -> Path:
    """Create a result folder.

    Raises InvalidInput if it cannot be made or has no name in UTF-8, MachineLacks on a full disk.
    """
    refuse_unreadable(folder)
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
