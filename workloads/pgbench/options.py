"""What makes a pgbench load what it is, beside the script's name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Literal, get_args

from knobs.errors import InvalidInput

Protocol = Literal["simple", "extended", "prepared"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
BUILTINS = ("tpcb-like", "simple-update", "select-only")

ACCOUNTS_PER_SCALE, TELLERS_PER_SCALE, BRANCHES_PER_SCALE = 100_000, 10, 1
"""pgbench(1), "What is the Transaction Actually Performed": rows by scale factor."""
BYTES_PER_SCALE = 16 << 20
"""An account takes about 128 bytes of a page and 21 of its index: 15 MiB a scale unit on PostgreSQL 15
(`pgbench -i -s 10` made 150 MiB)."""
SCALE_MAX = 21_474
"""Above it account numbers need more than 32 bits (pgbench.c: SCALE_32BIT_THRESHOLD is 20,000)."""


@dataclass(frozen=True)
class PgbenchOptions:
    """``jobs`` None is as many threads as the machine has cores, at most one for each client;
    ``rate_per_s`` 0 is as fast as it goes; ``init_sql`` is run after the load; ``script`` is the text of a
    script of the user's, "" for a built-in one. Raises InvalidInput with every fault."""

    scale: int = 1
    jobs: int | None = None
    rate_per_s: float = 0.0
    latency_limit_ms: float = 0.0
    unlogged_tables: bool = False
    protocol: Protocol = "simple"
    init_sql: str = ""
    script: str = ""

    def __post_init__(self) -> None:
        faults = []
        if not 1 <= self.scale <= SCALE_MAX:
            faults.append(f"scale {self.scale} is not from 1 to {SCALE_MAX}")
        if self.jobs is not None and self.jobs < 1:
            faults.append(f"jobs {self.jobs} is below 1")
        # Written so that nan, which compares with nothing, is one too.
        if not (0 <= self.rate_per_s < math.inf and 0 <= self.latency_limit_ms < math.inf):
            faults.append("a rate or latency limit is negative or no number")
        if self.latency_limit_ms and not self.rate_per_s:
            faults.append("a latency limit without a rate skips nothing (pgbench(1), --latency-limit)")
        if self.protocol not in PROTOCOLS:
            faults.append(f"protocol '{self.protocol}' is none of {', '.join(PROTOCOLS)}")
        if faults:
            raise InvalidInput("; ".join(faults), where="pgbench", hint="see pgbench(1)")

    def texts(self) -> dict[str, str]:
        """Every option as text; an absent one is ""."""
        return {name: "" if value is None else str(value) for name, value in asdict(self).items()}

    @staticmethod
    def of_texts(texts: Mapping[str, str]) -> PgbenchOptions:
        """The options that `texts` wrote. Raises InvalidInput for anything else."""
        try:
            protocol = next(known for known in PROTOCOLS if known == texts["protocol"])
            return PgbenchOptions(
                scale=int(texts["scale"]),
                jobs=int(texts["jobs"]) if texts["jobs"] else None,
                rate_per_s=float(texts["rate_per_s"]),
                latency_limit_ms=float(texts["latency_limit_ms"]),
                unlogged_tables={"True": True, "False": False}[texts["unlogged_tables"]],
                protocol=protocol,
                init_sql=texts["init_sql"],
                script=texts["script"],
            )
        except (KeyError, ValueError, StopIteration) as error:
            known = ", ".join(each.name for each in fields(PgbenchOptions))
            raise InvalidInput(f"no options of pgbench: {error!r}", where="pgbench", hint=known) from error
