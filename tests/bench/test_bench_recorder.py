"""What recording costs."""

from __future__ import annotations

import pytest

from crashlab.subject import Subject
from crashlab.validate import Lab
from engines.rocksdb.engine import RocksdbEngine
from tests.bench.driver import Driver
from tests.bench.figures import Figure, Sheet, ratio
from tests.bench.rounds import in_turn
from workloads.workload import Plan
from workloads.ycsb import properties
from workloads.ycsb.workload import YcsbWorkload

pytestmark = pytest.mark.bench

ROUNDS = 6
SECONDS = 1.5
THREADS = 16
RECORDS = "2000"
TICKER_MS = Plan(THREADS, 1).ticker_ms


def test_recording(lab: Lab, sheet: Sheet) -> None:
    workload = YcsbWorkload("ycsb:a", properties.core("a")).with_values({"recordcount": RECORDS})
    figures = []
    for sync in (False, True):
        settings = {"WriteOptions.sync": str(sync).lower()}
        one = Subject(RocksdbEngine(), workload, settings, threads=THREADS)
        recorded = Driver(lab, one, SECONDS, recorder=lab.recorder, ticker_ms=TICKER_MS)
        plain = Driver(lab, one, SECONDS, ticker_ms=TICKER_MS)
        rates = in_turn(ROUNDS, {"recorded": recorded.operations_per_s, "plain": plain.operations_per_s})
        what = "synced" if sync else "not synced"
        figures.append(ratio(what, rates["recorded"], rates["plain"], 0.9, "reported only"))
        figures.append(ratio("CPU time of an operation, plain over recorded", plain.cpu_us, recorded.cpu_us))
        figures.append(Figure("write log of an operation", recorded.log_bytes, "bytes"))
    sheet.add(
        "The recorder",
        "Operations per second of YCSB A with the preload recorder over those without, "
        f"{RECORDS} records, {THREADS} clients, {SECONDS:g} s, ledger and samples of the engine's "
        "count of syncs in both. Half of the operations are reads; an update writes about 1.2 kB.",
        figures,
    )
