"""pgbench's own account of its transactions, written with `-l` (pgbench(1), "Per-Transaction Logging").

One line for each: client, number, elapsed microseconds (from the scheduled start where there is a rate) or
"failed" or "skipped", script, epoch seconds, microseconds, and with a rate the lag behind the schedule.
pgbench writes them through stdio, so they are whole only once it has ended by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from knobs.errors import Undecided

NAME = "TRANSACTION"
_NO_TIME = ("failed", "skipped")
_QUANTILES = {"p50_us": 0.50, "p95_us": 0.95, "p99_us": 0.99, "p999_us": 0.999}


@dataclass(frozen=True, slots=True)
class Line:
    """One transaction: ``ended_us`` is when, since the epoch; ``elapsed_us`` None where it failed or was
    skipped; ``lag_us`` is how far it began behind its schedule."""

    client: int
    ended_us: int
    elapsed_us: int | None
    lag_us: int | None
    is_skipped: bool


def read(prefix: Path) -> list[Line]:
    """The lines of every file that begins with ``prefix``. Raises Undecided for one that is none."""
    return [line for path in sorted(prefix.parent.glob(f"{prefix.name}.*")) for line in _lines(path)]


def _lines(path: Path) -> Iterator[Line]:
    for text in path.read_text(encoding="ascii", errors="replace").splitlines():
        fields = text.split()
        try:
            elapsed = None if fields[2] in _NO_TIME else int(fields[2])
            lag = int(fields[6]) if len(fields) > 6 and fields[6].isdigit() else None
            ended_us = int(fields[4]) * 1_000_000 + int(fields[5])
            yield Line(int(fields[0]), ended_us, elapsed, lag, fields[2] == "skipped")
        except (ValueError, IndexError):
            raise Undecided(f"pgbench wrote '{text[:120]}'", where=str(path)) from None


def done_by_client(lines: Sequence[Line]) -> Mapping[int, int]:
    """How many transactions of each client succeeded; clients count from 0."""
    return Counter(line.client for line in lines if line.elapsed_us is not None)


def figures(lines: Sequence[Line], begin_us: int, end_us: int) -> dict[str, Any]:
    """Throughput and latencies of the transactions that ended in a window, in the words of a driver's
    ``measured`` event."""
    inside = [line for line in lines if begin_us <= line.ended_us < end_us]
    done = [line for line in inside if line.elapsed_us is not None]
    failed = sum(1 for line in inside if line.elapsed_us is None and not line.is_skipped)
    seconds = (end_us - begin_us) / 1e6
    elapsed = np.array([line.elapsed_us for line in done], dtype=np.int64)
    paced = any(line.lag_us is not None for line in done)
    lags = np.array([line.lag_us or 0 for line in done], dtype=np.int64)
    operation: dict[str, Any] = {"count": len(done), "errors": failed, **_latencies(elapsed - lags, "")}
    if paced:
        operation |= _latencies(elapsed, "intended_")
    operation["returns"] = {"OK": len(done), "ERROR": failed}
    return {
        "event": "measured",
        "seconds": seconds,
        "operations": len(done),
        "throughput_per_s": len(done) / seconds,
        "skipped": sum(1 for line in inside if line.is_skipped),
        "last_error": "",
        "per_operation": {NAME: operation} if inside else {},
    }


def _latencies(values: np.ndarray[Any, np.dtype[np.int64]], prefix: str) -> dict[str, float]:
    if not len(values):
        return {}
    found = {"average_us": float(values.mean()), "min_us": float(values.min()), "max_us": float(values.max())}
    # The smallest value that at least this share does not exceed: one that was really measured.
    found |= {name: float(np.quantile(values, q, method="inverted_cdf")) for name, q in _QUANTILES.items()}
    return {prefix + name: value for name, value in found.items()}
