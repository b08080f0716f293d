"""pgbench as the commands ask for it: scale, jobs, protocol, pace, and what is added to a user's script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from crashlab.judging.verdict import LostWrite
from engines.process import Watcher
from knobs.errors import InvalidInput
from knobs.finding import Finding
from tuner.kinds.family import Described, Made, Size
from tuner.options import Asked
from workloads import registry
from workloads.pgbench.identity import token
from workloads.pgbench.options import SCALE_MAX, PgbenchOptions
from workloads.pgbench.workload import PgbenchWorkload
from workloads.workload import Workload

DATA_COPIES = 3
"""The loaded template, the clone that a run changes, and the clone of that which is recovered."""
WAL_BYTES = 1 << 30
"""What max_wal_size lets the WAL of one cluster grow to by default (manual, max_wal_size)."""
SCRIPT_BYTES_MAX = 1 << 20


def make(asked: Asked, name: str, size: Size) -> Made:
    """The workload that is asked for; ``--scale`` is pgbench's own.

    Raises InvalidInput with every fault of the options, the script and the file of --init-sql.
    """
    found = _of_pgbench(registry.find(name))
    if (asked.scale or size.scale) > SCALE_MAX:
        raise InvalidInput(
            f"{asked.scale} is above the limit of {SCALE_MAX}", where="--scale", hint="load less"
        )
    if asked.latency_limit and not asked.target:
        raise InvalidInput(
            "without a rate no transaction is late",
            where="--latency-limit",
            hint="add --target, or leave it out",
        )
    load = found.with_options(
        scale=asked.scale or size.scale,
        jobs=asked.jobs,
        rate_per_s=asked.target or 0.0,
        latency_limit_ms=asked.latency_limit or 0.0,
        unlogged_tables=asked.unlogged_tables,
        protocol=asked.protocol,
        init_sql=_text(asked.init_sql) if asked.init_sql is not None else "",
    )
    return Made(
        load,
        target_per_s=asked.target or 0.0,
        findings=tuple(_added(load)),
        options=("--init-sql", str(asked.init_sql)) if asked.init_sql is not None else (),
        idle="" if load.writes else _idle(load),
    )


def again(name: str, parameters: Mapping[str, str], where: str, watcher: Watcher | None) -> PgbenchWorkload:
    """The workload of a recording."""
    del where
    return PgbenchWorkload.of_parameters(name, parameters, watcher)


def watched(workload: Workload[Any], watcher: Watcher) -> PgbenchWorkload:
    """The same with this watcher."""
    return replace(_of_pgbench(workload), watcher=watcher)


def describe(workload: Workload[Any]) -> Described:
    """Its scale and the bytes of its tables."""
    load = _of_pgbench(workload)
    chosen = load.options
    unlogged = ", unlogged tables" if chosen.unlogged_tables else ""
    return Described(
        in_words=f"scale {chosen.scale}{unlogged}",
        data_bytes=DATA_COPIES * load.data_bytes + WAL_BYTES,
        arithmetic=f"scale {chosen.scale} is {load.data_bytes >> 20:,} MiB of tables and indexes, "
        f"{DATA_COPIES} times for the template, the run and its recovery, and {WAL_BYTES >> 20:,} MiB of WAL",
        hint="a smaller --scale, or a larger disk (--data)",
        stated=load.parameters,
        options=tuple(_options(chosen)),
    )


def loses(workload: Workload[Any]) -> str:
    """Unlogged tables are emptied at every crash (manual, CREATE TABLE, UNLOGGED)."""
    if _of_pgbench(workload).options.unlogged_tables:
        return "pgbench's tables are unlogged (--unlogged-tables), and PostgreSQL empties them at a crash"
    return ""


def name_of(lost: LostWrite, parameters: Mapping[str, str]) -> str:
    """The transaction's token, as it stands in the database."""
    del parameters
    return f"transaction {token(lost.client, lost.sequence)}"


def _of_pgbench(workload: Workload[Any]) -> PgbenchWorkload:
    assert isinstance(workload, PgbenchWorkload), f"{workload.name} is of another family"
    return workload


def _idle(load: PgbenchWorkload) -> str:
    """A built-in script is known; of one of the user's only the words are, not what a view calls."""
    if load.builtin:
        return f"{load.name} writes nothing, so no crash can lose anything of it"
    return f"{load.name} writes nothing by its own words, so no loss of it could be seen"


def _added(load: PgbenchWorkload) -> list[Finding]:
    return [
        Finding(
            "script-changed",
            "--workload",
            load.name,
            "",
            "nothing",
            f"{note}; the throughput that is told is that of the changed script",
            "a lost transaction is known by what it wrote",
        )
        for note in load.notes
    ]


def _options(chosen: PgbenchOptions) -> list[str]:
    """The options that ask for the same, but for the file of --init-sql, whose text alone is kept."""
    words = ["--scale", str(chosen.scale), "--protocol", chosen.protocol]
    words += ["--jobs", str(chosen.jobs)] if chosen.jobs is not None else []
    words += ["--target", f"{chosen.rate_per_s:g}"] if chosen.rate_per_s else []
    words += ["--latency-limit", f"{chosen.latency_limit_ms:g}"] if chosen.latency_limit_ms else []
    return [*words, *(["--unlogged-tables"] if chosen.unlogged_tables else [])]


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > SCRIPT_BYTES_MAX:
            raise InvalidInput(
                f"is larger than {SCRIPT_BYTES_MAX >> 20} MiB", where=str(path), hint="is it a dump?"
            )
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise InvalidInput(
            f"cannot be read: {why}", where=f"--init-sql {path}", hint="name a file of SQL commands"
        ) from error
