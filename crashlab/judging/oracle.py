"""The oracle: ledger + recovered content -> judgement. Pure; touches no file, clock or process.

Each register (for YCSB: each record) holds one version, named by client and sequence number.

* A recovered version v is acceptable if it is the initial one or was begun by somebody, and no
  acknowledged write to that register began after v was acknowledged. A write that failed or was
  never answered is in doubt without end: it may take effect at any later time.
* An acknowledged write is *lost* if it began after the recovered version of its register had been
  acknowledged; a missing register has lost everything acknowledged to it, its initial version too.
* There is a *hole* if a surviving write began after a lost one had been acknowledged.

Not covered: values that reads returned while the load ran; order between registers beyond holes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from crashlab.judging.verdict import CrashKind, Judgement, LostWrite, Reason, Verdict
from knobs.contract import Contract
from workloads.ledger import ACKNOWLEDGED, Entries
from workloads.workload import CHECKSUM_RIGHT, HEADER_READABLE, KEY_MATCHES

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max
"""The end of a write that was never acknowledged."""

_SOUND = HEADER_READABLE | CHECKSUM_RIGHT | KEY_MATCHES
_EVIDENCE_LINES_MAX = 5


@dataclass(frozen=True)
class Cut:
    """The moment of a crash.

    Acknowledgements at positions below ``position`` count. Writes begun at or after
    ``begun_before`` cannot be in the state; a real kill leaves that open (NEVER), because writes
    go on between reading the clock and the signal. ``ns`` is CLOCK_MONOTONIC.
    """

    position: int
    ns: int
    begun_before: int = int(NEVER)


class History:
    """What the clients did, as arrays: one row for each write that was begun in the run."""

    def __init__(self, entries: Entries, initial_records: int, register_per_write: bool = False) -> None:
        """With ``register_per_write`` each write has a register of its own, whatever the ledger names."""
        self.initial_records = initial_records
        self.register_per_write = register_per_write
        self.register: Integers = (
            np.arange(len(entries), dtype=np.int64)
            if register_per_write
            else entries.register.astype(np.int64)
        )
        self.begin: Integers = entries.begin.astype(np.int64)
        self.begin_ns: Integers = entries.begin_ns.astype(np.int64)
        self.acknowledged: Booleans = entries.status == ACKNOWLEDGED
        self.end: Integers = np.where(self.acknowledged, entries.end.astype(np.int64), NEVER)
        self.end_ns: Integers = entries.end_ns.astype(np.int64)
        self.client: Integers = entries.client.astype(np.int64)
        self.sequence: Integers = entries.sequence.astype(np.int64)
        self.checksum: npt.NDArray[np.uint64] = entries.checksum

    def __len__(self) -> int:
        return len(self.register)

    @cached_property
    def registers(self) -> int:
        """One more than the largest register that the base or any write names."""
        return max(self.initial_records, int(self.register.max(initial=-1)) + 1)

    @cached_property
    def _first_of_client(self) -> Integers:
        """Index of each client's first row; clients count from 1 and are stored one after another."""
        clients = int(self.client.max(initial=0))
        return np.searchsorted(self.client, np.arange(1, clients + 2)).astype(np.int64)

    def index(self, client: Integers, sequence: Integers) -> Integers:
        """The row of each named version, or -1 where no such write was begun."""
        first = self._first_of_client
        known = (client >= 1) & (client < len(first)) & (sequence >= 1)
        slot = np.where(known, client, 1)
        if len(first) < 2:
            return np.full(len(client), -1, dtype=np.int64)
        row = first[slot - 1] + sequence - 1
        known &= row < first[slot]
        return np.where(known, row, -1)

    def keyed(self, rows: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """Recovered rows under the registers that they are versions of.

        Where each write has its own, a row is found by the write that it names; one that names none of
        them keeps a register that nobody has.
        """
        if not self.register_per_write:
            return rows
        keyed = rows.copy()
        index = self.index(rows["client"].astype(np.int64), rows["sequence"].astype(np.int64))
        keyed["key"] = np.where(index >= 0, index, self.registers + np.arange(len(rows)))
        return keyed

    def acks_before(self, position: int) -> Booleans:
        """Which writes had been acknowledged before the position."""
        return self.end < position

    def decidable_before(self, position: int) -> int:
        """How many acknowledgements before the position would be missed if they alone were lost.

        Those are the acknowledged writes that no other write to the same register, begun before
        the position, can have overwritten or been overwritten by concurrently.
        """
        order = self._by_register_and_end
        order = order[self.begin[order] < position]
        if not len(order):
            return 0
        register = self.register[order]
        is_last = np.append(register[1:] != register[:-1], True)
        last = order[is_last]
        previous = np.flatnonzero(is_last) - 1
        same = (previous >= 0) & (register[previous] == register[is_last])
        previous_end = np.where(same, self.end[order[previous]], -1)
        return int(np.count_nonzero((self.end[last] < position) & (previous_end < self.begin[last])))

    @cached_property
    def _by_register_and_end(self) -> Integers:
        return np.lexsort((self.end, self.register)).astype(np.int64)


@dataclass(frozen=True)
class _Content:
    """Recovered rows held against the history."""

    version_end: Integers  # per register: when its recovered version was acknowledged; -1 missing
    last_survivor_begin: int
    corrupt: tuple[str, ...]
    phantom: tuple[str, ...]


def judge(
    history: History,
    rows: npt.NDArray[np.void],
    cut: Cut,
    contract: Contract,
    crash: CrashKind,
    base_rows_lost: int = 0,
) -> Judgement:
    """Judge the recovered rows of one crash state under the contract.

    ``base_rows_lost`` rows of the loaded base, beside the registers, are gone.
    """
    content = _read_content(history, history.keyed(rows), cut)
    acked = history.acks_before(cut.position)
    lost = acked & (history.begin > content.version_end[history.register])
    lost_rows = np.flatnonzero(lost)
    lost_initial = int(np.count_nonzero(content.version_end[: history.initial_records] < 0)) + base_rows_lost
    first = _first_lost(history, lost_rows)
    loss_ms = (cut.ns - first.ack_ns) / 1e6 if first else 0.0
    oldest_lost_end = 0 if lost_initial else (first.ack_position if first else int(NEVER))

    reasons: list[Reason] = []
    evidence = [*content.corrupt[:_EVIDENCE_LINES_MAX], *content.phantom[:_EVIDENCE_LINES_MAX]]
    if content.corrupt:
        reasons.append("corrupt")
    if content.phantom:
        reasons.append("phantom")
    if content.last_survivor_begin > oldest_lost_end:
        reasons.append("hole")
        evidence.append(
            f"a write begun at {content.last_survivor_begin} survived; one acknowledged at "
            f"{oldest_lost_end} is lost"
        )
    if lost_initial:
        evidence.append(f"{lost_initial} records of the loaded base are gone")
    if len(lost_rows) or lost_initial:
        reasons.extend(_loss_reasons(contract, crash, loss_ms, lost_initial))
    return Judgement(
        verdict=Verdict.BROKEN if reasons else Verdict.HELD,
        reasons=tuple(reasons),
        acks=int(np.count_nonzero(acked)),
        decidable=history.decidable_before(cut.position),
        lost=len(lost_rows),
        lost_initial=lost_initial,
        loss_ms=loss_ms,
        first_lost=first,
        evidence=tuple(evidence),
        lost_indices=tuple(int(row) for row in lost_rows),
    )


def _loss_reasons(
    contract: Contract, crash: CrashKind, loss_ms: float, lost_initial: int
) -> tuple[Reason, ...]:
    if contract.kind == "strict" or (contract.kind == "process" and crash == "process-crash"):
        return ("lost-ack",)
    if lost_initial:
        return ("lost-ack",)
    if contract.window_ms is not None and loss_ms > contract.window_ms:
        return ("over-bound",)
    return ()


def _first_lost(history: History, lost_rows: Integers) -> LostWrite | None:
    if not len(lost_rows):
        return None
    row = int(lost_rows[np.argmin(history.end[lost_rows])])
    return LostWrite(
        register=int(history.register[row]),
        client=int(history.client[row]),
        sequence=int(history.sequence[row]),
        ack_position=int(history.end[row]),
        ack_ns=int(history.end_ns[row]),
    )


def recovered_index(history: History, rows: npt.NDArray[np.void]) -> Integers:
    """The history's row for each recovered one: -1 nobody's, -2 the initial version."""
    key = rows["key"].astype(np.int64)
    client = rows["client"].astype(np.int64)
    sequence = rows["sequence"].astype(np.int64)
    initial = (client == 0) & (sequence == key + 1) & (key < history.initial_records) & (key >= 0)
    return np.where(initial, -2, history.index(client, sequence))


def _read_content(history: History, rows: npt.NDArray[np.void], cut: Cut) -> _Content:
    sound = (rows["flags"] & _SOUND) == _SOUND
    corrupt = (
        [f"{int(np.count_nonzero(~sound))} records fail their checksum or key"] if not sound.all() else []
    )
    rows = rows[sound]
    index = recovered_index(history, rows)
    key = rows["key"].astype(np.int64)
    written = index >= 0
    named = np.where(written, index, 0)
    if len(history):
        foreign = written & ((history.register[named] != key) | (history.checksum[named] != rows["checksum"]))
        early = written & (history.begin[named] >= cut.begun_before)
    else:
        foreign = early = np.zeros(len(rows), dtype=np.bool_)
    nobodys = (index == -1) | foreign | early
    phantom = [
        f"record {int(rows['key'][i])} holds client {int(rows['client'][i])} "
        f"sequence {int(rows['sequence'][i])}, which nobody had written there"
        for i in np.flatnonzero(nobodys)[:_EVIDENCE_LINES_MAX]
    ]
    known = ~nobodys
    key, index, written = key[known], index[known], written[known]
    if len(np.unique(key)) != len(key):
        corrupt.append("a key is returned twice by one scan")
    version_end = np.full(history.registers, -1, dtype=np.int64)
    version_end[key[~written]] = 0
    survivors = index[written]
    version_end[key[written]] = history.end[survivors]
    return _Content(
        version_end=version_end,
        last_survivor_begin=int(history.begin[survivors].max(initial=0)),
        corrupt=tuple(corrupt),
        phantom=tuple(phantom),
    )
