"""The proof's journal: one line for each finished (row, seed), so that a rerun goes on where it stopped.

The first line names the commit. Results of another commit are put aside under its name and everything
starts anew, unless DURATUNE_PROOF_KEEP is set. The last line may be torn by a kill; it is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KEEP_VARIABLE = "DURATUNE_PROOF_KEEP"


class Journal:
    """Results by (table, row, seed); each is written as soon as it is there."""

    def __init__(self, path: Path, commit: str) -> None:
        self._path = path
        self.results: dict[tuple[str, int], dict[str, Any]] = {}
        lines = _whole_lines(path)
        keep = bool(os.environ.get(KEEP_VARIABLE))
        if lines and lines[0].get("commit") != commit and not keep:
            path.rename(path.with_name(f"{path.stem}-{lines[0].get('commit')}{path.suffix}"))
            lines = []
        path.parent.mkdir(parents=True, exist_ok=True)
        commits = [line["commit"] for line in lines if "commit" in line]
        lines = [line for line in lines if "commit" not in line]
        self.commits = list(dict.fromkeys([*commits, commit]))
        for line in lines:
            self.results[line["row"], line["seed"]] = line
        whole = [{"commit": each} for each in self.commits] + lines
        path.write_text("".join(json.dumps(line) + "\n" for line in whole), encoding="utf-8")

    def finished(self, row: str, seed: int) -> dict[str, Any] | None:
        return self.results.get((row, seed))

    def add(self, row: str, seed: int, result: Mapping[str, Any]) -> dict[str, Any]:
        line = {"row": row, "seed": seed, **result}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.results[row, seed] = line
        return line


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # Torn by a kill: that row is run again.
    return found
