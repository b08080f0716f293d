"""The figures of one `make bench`, told as they come and kept as docs/bench.md."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from engines import host
from engines.postgresql import binaries
from engines.provenance import commit, version
from engines.rocksdb.engine import RocksdbEngine
from knobs.errors import MachineLacks

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "bench.md"
COMMAND = "make bench"


@dataclass(frozen=True)
class Figure:
    """One row: what was measured, its values one a round, and the goal for their median.

    ``goal`` is told and never asserted: a machine under load misses it and is not broken by that.
    """

    what: str
    values: Sequence[float]
    unit: str = ""
    goal: str = ""
    met: bool | None = None
    note: str = ""

    def cells(self) -> list[str]:
        words = [number(value) for value in (min(self.values), median(self.values), max(self.values))]
        met = {None: "", True: "met", False: "missed"}[self.met]
        unit = f", {self.unit}" if self.unit else ""
        return [f"{self.what}{unit}", *words, str(len(self.values)), f"{self.goal} {met}".strip(), self.note]


def ratio(
    what: str, first: Sequence[float], second: Sequence[float], goal: float | None = None, note: str = ""
) -> Figure:
    """The figure of a ratio, round by round; it should be at least the goal, where there is one."""
    values = [a / b for a, b in zip(first, second, strict=True)]
    if goal is None:
        return Figure(what, values, note=note)
    return Figure(what, values, "", f">= {goal:g}", median(values) >= goal, note)


def number(value: float) -> str:
    """Three digits that matter, and no fewer than the whole number has."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


@dataclass
class Section:
    """Some figures and how they were measured."""

    title: str
    method: str
    figures: list[Figure] = field(default_factory=list)


@dataclass
class Sheet:
    """Everything that one session measured."""

    wanted: int
    sections: list[Section] = field(default_factory=list)
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    def add(self, title: str, method: str, figures: Sequence[Figure]) -> None:
        """Add a section and print it."""
        section = Section(title, method, list(figures))
        self.sections.append(section)
        print(f"\n\n{title}\n  {method}")
        for figure in figures:
            what, low, middle, high, rounds, goal, note = figure.cells()
            tail = "; ".join(filter(None, [goal, note]))
            print(f"  {what:<58} {low:>8} {middle:>8} {high:>8}  of {rounds}  {tail}", flush=True)

    @property
    def complete(self) -> bool:
        """Whether every bench of the session has said what it measured."""
        return len(self.sections) == self.wanted

    def page(self, folder: Path) -> str:
        """docs/bench.md; ``folder`` is where the data lay."""
        lines = [
            "# Figures",
            "",
            f"Written by `{COMMAND}`; run it again rather than edit this page. Each ratio is of two runs,",
            "one right after the other, who goes first taking turns; min, median and max are over such",
            "rounds. A goal is for the median. Nothing here is asserted by a test. Ratios of CPU time are",
            "told beside those of rates, because other work on the machine disturbs them less.",
            "",
            *_origin(folder, self.load_before),
        ]
        for section in self.sections:
            lines += ["", f"## {section.title}", "", section.method, ""]
            lines += ["| figure | min | median | max | rounds | goal | |", "|---|---|---|---|---|---|---|"]
            lines += [f"| {' | '.join(figure.cells())} |" for figure in section.figures]
        return "\n".join(lines) + "\n"


def _origin(folder: Path, load_before: float) -> list[str]:
    machine = host.describe()
    disk = host.file_system(folder)
    return [
        f"- command: `{COMMAND}`",
        f"- date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"- duratune: {version()}, commit {commit() or 'unknown'}",
        f"- host: {machine.cpus} x {machine.cpu_model}, {machine.memory_bytes / 2**30:.0f} GiB, "
        f"Linux {machine.kernel}, {disk.type}",
        f"- engines: RocksDB {RocksdbEngine().version()}, PostgreSQL {_postgresql()}",
        f"- load average: {load_before:.1f} before, {os.getloadavg()[0]:.1f} after; "
        "its own share is about the number of cores",
    ]


def _postgresql() -> str:
    try:
        return str(binaries.find().version)
    except MachineLacks:
        return "not installed, so not measured"
