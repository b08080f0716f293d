"""docs/detection.md: of each planted bug in how many seeds which models and recorders caught it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engines import host
from engines.postgresql import binaries
from engines.rocksdb.engine import RocksdbEngine
from tests.crashlab_tests.detection.bugs import Bug
from tests.crashlab_tests.proof_journal import Journal

HEAD = """\
# Detection

Bugs that are planted, and in how many seeds the lab catches each: a library turns chosen syncs into
nothing, delays them or sends them elsewhere; settings give up a promise; a mount has no barriers; recovery
is given what it must not read. One seed is a recorded run with the bug, and the crash states of the default
plan (30) judged under the contract. It is caught where the verdict is BROKEN. The models' columns say in
how many seeds a state of that model broke.
"""
HONEST = "honest"
"""The row of a configuration without a bug."""


def render(bugs: Sequence[tuple[Bug, str]], journal: Journal, seeds: int, checkout: Path) -> str:
    """The page as Markdown: a table for each engine and recorder, and the honest runs."""
    machine = host.describe()
    parts = [
        HEAD,
        "- command: `make proof` (this page is written by it)",
        f"- date: {datetime.now(UTC).date().isoformat()}, duratune: commit {', '.join(journal.commits)}",
        f"- host: {machine.cpu_model}, {machine.cpus} CPUs, kernel {machine.kernel}, "
        f"{host.file_system(checkout).type}",
        f"- engines: RocksDB {RocksdbEngine().version()}, PostgreSQL {binaries.find().version}",
    ]
    for engine, recorder in dict.fromkeys((bug.engine, recorder) for bug, recorder in bugs):
        rows = [bug for bug, name in bugs if (bug.engine, name) == (engine, recorder)]
        parts += ["", f"## {engine}, {recorder}", "", *_table(rows, recorder, journal, seeds)]
        parts += ["", _honest(engine, recorder, journal)]
    return "\n".join(parts) + "\n"


def row_name(bug: Bug, recorder: str) -> str:
    """Under which name the journal has it."""
    return f"{recorder}: {bug.id}"


def _table(bugs: Sequence[Bug], recorder: str, journal: Journal, seeds: int) -> list[str]:
    results = {bug: _results(journal, row_name(bug, recorder)) for bug in bugs}
    models = list(dict.fromkeys(m for found in results.values() for each in found for m in each["models"]))
    lines = [
        f"| bug | contract | caught | reasons | first BROKEN, s | {' | '.join(models)} |",
        "|---|---|---|---|---|" + "---|" * len(models),
    ]
    for bug in bugs:
        found = results[bug]
        caught = sum(each["verdict"] == "BROKEN" for each in found)
        reasons = ", ".join(dict.fromkeys(reason for each in found for reason in each["reasons"]))
        times = sorted(each["first_s"] for each in found)
        first = f"{times[len(times) // 2]:.1f}" if times else ""
        by_model = [_broken_in(found, model) for model in models]
        of = f"{caught} of {len(found)}" + (f" ({seeds} wanted)" if len(found) < seeds else "")
        lines.append(f"| {bug.name} | {bug.contract} | {of} | {reasons} | {first} | {' | '.join(by_model)} |")
    return lines


def _broken_in(found: Sequence[Mapping[str, Any]], model: str) -> str:
    judged = [each["models"][model] for each in found if model in each["models"]]
    return f"{sum(broken > 0 for broken, _ in judged)}" if judged else ""


def _honest(engine: str, recorder: str, journal: Journal) -> str:
    found = _results(journal, f"{recorder}: {engine}: {HONEST}")
    broken, unknown = (sum(each["verdict"] == word for each in found) for word in ("BROKEN", "UNKNOWN"))
    return f"Honest settings: {len(found)} runs, {broken} of them BROKEN and {unknown} UNKNOWN."


def _results(journal: Journal, row: str) -> list[Mapping[str, Any]]:
    return [result for (name, _), result in sorted(journal.results.items()) if name == row]
