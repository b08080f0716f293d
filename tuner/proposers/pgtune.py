"""PGTune's rules, recomputed for a host: what many people run instead of PostgreSQL's defaults.

Source: github.com/le0pard/pgtune (MIT), commit 421728c2f26fae14285f9805d31198b98925d697: the formulas of
src/features/configuration/configurationSlice.js and the units of
src/common/components/configurationView/index.jsx. The facts are theirs and the code is ours. Kept are Linux
and the versions that have a catalogue. Later versions ask for the size of the database too; with the
size that they preselect only random_page_cost of `dw` on flash is another (4).

Every division is rounded down to whole kB, as there; the host's memory to whole MB, which is what one can
type there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from knobs.errors import InvalidInput
from knobs.postgresql.catalogue import PostgresqlCatalogue
from tuner.proposers.proposal import HostLimits, Proposal

DbType = Literal["web", "oltp", "dw", "desktop", "mixed"]
Storage = Literal["ssd", "hdd", "san", "nvme"]

SOURCE = (
    "le0pard/pgtune, commit 421728c2f26fae14285f9805d31198b98925d697: "
    "src/features/configuration/configurationSlice.js"
)

CONNECTIONS_MIN = 20
"""The fewest that PGTune's form takes."""

_KB_PER_MB = 1024
_KB_PER_GB = 1024 * _KB_PER_MB
_BYTES_PER_MB = 1024 * 1024

_CONNECTIONS: dict[DbType, int] = {"web": 200, "oltp": 300, "dw": 40, "desktop": 20, "mixed": 100}
_WAL_SIZE_MB: dict[DbType, tuple[int, int]] = {
    "web": (1024, 4096),
    "oltp": (2048, 8192),
    "dw": (4096, 16384),
    "desktop": (100, 2048),
    "mixed": (1024, 4096),
}
# What the share of work_mem is divided by again, where a query takes it several times.
_WORK_MEM_DIVISOR: dict[DbType, int] = {"web": 1, "oltp": 1, "dw": 2, "desktop": 6, "mixed": 2}
_IO_CONCURRENCY: dict[Storage, int] = {"hdd": 2, "ssd": 200, "san": 300, "nvme": 1000}

_WORK_MEM_LEAST_KB = 4 * _KB_PER_MB
_MAINTENANCE_MOST_KB = 8 * _KB_PER_GB
_AUTOVACUUM_MOST_KB = 2 * _KB_PER_GB
_HUGE_PAGES_FROM_KB = 2 * _KB_PER_GB
_WAL_BUFFERS_KB = (32, 14 * _KB_PER_MB, 16 * _KB_PER_MB)  # At least; rounded up from; at most.

# Below this many CPUs PGTune leaves the settings of parallel queries alone, and counts with the server's
# default of max_worker_processes.
_PARALLEL_FROM_CORES = 4
_WORKER_PROCESSES = 8


@dataclass(frozen=True)
class Pgtune:
    """The named proposer `pgtune`: one start point.

    ``catalogue`` is that of the server that is tuned: PGTune warns that its wal_compression=lz4 (15 and
    later) and its io_method=io_uring (18) need a server built `--with-lz4` and `--with-liburing`; without
    them the values stand that it gives to older versions. ``connections`` is PGTune's own number for
    ``db_type`` where none is given.

    Raises InvalidInput for a choice that PGTune does not have.
    """

    catalogue: PostgresqlCatalogue
    db_type: DbType = "oltp"
    storage: Storage = "ssd"
    connections: int | None = None

    name = "pgtune"

    def __post_init__(self) -> None:
        for chosen, known in ((self.db_type, get_args(DbType)), (self.storage, get_args(Storage))):
            if chosen not in known:
                raise InvalidInput(
                    f"PGTune knows no '{chosen}'", where="pgtune", hint=f"use one of {', '.join(known)}"
                )
        if self.connections is not None and self.connections < CONNECTIONS_MIN:
            raise InvalidInput(
                f"PGTune has no rules for {self.connections} connections",
                where="pgtune",
                hint=f"give {CONNECTIONS_MIN} or more, or none for its own number",
            )

    def start_points(self, host: HostLimits) -> Sequence[Proposal]:
        """The one configuration; raises InvalidInput where PostgreSQL refuses what the formulas give."""
        settings = _settings(self, host)
        self.catalogue.validate(settings)
        about = ", ".join(
            (
                f"PostgreSQL {self.catalogue.version}",
                "linux",
                self.db_type,
                f"{host.memory_bytes // _BYTES_PER_MB} MB",
                f"{host.cores} CPUs",
                f"{settings['max_connections']} connections",
                self.storage,
            )
        )
        return [Proposal(self.name, settings, f"PGTune's rules for this host ({about})", SOURCE)]


def _settings(asked: Pgtune, host: HostLimits) -> dict[str, str]:
    memory_kb = host.memory_bytes // _BYTES_PER_MB * _KB_PER_MB
    connections = asked.connections or _CONNECTIONS[asked.db_type]
    parallel = _parallel(asked.db_type, host.cores)
    return {
        "max_connections": str(connections),
        **_memory(
            asked.db_type, memory_kb, connections + parallel.get("max_worker_processes", _WORKER_PROCESSES)
        ),
        "checkpoint_completion_target": "0.9",
        "default_statistics_target": "500" if asked.db_type == "dw" else "100",
        "random_page_cost": "4" if asked.storage == "hdd" else "1.1",
        "effective_io_concurrency": str(_IO_CONCURRENCY[asked.storage]),
        **_wal(asked),
        **_planner(asked.db_type),
        **_processes(asked.catalogue, host.cores),
        **{name: str(value) for name, value in parallel.items()},
    }


def _memory(db_type: DbType, memory_kb: int, processes: int) -> dict[str, str]:
    is_desktop = db_type == "desktop"
    buffers_kb = memory_kb // (16 if is_desktop else 4)
    cache_kb = memory_kb // 4 if is_desktop else memory_kb * 3 // 4
    maintenance_kb = min(memory_kb // (8 if db_type == "dw" else 16), _MAINTENANCE_MOST_KB)
    # Each process is taken to need it three times.
    work_kb = (memory_kb - buffers_kb) // (processes * 3 * _WORK_MEM_DIVISOR[db_type])
    settings = {
        "shared_buffers": _spelled(buffers_kb),
        "effective_cache_size": _spelled(cache_kb),
        "maintenance_work_mem": _spelled(maintenance_kb),
        "wal_buffers": _spelled(_wal_buffers_kb(buffers_kb)),
        "work_mem": _spelled(max(work_kb, _WORK_MEM_LEAST_KB)),
        "huge_pages": "try" if buffers_kb >= _HUGE_PAGES_FROM_KB else "off",
    }
    if maintenance_kb >= _AUTOVACUUM_MOST_KB:
        settings["autovacuum_work_mem"] = _spelled(_AUTOVACUUM_MOST_KB)
    return settings


def _wal_buffers_kb(buffers_kb: int) -> int:
    """3 % of shared_buffers, 16 MB at most, and 16 MB if it is near."""
    least, near, most = _WAL_BUFFERS_KB
    share = 3 * buffers_kb // 100
    return most if share > near else max(share, least)


def _wal(asked: Pgtune) -> dict[str, str]:
    least_mb, most_mb = _WAL_SIZE_MB[asked.db_type]
    settings = {
        "wal_compression": "lz4" if "lz4" in asked.catalogue.knob("wal_compression").choices else "on",
        "min_wal_size": _spelled(least_mb * _KB_PER_MB),
        "max_wal_size": _spelled(most_mb * _KB_PER_MB),
    }
    if asked.db_type == "desktop":
        settings |= {"wal_level": "minimal", "max_wal_senders": "0"}
    return settings


def _planner(db_type: DbType) -> dict[str, str]:
    return {"jit": "off"} if db_type in ("web", "oltp", "mixed") else {}


def _processes(catalogue: PostgresqlCatalogue, cores: int) -> dict[str, str]:
    settings = {}
    if cores >= 16:
        settings["autovacuum_max_workers"] = "5" if cores >= 32 else "4"
    if catalogue.has("io_method"):
        if "io_uring" in catalogue.knob("io_method").choices:
            settings["io_method"] = "io_uring"
        # More than the server's default of 3 only, and 32 is the most that it takes.
        workers = min(32, cores // 4)
        if workers > 3:
            settings["io_workers"] = str(workers)
    return settings


def _parallel(db_type: DbType, cores: int) -> dict[str, int]:
    if cores < _PARALLEL_FROM_CORES:
        return {}
    half = -(-cores // 2)
    return {
        "max_worker_processes": cores,
        "max_parallel_workers_per_gather": half if db_type == "dw" else min(half, 4),
        "max_parallel_workers": cores,
        "max_parallel_maintenance_workers": min(half, 4),
    }


def _spelled(value_kb: int) -> str:
    """In the largest unit that loses nothing."""
    for unit, size_kb in (("GB", _KB_PER_GB), ("MB", _KB_PER_MB)):
        if value_kb % size_kb == 0:
            return f"{value_kb // size_kb}{unit}"
    return f"{value_kb}kB"
