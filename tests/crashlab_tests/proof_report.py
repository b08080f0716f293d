"""docs/verdicts.md: what the proof counted, with command, date and host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from crashlab.controls import Control
from crashlab.judging.verdict import Verdict
from engines import host
from engines.postgresql import binaries
from engines.rocksdb.engine import RocksdbEngine
from tests.crashlab_tests.proof_journal import Journal
from tests.crashlab_tests.verdict_table import Expected, Row, Table

Counted = tuple[Table, Journal, Sequence[Control]]
"""One engine's rows, what is finished of them, and the controls of the last batch."""


def render(counted: Sequence[Counted], interruptions: Journal, seeds: int, checkout: Path) -> str:
    """The page as Markdown; ``seeds`` is how many each row is to have."""
    parts = [_head(counted, checkout)]
    for table, journal, controls in counted:
        parts += [_introduction(table), _table(table, journal, seeds), _foot(journal, controls)]
    parts.append(["## Interruptions", "", *_signals(interruptions)])
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


INTRODUCTION = """\
# Verdicts

Each seed of a row is a run that is measured and killed, and a recorded run that is made into crash states.
All contracts of a row are judged on the same runs. The numbers say in how many seeds the verdict, and its
reason where one is named, was the one that must come out.

Not in the states of these tables: a write that a SIGKILL cuts in two. `cache` takes it as whole or absent;
only the real kill can show it. A SIGKILL does cut one now and then, and RocksDB's `kAbsoluteConsistency`
refuses to open what is left (seen in 1 of 25 plain kills with sync=false, in 0 of 25 with sync=true, and in
1 of 20 of a proof and in 1 of 450 kills beside other load, with sync=true). That is rightly BROKEN: in the
row of that setting a kill may be so for just this reason, which RocksDB must state, and for no other.
"""
_AT = {"whole": "", "process-crash": " at the process crash", "power-cut": " at the power cut"}
_TITLES = {"rocksdb": "RocksDB", "postgresql": "PostgreSQL"}


def _head(counted: Sequence[Counted], checkout: Path) -> list[str]:
    machine, disk = host.describe(), host.file_system(checkout)
    commits = dict.fromkeys(commit for _, journal, _ in counted for commit in journal.commits)
    return [
        INTRODUCTION,
        "- command: `make proof` (this page is written by it)",
        f"- date: {datetime.now(UTC).date().isoformat()}",
        f"- duratune: commit {', '.join(commits)}",
        f"- host: {machine.cpu_model}, {machine.cpus} CPUs, kernel {machine.kernel}, {disk.type}",
        f"- engines: RocksDB {RocksdbEngine().version()}, PostgreSQL {binaries.find().version}",
    ]


def _introduction(table: Table) -> list[str]:
    models = ", ".join(f"`{model}`" for model in table.models)
    return [
        f"## {_TITLES[table.engine]}",
        "",
        f"Each row is `{table.command}` with these settings over the defaults: measured for",
        f"{table.measure.measure_s:g} s, recorded for {table.record.operations} operations, made into",
        f"{table.states} states ({models}).",
    ]


def _table(table: Table, journal: Journal, seeds: int) -> list[str]:
    lines = ["| settings | contract | must be | right / seeds |", "|---|---|---|---|"]
    lines += [_line(journal, row, expected, seeds) for row in table.rows for expected in row.expected]
    return lines


def _line(journal: Journal, row: Row, expected: Expected, seeds: int) -> str:
    results = [result for (name, _), result in journal.results.items() if name == row.name]
    right = sum(result["contracts"][expected.contract][expected.of]["right"] for result in results)
    unfinished = f" ({len(results)} of {seeds} run)" if len(results) != seeds else ""
    wanted = " ".join(filter(None, [expected.verdict.value, expected.reason]))
    if expected.verdict is Verdict.BROKEN and row.breaks_each:
        wanted += f", in {' and in '.join(f'`{model}`' for model in row.breaks_each)}"
    contract = f"`{expected.contract}`" + _AT[expected.of]
    return f"| {row.name} | {contract} | {wanted} | {right} / {len(results)}{unfinished} |"


def _foot(journal: Journal, controls: Sequence[Control]) -> list[str]:
    results = list(journal.results.values())
    wrong_controls = [control.name for control in controls if not control.right]
    disagreeing = sum(bool(result["audit_faults"]) for result in results)
    lines = [
        f"- crash states recovered and judged: {sum(result['states'] for result in results)}",
        f"- pairs of runs (one killed, one recorded): {len(results)}",
        f"- acknowledgements audited: {sum(result['acks_audited'] for result in results)}",
        f"- of them not located in the log: {sum(result.get('unlocated', 0) for result in results)}",
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
