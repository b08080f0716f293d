"""The driver under AddressSanitizer and UndefinedBehaviorSanitizer: load, run, clean end, kill, verify."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import workloads.ycsb
from engines.rocksdb.launch import RocksdbLaunch
from tests.workloads_tests.ycsb_lab import bindirs, lab, ycsb
from workloads.ledger import Ledger
from workloads.workload import Plan
from workloads.ycsb.properties import core
from workloads.ycsb.workload import YcsbWorkload

DEADLINE_S = 60.0
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a driver that ends with a report at its first fault."""
    source = Path(workloads.ycsb.__file__).parent / "native"
    if shutil.which("cmake") is None or not (source / "CMakeLists.txt").is_file():
        pytest.skip("needs cmake and the sources of the driver")
    build = tmp_path_factory.mktemp("sanitized")
    # One translation unit for many files and no optimisation: RocksDB's headers take most of the time.
    flags = ["-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=12", "-DCMAKE_BUILD_TYPE=Debug"]
    configure = ["cmake", "-S", str(source), "-B", str(build), *flags, f"-DCMAKE_CXX_FLAGS={FLAGS} -O0 -g1"]
    for command in (configure, ["cmake", "--build", str(build), "-j2"]):
        subprocess.run(command, check=True, capture_output=True)
    return build


@pytest.fixture
def environment(sanitized: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("DURATUNE_NATIVE_DIR", str(sanitized))
    # The kill leaves no time for a leak report, and RocksDB keeps singletons.
    return {
        "ASAN_OPTIONS": f"detect_leaks=0:log_path={tmp_path}/report",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


@pytest.mark.slow
@pytest.mark.parametrize("letter", "adef")
def test_no_fault_is_reported(
    letter: str,
    environment: dict[str, str],
    tmp_path: Path,
    ledger_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    workload = YcsbWorkload(f"ycsb:{letter}", core(letter)).with_values(
        {"recordcount": "300", "fieldlengthdistribution": "uniform"}
    )
    launch = RocksdbLaunch(tmp_path / "db", flush_wal_every_ms=1, sync_wal_every_ms=5)
    workload.load(launch, tmp_path, seed=1, threads=2)
    with Ledger.create(ledger_path, 4, 100_000) as ledger:
        provoke = "flush@0.25,compact@0.5"
        clean = Plan(4, 1, operations=2_000, provoke=provoke, stop_after=True)
        with workload.start(launch, clean, tmp_path, ledger_path, environment) as run:
            run.wait_for("closed", DEADLINE_S)
            assert run.wait() == 0
        assert ledger.operations == 2_000
    ledger_path.unlink()
    with (
        Ledger.create(ledger_path, 4, 100_000),
        workload.start(launch, Plan(4, 2, operations=1_000), tmp_path, ledger_path, environment) as run,
    ):
        run.wait_for("reached", DEADLINE_S)
        run.kill()
    found = workload.verify(launch, tmp_path, DEADLINE_S)
    assert (found.recovered, found.stage, found.error) == (True, "", "")
    assert len(found.neutral) >= 300
    reports = [path.read_text() for path in tmp_path.glob("report*")]
    logs = [path.read_text() for path in tmp_path.glob("*.log")]
    assert not reports
    assert not [log for log in logs if "runtime error" in log or "Sanitizer" in log]


@pytest.mark.slow
@pytest.mark.parametrize("letter", "adef")
def test_no_fault_is_reported_on_postgresql(
    letter: str, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Load, clean end, a connection that breaks, read-back; only the driver is sanitized here."""
    if not bindirs():
        pytest.skip("no PostgreSQL is installed")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with lab(bindirs()[0]) as servers:
        workload = ycsb(letter, fieldlengthdistribution="uniform", dataintegrity="false")
        launch = servers.loaded(workload)
        folder = launch.database.parent
        clean = Plan(3, 1, operations=600, provoke="flush@0.25,compact@0.5", stop_after=True, ticker_ms=0)
        with servers.running(workload, launch, clean) as (run, _):
            run.wait_for("closed", DEADLINE_S)
            assert run.wait() == 0
        # Other keys, or every insert would be of one that is there.
        plan = Plan(3, 2, operations=300)
        more = workload.with_values({"insertproportion": "0"}) if letter == "d" else workload
        with servers.running(more, launch, plan) as (run, _):
            run.wait_for("reached", DEADLINE_S)
            run.kill()
            assert run.faults() == []
        with workload.verifier(folder) as verifier:
            found = verifier.verify(launch, DEADLINE_S)
        assert (found.recovered, found.stage, found.error) == (True, "", "")
        assert len(found.neutral) >= 300 * 10
        logs = [path.read_text() for path in folder.glob("*.log")]
    assert not [path.read_text() for path in tmp_path.glob("report*")]
    assert not [log for log in logs if "runtime error" in log or "Sanitizer" in log]


@pytest.mark.slow
def test_the_sanitizers_are_in_force(sanitized: Path) -> None:
    listed = subprocess.run(
        ["nm", "-C", sanitized / "duratune-ycsb"], check=True, capture_output=True, text=True
    )
    assert "__asan_init" in listed.stdout
    assert "__ubsan_handle" in listed.stdout
