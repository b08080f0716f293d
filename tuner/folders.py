"""Names and numbers of result folders."""

from __future__ import annotations

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


def make(folder: Path) -> Path:
    """Create a result folder. Raises InvalidInput if it cannot be made, MachineLacks on a full disk."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        kind = MachineLacks if error.errno == 28 else InvalidInput
        raise kind(
            f"results cannot be written: {error.strerror}",
            where=str(folder),
            hint="name another folder: --study DIR",
        ) from error
    return folder
