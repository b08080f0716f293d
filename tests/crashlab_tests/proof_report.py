"""docs/verdicts.md: what the proof counted, with command, date and host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from crashlab.controls import Control
from engines import host
from engines.rocksdb.engine import RocksdbEngine
from tests.crashlab_tests.proof_journal import Journal
from tests.crashlab_tests.verdict_table import MEASURE, RECORD, ROWS, STATES, Expected, Row


def render(
    journal: Journal, interruptions: Journal, controls: Sequence[Control], seeds: int, checkout: Path
) -> str:
    """The page as Markdown; ``seeds`` is how many each row is to have."""
    parts = [
        _head(journal, checkout),
        _table(journal, seeds),
        _foot(journal, controls),
        _signals(interruptions),
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _signals(interruptions: Journal) -> list[str]:
    results = list(interruptions.results.values())
    counts = Counter(str(result["row"]) for result in results)
    by_signal = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    faults = [f"- {fault}" for result in results for fault in result["faults"]]
    return [
        "`duratune crash` was ended by a signal at a random moment, and its exit code, processes, shared",
        "memory and scratch folders were looked at (after a SIGKILL once `doctor --clean` had run):",
        f"{len(results)} times ({by_signal}); something was wrong or left behind in"
        f" {sum(bool(result['faults']) for result in results)}.",
        *faults,
    ]


INTRODUCTION = f"""\
# Verdicts

Each row is `duratune crash rocksdb --workload ycsb:a` with these settings over RocksDB's defaults. Each
seed is a run that is measured for {MEASURE.measure_s:g} s and killed, and a recorded run of
{RECORD.operations} operations that is made into {STATES} crash states (models `cache` and `synced`). All
contracts of a row are judged on the same runs. The numbers say in how many seeds the verdict, and its
reason where one is named, was the one that must come out.

Not in the states of this table: a write to the WAL that a SIGKILL cuts in two. `cache` takes it as whole or
absent; only the real kill can show it. A SIGKILL does cut one now and then, and `kAbsoluteConsistency`
refuses to open what is left (seen in 1 of 25 plain kills with sync=false, in 0 of 25 with sync=true).
"""


def _head(journal: Journal, checkout: Path) -> list[str]:
    machine, disk = host.describe(), host.file_system(checkout)
    return [
        INTRODUCTION,
        "- command: `make proof` (this page is written by it)",
        f"- date: {datetime.now(UTC).date().isoformat()}",
        f"- duratune: commit {', '.join(journal.commits)}",
        f"- host: {machine.cpu_model}, {machine.cpus} CPUs, kernel {machine.kernel}, {disk.type}",
        f"- engine: RocksDB {RocksdbEngine().version()}",
    ]


def _table(journal: Journal, seeds: int) -> list[str]:
    lines = ["| settings | contract | must be | right / seeds |", "|---|---|---|---|"]
    lines += [_line(journal, row, expected, seeds) for row in ROWS for expected in row.expected]
    return lines


def _line(journal: Journal, row: Row, expected: Expected, seeds: int) -> str:
    results = [result for (name, _), result in journal.results.items() if name == row.name]
    right = sum(result["contracts"][expected.contract]["right"] for result in results)
    unfinished = f" ({len(results)} of {seeds} run)" if len(results) != seeds else ""
    wanted = " ".join(filter(None, [expected.verdict.value, expected.reason]))
    contract = f"`{expected.contract}`" + ("" if expected.of == "whole" else " at the process crash")
    return f"| {row.name} | {contract} | {wanted} | {right} / {len(results)}{unfinished} |"


def _foot(journal: Journal, controls: Sequence[Control]) -> list[str]:
    results = list(journal.results.values())
    wrong_controls = [control.name for control in controls if not control.right]
    disagreeing = sum(bool(result["audit_faults"]) for result in results)
    lines = [
        f"- crash states recovered and judged: {sum(result['states'] for result in results)}",
        f"- pairs of runs (one killed, one recorded): {len(results)}",
        f"- acknowledgements audited: {sum(result['acks_audited'] for result in results)}",
        f"- `synced` states held against the audit: {sum(result['audit_states'] for result in results)}",
        "- pairs of runs in which an acknowledgement that the audit calls exposed was there, or a covered one"
        f" was gone without a setting that explains it: {disagreeing}",
        f"- controls of the last batch: {len(controls)}, wrong: {', '.join(wrong_controls) or 'none'}",
    ]
    faults = [
        f"- {result['row']}, seed {result['seed']}: {'; '.join(result['faults'] + result['audit_faults'])}"
        for result in results
        if result["faults"] or result["audit_faults"]
    ]
    return [*lines, *(["", "Not as the table says:", "", *faults] if faults else [])]
