"""Small histories for the oracle's and the audit's tests: writes as tuples, rows as versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crashlab.judging.oracle import History
from workloads.ledger import ACKNOWLEDGED, BEGUN, FAILED, Entries
from workloads.workload import CHECKSUM_RIGHT, HEADER_READABLE, KEY_MATCHES, ROW

SOUND = HEADER_READABLE | CHECKSUM_RIGHT | KEY_MATCHES


@dataclass(frozen=True)
class W:
    """One write: who, which register, from when to when (None: never answered)."""

    client: int
    register: int
    begin: int
    end: int | None
    failed: bool = False


def history(writes: Sequence[W], initial_records: int = 0) -> History:
    """The history of these writes; each client's own are numbered in the order given."""
    return History(entries(writes), initial_records)


def entries(writes: Sequence[W], checksums: bool = True) -> Entries:
    """The ledger of these writes; one that a server stamps has no ``checksums``."""
    ordered = sorted(writes, key=lambda write: write.client)  # stable: a ledger keeps clients together
    sequence: dict[int, int] = {}
    numbers = []
    for write in ordered:
        sequence[write.client] = sequence.get(write.client, 0) + 1
        numbers.append(sequence[write.client])
    status = [FAILED if w.failed else BEGUN if w.end is None else ACKNOWLEDGED for w in ordered]
    made = [checksum(w.client, n) if checksums else 0 for w, n in zip(ordered, numbers, strict=True)]
    return Entries(
        client=_column((w.client for w in ordered), np.uint32),
        sequence=_column(numbers, np.uint64),
        begin=_column((w.begin for w in ordered), np.uint64),
        begin_ns=_column((w.begin * 1_000_000 for w in ordered), np.uint64),
        end=_column((w.end or 0 for w in ordered), np.uint64),
        end_ns=_column(((w.end or 0) * 1_000_000 for w in ordered), np.uint64),
        register=_column((w.register for w in ordered), np.uint64),
        checksum=_column(made, np.uint64),
        kind=_column((2 for _ in ordered), np.uint32),
        status=_column(status, np.uint32),
        extra=_column((0 for _ in ordered), np.uint64),
    )


def _column(values: Iterable[int], kind: type[np.generic]) -> npt.NDArray[Any]:
    return np.array(list(values), dtype=kind)


def checksum(client: int, sequence: int) -> int:
    """A stand-in for the checksum of one version's value."""
    return client * 1_000_003 + sequence


def rows(*versions: tuple[int, int, int]) -> npt.NDArray[np.void]:
    """Recovered rows from (register, client, sequence); client 0 is the initial version."""
    return np.array(
        [(key, sequence, client, SOUND, checksum(client, sequence)) for key, client, sequence in versions],
        dtype=ROW,
    )


def initial_rows(count: int) -> list[tuple[int, int, int]]:
    """The initial version of each of the first registers."""
    return [(key, 0, key + 1) for key in range(count)]
