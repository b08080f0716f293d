"""Names and numbers of result folders."""

from __future__ import annotations

import errno
import re
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
