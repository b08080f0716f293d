"""Databases of the real RocksDB, killed while their load went on, for the readers of its files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from engines.rocksdb.engine import RocksdbEngine
from workloads import registry
from workloads.ledger import Entries, Ledger
from workloads.workload import Plan
from workloads.ycsb.workload import YcsbWorkload

THREADS = 4


@dataclass(frozen=True)
class KilledDatabase:
    """A database folder as a SIGKILL left it, and what its clients had written."""

    folder: Path
    entries: Entries

    @property
    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))

    @property
    def manifests(self) -> list[Path]:
        return sorted(self.folder.glob("MANIFEST-*"))


MakeDatabase = Callable[..., KilledDatabase]


@pytest.fixture(scope="session")
def ldb() -> str:
    program = shutil.which("ldb")
    if program is None:
        pytest.skip("needs Debian's rocksdb-tools")
    return program


@pytest.fixture(scope="module")
def make_database(tmp_path_factory: pytest.TempPathFactory, seed: int) -> MakeDatabase:
    """Load, run and kill one database with settings over RocksDB's defaults, under full names."""

    def make(settings: Mapping[str, str], properties: Mapping[str, str], provoke: str = "") -> KilledDatabase:
        folder = tmp_path_factory.mktemp("killed")
        found = registry.find("ycsb:a")
        assert isinstance(found, YcsbWorkload)
        workload = found.with_values({"recordcount": "300", **properties})
        launch = RocksdbEngine().launch(settings, folder)
        workload.load(launch, folder, seed)
        plan = Plan(THREADS, seed, operations=400, provoke=provoke)
        with (
            Ledger.create(folder / "ledger", THREADS, 4_000) as ledger,
            workload.start(launch, plan, folder, folder / "ledger") as run,
        ):
            run.wait_for("reached", 60.0)
            while sum(event["event"] == "provoked" for event in run.events) < provoke.count("@"):
                run.wait_for("provoked", 60.0)
            run.kill()
            entries = ledger.entries()
        return KilledDatabase(folder / "db", entries)

    return make
