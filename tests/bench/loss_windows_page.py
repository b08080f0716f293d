"""docs/loss-windows.md: the rows of `make windows`, each beside the bound that the manual gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from crashlab.judging.verdict import CrashKind

KILL: CrashKind = "process-crash"
CUT: CrashKind = "power-cut"
DELAYS_AT_MOST = 3
"""The manual, 30.4 Asynchronous Commit: the risk lasts for at most three times wal_writer_delay."""

_HEAD = (
    "wal_writer_delay",
    "wal_writer_flush_after",
    "load",
    "kills: median / max, ms",
    "acks lost: median / max",
    "any kill: median / max, ms",
    "any cut: median / max, ms",
    "worst cut as a state, ms",
    "bound, ms",
    "largest / bound",
    "",
)


@dataclass(frozen=True)
class Case:
    """What a row is about: the delay in ms, wal_writer_flush_after ("": its default), transactions per
    second (0: as fast as they go)."""

    delay_ms: int
    flush_after: str
    rate_per_s: int

    @property
    def settings(self) -> dict[str, str]:
        settings = {"synchronous_commit": "off", "wal_writer_delay": f"{self.delay_ms}ms"}
        return settings | ({"wal_writer_flush_after": self.flush_after} if self.flush_after else {})

    @property
    def load(self) -> str:
        return f"{self.rate_per_s}/s" if self.rate_per_s else "full speed"

    @property
    def name(self) -> str:
        return f"{self.delay_ms}ms, {self.flush_after or 'default'}, {self.load}"


@dataclass(frozen=True)
class Row:
    """What was measured of one case: its killed runs and its recorded runs, as they are noted."""

    case: Case
    kills: Sequence[Mapping[str, Any]]
    runs: Sequence[Mapping[str, Any]]

    @property
    def bound_ms(self) -> float:
        """Three times the delay, and the longest flush of the log in the recorded runs."""
        flushes = (run["flush_ms"] for run in self.runs if "flush_ms" in run)
        return DELAYS_AT_MOST * self.case.delay_ms + max(flushes, default=0.0)

    @property
    def largest_ms(self) -> float:
        """The widest window of all, of either crash."""
        windows = [kill["loss_ms"] for kill in self._told_kills]
        windows += [run[f"{crash}/max_ms"] for run in self._told_runs for crash in (KILL, CUT)]
        windows += [worst["judged_ms"] for run in self.runs for worst in run["worst"]]
        return max(windows, default=0.0)

    @property
    def is_over(self) -> bool:
        """Whether a window was wider than the bound."""
        return self.largest_ms > self.bound_ms

    @property
    def untold(self) -> Iterator[str]:
        """Runs that nothing may be concluded from, and why."""
        yield from (f"a killed run: {kill['unknown_why']}" for kill in self.kills if kill["unknown_why"])
        yield from (f"a recorded run: {run['disbelief']}" for run in self.runs if run["disbelief"])

    @property
    def disagreements(self) -> Iterator[str]:
        """Where a state that was really recovered lost something else than the audit said."""
        for run in self.runs:
            for worst in run["worst"]:
                if not worst["agrees"]:
                    exposed = worst["audit_exposed"]
                    yield (
                        f"{worst['model']} at {worst['position']}: {worst['judged_ms']:.3f} ms and "
                        f"{worst['judged_lost']} acks lost, the audit says {worst['audit_ms']:.3f} ms and "
                        f"{exposed} to {exposed + worst['unlocated']}; {worst['note']}"
                    )

    @property
    def summary(self) -> str:
        """One line, for whoever waits."""
        cells = zip(_HEAD[3:], self.cells()[3:], strict=True)
        told = "; ".join(f"{name} {cell}".strip() for name, cell in cells if cell)
        return f"{self.case.name}: {told}"

    def cells(self) -> list[str]:
        """The row of the table."""
        kills, runs = self._told_kills, self._told_runs
        judged = [worst for run in runs for worst in run["worst"] if worst["model"] == "synced"]
        remarks = [
            *(["**over the bound**"] if self.is_over else []),
            *(["**unlike the audit**"] if any(self.disagreements) else []),
            *(["not all runs count"] if any(self.untold) else []),
        ]
        return [
            f"{self.case.delay_ms} ms",
            self.case.flush_after or "default",
            self.case.load,
            _pair([kill["loss_ms"] for kill in kills]),
            _pair([kill["lost"] for kill in kills], "g"),
            _two(runs, KILL),
            _two(runs, CUT),
            _number(max((worst["judged_ms"] for worst in judged), default=None)),
            _number(self.bound_ms),
            f"{self.largest_ms / self.bound_ms:.2f}",
            ", ".join(remarks),
        ]

    @property
    def _told_kills(self) -> list[Mapping[str, Any]]:
        return [kill for kill in self.kills if not kill["unknown_why"]]

    @property
    def _told_runs(self) -> list[Mapping[str, Any]]:
        return [run for run in self.runs if not run["disbelief"]]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _pair(values: Sequence[float], form: str = "") -> str:
    if not values:
        return "-"
    middle, largest = median(values), max(values)
    return f"{middle:g} / {largest:g}" if form else f"{_number(middle)} / {_number(largest)}"


def _two(runs: Sequence[Mapping[str, Any]], crash: CrashKind) -> str:
    if not runs:
        return "-"
    middle = median(run[f"{crash}/median_ms"] for run in runs)
    return f"{_number(middle)} / {_number(max(run[f'{crash}/max_ms'] for run in runs))}"


def page(rows: Sequence[Row], origin: Sequence[str], moments: int, clients: int) -> str:
    """The whole page."""
    kills = sorted({len(row.kills) for row in rows})
    runs = sorted({len(row.runs) for row in rows})
    checks = [worst for row in rows for run in row.runs for worst in run["worst"]]
    lines = [
        "# Loss windows of asynchronous commit",
        "",
        "How much PostgreSQL loses under `synchronous_commit=off`: the time from the oldest acknowledged",
        "transaction that is lost to the crash. Written by the command below; run it again rather than edit",
        "this page.",
        "",
        *origin,
        f"- load: pgbench, tpcb-like, scale 1, {clients} clients; {_counts(kills)} killed runs and "
        f"{_counts(runs)} recorded a row",
        "",
        *_how_to_read(moments),
        "",
        f"| {' | '.join(_HEAD)} |",
        f"|{'---|' * len(_HEAD)}",
        *(f"| {' | '.join(row.cells())} |" for row in rows),
        "",
        f"Over the bound: {sum(row.is_over for row in rows)} of {len(rows)} rows. Worst positions that were "
        f"really recovered: {len(checks)}, of which {sum(not each['agrees'] for each in checks)} lost "
        "something else than the audit said.",
        *(f"- {row.case.name}: {text}" for row in rows for text in (*row.disagreements, *row.untold)),
        "",
        "## The runs",
        "",
        *_runs(rows),
    ]
    return "\n".join(lines) + "\n"


def _counts(counts: Sequence[int]) -> str:
    return " to ".join(str(each) for each in dict.fromkeys((counts[0], counts[-1])))


def _how_to_read(moments: int) -> list[str]:
    return [
        "*kills*: a measured run is killed by SIGKILL at a random moment and recovered; its window, and what",
        "it lost. *any kill*, *any cut*: from one recorded run, in which nothing was provoked, the window of",
        f"a crash at each of {moments} moments drawn uniformly in time (median), and the widest of all",
        "positions (max), by the audit: what was not yet written, or not yet covered by a completed sync.",
        "*worst cut as a state*: the power cut at that widest position, rebuilt, recovered by PostgreSQL and",
        "judged; it must be the max before it. The worst kill is rebuilt and judged too. Moments count from",
        "where nothing is exposed any more that was acknowledged before the load, in the short run by which",
        "every recording begins. *bound*: three times wal_writer_delay (manual of PostgreSQL 15, 30.4",
        "Asynchronous Commit) plus the longest sync of a log segment in the recorded run. *largest / bound*:",
        "the widest window of the row, of either crash, over the bound.",
    ]


def _runs(rows: Sequence[Row]) -> Iterator[str]:
    yield "| row | kills: transactions/s, median | recorded: s | acks | unlocated | longest flush, ms |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        rate = median(kill["throughput_per_s"] for kill in row.kills) if row.kills else None
        for run in row.runs:
            told = (
                ["-"] * 4
                if run["disbelief"]
                else [
                    f"{run[f'{CUT}/s']:.1f}",
                    str(run["acks"]),
                    str(run["unlocated"]),
                    _number(run["flush_ms"]),
                ]
            )
            yield f"| {row.case.name} | {_number(rate)} | {' | '.join(told)} |"
