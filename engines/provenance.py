"""Where a result comes from: which duratune, asked for what, on which machine."""

from __future__ import annotations

import importlib.metadata
import shlex
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import knobs
from engines import host

GIT_TIMEOUT_S = 5.0


def provenance(data_folder: Path, *, seed: int | None) -> dict[str, Any]:
    """The part of a result's ``provenance`` that does not depend on engine or workload, as JSON values.

    ``data_folder`` is where the engine's files lie; the time is now, so call it when the work starts.
    Memory is in bytes. Raises OSError if the file system cannot be asked.
    """
    machine = host.describe()
    disk = host.file_system(data_folder)
    return {
        "duratune": {"version": version(), "commit": commit()},
        "command": shlex.join(["duratune", *sys.argv[1:]]),
        "seed": seed,
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel": machine.kernel,
        "architecture": machine.architecture,
        "file_system": disk.type,
        "mount_options": disk.options,
        "device": disk.device,
        "cpu": {"model": machine.cpu_model, "count": machine.cpus},
        "memory_bytes": machine.memory_bytes,
        "limits": {**asdict(machine.limits), "open_files": machine.open_files_max},
    }


PAGES = (":(exclude)docs", ":(exclude)*.md")
"""What git is told to leave out (gitglossary(7), pathspec)."""


def version() -> str:
    """The version of the installed distribution; "unknown" when it runs from sources not installed."""
    try:
        return importlib.metadata.version("duratune")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def commit() -> str | None:
    """The git commit of the checkout that this code runs from, with "+changes" if files differ from it.

    Pages (docs, Markdown) do not count: they change nothing that runs, and some are written by runs.
    None when it does not run from a checkout, or git cannot tell.
    """
    checkout = _checkout()
    if checkout is None:
        return None
    revision = _git(checkout, "rev-parse", "--short=12", "HEAD")
    if revision is None:
        return None
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", ".", *PAGES)
    return revision + ("+changes" if changed else "")


def _checkout() -> Path | None:
    root = Path(knobs.__path__[0]).resolve().parent
    return root if (root / ".git").exists() and (root / "CMakeLists.txt").exists() else None


def _git(checkout: Path, *arguments: str) -> str | None:
    # Without optional locks: reading a commit must not disturb somebody's own git command.
    command = ["git", "--no-optional-locks", "-C", str(checkout), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
