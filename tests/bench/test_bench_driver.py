"""The driver against db_bench, and what its ledger costs."""

from __future__ import annotations

import pytest

from crashlab.subject import Subject
from crashlab.validate import Lab
from engines.rocksdb.engine import RocksdbEngine
from tests.bench import db_bench
from tests.bench.driver import Driver
from tests.bench.figures import Figure, Sheet, ratio
from tests.bench.rounds import in_turn
from workloads.ycsb.properties import Properties
from workloads.ycsb.workload import YcsbWorkload

pytestmark = pytest.mark.bench

ROUNDS = 10
SECONDS = 2.0
LEDGER_ROUNDS = 24
LEDGER_SECONDS = 1.0
"""Many short rounds: one of a second differs from the next by a tenth, and the ledger costs a hundredth."""
THREADS = 16
KEY_BYTES = 23
"""`user` and the 19 decimal digits that most hashed keys have (docs/formats.md, YCSB's CoreWorkload)."""
HEADER_BYTES, FRAME_BYTES, NAME_BYTES = 32, 8, 6
"""A stored value: our header, and for each field two lengths and its name, `field0` (docs/formats.md)."""
YCSB, SMALL = (10, 100), (1, 54)
"""Fields and their length: YCSB's record of 1172 bytes as stored, and one of 100."""


def subject(fields: int, length: int, sync: bool) -> Subject:
    """Inserts only, uncompressed: a put with nothing around it."""
    stated = {
        "recordcount": "100",
        "readproportion": "0",
        "updateproportion": "0",
        "insertproportion": "1",
        "fieldcount": str(fields),
        "fieldlength": str(length),
    }
    settings = {"CFOptions.compression": "kNoCompression", "WriteOptions.sync": str(sync).lower()}
    workload = YcsbWorkload("ycsb:inserts", Properties(stated, "bench"))
    return Subject(RocksdbEngine(), workload, settings, threads=THREADS)


def value_bytes(fields: int, length: int) -> int:
    return HEADER_BYTES + fields * (FRAME_BYTES + NAME_BYTES + length)


def named(fields: int, length: int, sync: bool) -> str:
    return f"values of {value_bytes(fields, length)} bytes, {'synced' if sync else 'not synced'}"


def test_puts_against_db_bench(lab: Lab, sheet: Sheet) -> None:
    if db_bench.missing():
        pytest.skip(db_bench.missing())
    figures: list[Figure] = []
    for shape, sync in ((YCSB, False), (YCSB, True), (SMALL, False)):
        one = subject(*shape, sync)
        cpu_us: list[float] = []

        def yardstick(
            seed: int, one: Subject = one, size: int = value_bytes(*shape), cpu_us: list[float] = cpu_us
        ) -> float:
            folder = lab.scratch.folder(lab.data, "db-bench")
            rate, cpu = db_bench.puts(one, folder, SECONDS, KEY_BYTES, size, seed)
            lab.scratch.remove(folder)
            cpu_us.append(cpu)
            return rate

        driver = Driver(lab, one, SECONDS, ledger=False)
        rates = in_turn(ROUNDS, {"driver": driver.operations_per_s, "db_bench": yardstick})
        what = named(*shape, sync)
        figures.append(ratio(what, rates["driver"], rates["db_bench"], 1.0, "at least 0.9"))
        figures.append(ratio("db_bench's CPU time of a put over the driver's", cpu_us, driver.cpu_us))
        figures.append(Figure("db_bench itself", rates["db_bench"], "puts/s"))
    sheet.add(
        "Driver against db_bench",
        "Puts per second of the driver (inserts only, no ledger) over those of "
        "`db_bench --benchmarks=fillrandom` (rocksdb-tools), both with one OPTIONS file (defaults, no "
        f"compression), {THREADS} threads, {SECONDS:g} s from an empty database, keys of {KEY_BYTES} bytes. "
        "The driver also fills and checksums each value.",
        figures,
    )


def test_the_ledger(lab: Lab, sheet: Sheet) -> None:
    figures = []
    for shape in (YCSB, SMALL):
        one = subject(*shape, sync=False)
        with_it, without = (Driver(lab, one, LEDGER_SECONDS, ledger=on) for on in (True, False))
        rates = in_turn(LEDGER_ROUNDS, {"on": with_it.operations_per_s, "off": without.operations_per_s})
        figures.append(ratio(named(*shape, sync=False), rates["on"], rates["off"], 0.97))
        figures.append(ratio("CPU time of a put without it over with it", without.cpu_us, with_it.cpu_us))
    sheet.add(
        "The ledger",
        "Puts per second with the ledger over those without, where it weighs most: inserts only, nothing "
        f"synced, {THREADS} threads, {LEDGER_SECONDS:g} s.",
        figures,
    )
