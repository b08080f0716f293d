"""Reading crash states back: what the engine refuses or gets wrong is a finding, not a fault."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engines.rocksdb.launch import RocksdbLaunch
from knobs.errors import InvalidInput
from workloads.ledger import Ledger
from workloads.workload import CHECKSUM_RIGHT, HEADER_READABLE, KEY_MATCHES, Plan
from workloads.ycsb.workload import YcsbWorkload

DEADLINE_S = 30.0
RECORDS = 500
SOUND = HEADER_READABLE | CHECKSUM_RIGHT | KEY_MATCHES

Small = Callable[[str], YcsbWorkload]


@pytest.fixture
def crashed(small: Small, tmp_path: Path, ledger_path: Path) -> Path:
    """A database that was killed while it was written, with data in tables and in the WAL."""
    workload, launch = small("a"), RocksdbLaunch(tmp_path / "crashed")
    workload.load(launch, tmp_path, seed=1)
    with (
        Ledger.create(ledger_path, 2, 100_000),
        workload.start(launch, Plan(2, 1, operations=2_000), tmp_path, ledger_path) as run,
    ):
        run.wait_for("reached", DEADLINE_S)
        run.kill()
    return launch.database


def clone(crashed: Path, name: str) -> RocksdbLaunch:
    target = crashed.parent / name
    shutil.copytree(crashed, target)
    return RocksdbLaunch(target)


def tables(launch: RocksdbLaunch) -> list[Path]:
    return sorted(launch.database.glob("*.sst"))


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)


def test_many_states_in_one_process(small: Small, crashed: Path, tmp_path: Path) -> None:
    bad = clone(crashed, "bad")
    (bad.database / "CURRENT").unlink()
    with small("a").verifier(tmp_path) as verifier:
        first = verifier.verify(clone(crashed, "one"), DEADLINE_S)
        broken = verifier.verify(bad, DEADLINE_S)
        second = verifier.verify(clone(crashed, "two"), DEADLINE_S)
    assert first.recovered
    assert np.array_equal(first.neutral, second.neutral)
    assert np.array_equal(first.candidate, first.neutral)
    assert sorted(first.neutral["key"].tolist()) == list(range(RECORDS))
    assert (broken.recovered, broken.stage) == (False, "recover")
    assert "does not exist" in broken.error
    assert len(broken.candidate) == len(broken.neutral) == 0
    assert not list(tmp_path.glob("verify-*"))


def test_a_reopening_is_the_candidates_own_in_the_environment_that_is_given(
    small: Small, crashed: Path, tmp_path: Path
) -> None:
    """One look instead of two, closed cleanly; what was warm before gets no part of the environment."""
    launch, whole = clone(crashed, "again"), clone(crashed, "whole")
    told = {"LD_DEBUG": "statistics", "LD_DEBUG_OUTPUT": str(tmp_path / "told")}
    with small("a").verifier(tmp_path) as verifier:
        before = verifier.verify(whole, DEADLINE_S)
        reopening = verifier.reopen(launch, DEADLINE_S, told)
        after = verifier.verify(clone(crashed, "after"), DEADLINE_S)
    found = reopening.recovered
    assert (found.recovered, found.stage, found.error) == (True, "", "")
    assert np.array_equal(found.candidate, before.candidate)
    assert np.array_equal(found.candidate, after.neutral)
    assert len(found.neutral) == 0
    driver, child = reopening.pids
    assert driver != child
    assert {path.name for path in tmp_path.glob("told.*")} <= {f"told.{driver}", f"told.{child}"}
    assert (tmp_path / f"told.{driver}").exists()
    # Each opening begins a MANIFEST; a verification's second look is one.
    assert manifest_number(launch) < manifest_number(whole)
    assert not list(tmp_path.glob("verify-*"))


def manifest_number(launch: RocksdbLaunch) -> int:
    return max(int(path.name.partition("-")[2]) for path in launch.database.glob("MANIFEST-*"))


def test_a_reopening_that_fails_says_so(small: Small, crashed: Path, tmp_path: Path) -> None:
    launch = clone(crashed, "bad")
    (launch.database / "CURRENT").unlink()
    with small("a").verifier(tmp_path) as verifier:
        found = verifier.reopen(launch, DEADLINE_S, {}).recovered
    assert (found.recovered, found.stage) == (False, "recover")


def test_a_damaged_table_is_found(small: Small, crashed: Path, tmp_path: Path) -> None:
    launch = clone(crashed, "damaged")
    flip(tables(launch)[0], 100)
    found = small("a").verify(launch, tmp_path, DEADLINE_S)
    assert found.recovered
    assert found.stage == "scan"
    assert "block checksum mismatch" in found.error
    assert len(found.neutral) < RECORDS


def test_damage_that_the_candidate_does_not_look_for(small: Small, crashed: Path, tmp_path: Path) -> None:
    # A missing table is let pass by best_efforts_recovery, which goes back to an older state of the database.
    options = tmp_path / "OPTIONS"
    options.write_text(
        "[Version]\n  rocksdb_version=7.8.3\n  options_file_version=1.1\n"
        "[DBOptions]\n  best_efforts_recovery=true\n"
        '[CFOptions "default"]\n[TableOptions/BlockBasedTable "default"]\n'
    )
    strict = clone(crashed, "strict")
    tables(strict)[0].unlink()
    refused = small("a").verify(strict, tmp_path, DEADLINE_S)
    assert (refused.recovered, refused.stage) == (False, "recover")
    lenient = RocksdbLaunch(clone(crashed, "lenient").database, options)
    tables(lenient)[0].unlink()
    found = small("a").verify(lenient, tmp_path, DEADLINE_S)
    assert found.recovered
    assert len(found.neutral) < RECORDS


def test_a_torn_wal_loses_its_end(small: Small, crashed: Path, tmp_path: Path) -> None:
    whole = small("a").verify(clone(crashed, "whole"), tmp_path, DEADLINE_S)
    launch = clone(crashed, "torn")
    wal = max(launch.database.glob("*.log"), key=lambda path: path.stat().st_size)
    with wal.open("r+b") as file:
        file.truncate(wal.stat().st_size // 2)
    torn = small("a").verify(launch, tmp_path, DEADLINE_S)
    assert (torn.recovered, torn.stage) == (True, "")
    assert len(torn.neutral) == RECORDS
    assert set(torn.neutral["flags"].tolist()) == {SOUND}
    assert (torn.neutral["sequence"] != whole.neutral["sequence"]).sum() > 10


def test_rows_tell_what_is_wrong_with_a_record(small: Small, crashed: Path, tmp_path: Path) -> None:
    ldb = shutil.which("ldb")
    if ldb is None:
        pytest.skip("no ldb (Debian: apt-get install rocksdb-tools)")

    def run(*arguments: str) -> str:
        command = [ldb, f"--db={launch.database}", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    launch = clone(crashed, "edited")
    stored = run("get", "user6284781860667377211", "--value_hex")
    # YCSB's 1,000 bytes in ten fields, with names, lengths and the header of 32 bytes.
    assert len(bytes.fromhex(stored.removeprefix("0x"))) == 32 + 10 * (4 + len("field0") + 4 + 100)
    run("put", "user8517097267634966620", stored, "--value_hex")  # another record's value
    run("put", "user1820151046732198393", "junk")
    changed = stored[:-2] + ("00" if stored[-2:] != "00" else "01")
    run("put", "user4052466453699787802", changed, "--value_hex")
    found = small("a").verify(launch, tmp_path, DEADLINE_S)
    assert (found.recovered, found.stage) == (True, "")
    flags = sorted(row["flags"] for row in found.neutral if row["flags"] != SOUND)
    # The changed record also carries the first one's header under another key.
    assert flags == [0, HEADER_READABLE, HEADER_READABLE | CHECKSUM_RIGHT]
    keys = found.neutral["key"].tolist()
    assert keys.count(0) == 3
    assert keys.count(2**64 - 1) == 1


def test_settings_that_refuse_the_crash_state(small: Small, crashed: Path, tmp_path: Path) -> None:
    options = tmp_path / "OPTIONS"
    options.write_text(
        "[Version]\n  rocksdb_version=7.8.3\n  options_file_version=1.1\n[DBOptions]\n"
        "  wal_recovery_mode=kAbsoluteConsistency\n  error_if_exists=true\n"
        '[CFOptions "default"]\n[TableOptions/BlockBasedTable "default"]\n'
    )
    launch = RocksdbLaunch(clone(crashed, "absolute").database, options)
    wal = max(launch.database.glob("*.log"), key=lambda path: path.stat().st_size)
    with wal.open("r+b") as file:
        file.truncate(wal.stat().st_size - 7)
    found = small("a").verify(launch, tmp_path, DEADLINE_S)
    assert (found.recovered, found.stage) == (False, "recover")
    assert "Corruption" in found.error


def test_an_engine_that_crashes_is_a_finding(
    small: Small, crashed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A library that kills whoever opens a MANIFEST for reading stands in for a defect of the engine.
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (Debian: apt-get install gcc)")
    source = tmp_path / "crash.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdarg.h>\n"
        "#include <stdlib.h>\n#include <string.h>\n"
        "int open(const char *path, int flags, ...) {\n"
        "  va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more);\n"
        '  if (strstr(path, "MANIFEST")) abort();\n'
        '  int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");\n'
        "  return next(path, flags, mode);\n}\n"
    )
    library = tmp_path / "crash.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    with small("a").verifier(tmp_path) as verifier:
        for name in ("one", "two"):
            found = verifier.verify(clone(crashed, name), DEADLINE_S)
            assert (found.recovered, found.stage) == (False, "recover")
            assert "signal 6" in found.error


def test_bad_specs_are_errors_and_not_findings(small: Small, crashed: Path, tmp_path: Path) -> None:
    launch = clone(crashed, "good")
    with small("a").verifier(tmp_path) as verifier:
        with pytest.raises(InvalidInput, match="cannot read the OPTIONS file"):
            verifier.verify(RocksdbLaunch(launch.database, tmp_path / "absent"), DEADLINE_S)
        assert verifier.verify(launch, DEADLINE_S).recovered


def test_a_recovery_without_end_is_not_recovered(small: Small, crashed: Path, tmp_path: Path) -> None:
    # A named pipe in the place of the CURRENT file: the engine waits for ever to read it.
    launch = clone(crashed, "hanging")
    (launch.database / "CURRENT").unlink()
    subprocess.run(["mkfifo", launch.database / "CURRENT"], check=True)
    with small("a").verifier(tmp_path) as verifier:
        found = verifier.verify(launch, 0.5)
        assert (found.recovered, found.stage, found.error) == (False, "recover", "not back within 0.5 s")
        assert verifier.verify(clone(crashed, "good"), DEADLINE_S).recovered
