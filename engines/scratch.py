"""Scratch folders and shared memory files that must not outlive duratune."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """Where duratune keeps what it must remember between runs: $XDG_STATE_HOME/duratune.

    The default of XDG_STATE_HOME is ~/.local/state (XDG Base Directory Specification). Not created here.
    """
    base = os.environ.get("XDG_STATE_HOME")
    # The specification says that a relative path is to be ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state"
    return root / "duratune"
