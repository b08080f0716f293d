"""Where a result comes from: which duratune, asked for what, on which machine."""

from __future__ import annotations

import importlib.metadata
import subprocess
from pathlib import Path

import knobs

GIT_TIMEOUT_S = 5.0


def version() -> str:
    """The version of the installed distribution; "unknown" when it runs from sources not installed."""
    try:
        return importlib.metadata.version("duratune")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def commit() -> str | None:
    """The git commit of the checkout that this code runs from, with "+changes" if files differ from it.

    None when it does not run from a checkout, or git cannot tell.
    """
    checkout = _checkout()
    if checkout is None:
        return None
    revision = _git(checkout, "rev-parse", "--short=12", "HEAD")
    if revision is None:
        return None
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no")
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
