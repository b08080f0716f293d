"""`duratune` as a program of its own, and what is kept of one that has ended."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

PROGRAM = [sys.executable, "-c", "import sys; from tuner.cli import main; sys.exit(main())"]


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found
