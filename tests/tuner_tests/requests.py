"""Requests and results that the tests of the tuner share."""

from __future__ import annotations

from typing import Any

from tuner.request import Request, resolve
from tuner.search.trial import TrialResult
from workloads.ycsb.workload import YcsbWorkload

MIB = 1 << 20
OPTIONS_HEAD = """\
[Version]
  rocksdb_version=7.8.3
  options_file_version=1.1
[DBOptions]
  max_background_jobs=3
"""
"""How an OPTIONS file of RocksDB begins; more of its [DBOptions] may follow."""


def request_of(
    *sets: str,
    config: str | None = None,
    contract: str = "process",
    workload: str = "ycsb:a",
    properties: tuple[str, ...] = (),
    scale: int | None = 1,
    column_family: str = "default",
    clients: int | None = 4,
) -> Request:
    """What `duratune tune rocksdb` would resolve: 1,000 records, 4 clients, seed 1."""
    return resolve(
        "rocksdb",
        config,
        list(sets),
        workload,
        list(properties),
        contract,
        1,
        clients,
        scale,
        column_family,
        50_000,
    )


def ycsb_of(request: Request) -> YcsbWorkload:
    """The request's workload, which is YCSB's."""
    assert isinstance(request.workload, YcsbWorkload)
    return request.workload


def result_of(number: int, verdict: str = "HELD", ratio: float = 1.0, **more: Any) -> TrialResult:
    """A trial's result with a throughput of a thousand times its ratio."""
    settings = more.pop("settings", {})
    proposer = more.pop("proposer", "reference" if number == 0 else "tpe")
    return TrialResult(
        number, proposer, settings, verdict, ratio=ratio, throughput_per_s=1_000.0 * ratio, **more
    )
