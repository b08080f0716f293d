"""What of YCSB on PostgreSQL needs no server: what is missing, and whose a record's transaction is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workloads.ycsb
from engines.postgresql.server import Address
from engines.postgresql.session import conninfo
from knobs.errors import InvalidInput, MachineLacks, Undecided
from tests.workloads_tests.ycsb_lab import DEADLINE_S, ycsb
from workloads.workload import Plan
from workloads.ycsb.driver import DriverProcess, write_spec
from workloads.ycsb.keys import field_name
from workloads.ycsb.postgresql import writes
from workloads.ycsb.postgresql_reader import transactions_known
from workloads.ycsb.spec import run_spec

ROW = np.dtype([("client", "<u4"), ("sequence", "<u8")])
FIELDS = 4


def test_no_server_is_no_fault_of_the_user(program: Path, tmp_path: Path) -> None:
    assert program.is_file()
    database = {"pg.conninfo": f"host={tmp_path} user=postgres"}
    path = write_spec(tmp_path / "spec", run_spec(ycsb("a").properties, Plan(1, 1), None, database))
    with (
        DriverProcess("run", str(path), tmp_path / "log") as driver,
        pytest.raises(Undecided, match="connecting: connection to server on socket"),
    ):
        driver.wait_for("opened", DEADLINE_S)


def test_built_without_libpq_it_says_what_is_missing(tmp_path: Path) -> None:
    """What stands in for the binding then, in a program of its own."""
    compiler = shutil.which("g++")
    native = Path(workloads.ycsb.__file__).parent / "native"
    if compiler is None or not native.is_dir():
        pytest.skip("needs g++ and the sources of the driver")
    calls = {"load": "pg_load(spec)", "run": "pg_run(spec)", "read-back": 'pg_read_back("-")'}
    branches = "".join(f'if (word == "{word}") {call};' for word, call in calls.items())
    main = tmp_path / "main.cc"
    main.write_text(
        '#include <cstdio>\n#include "fault.h"\n#include "postgresql_commands.h"\n'
        "int main(int, char** words) {"
        "  const duratune::Spec spec; const std::string word = words[1];"
        f"  try {{ using namespace duratune; {branches} }} catch (const duratune::Fault& fault) {{"
        '    std::printf("%s: %s: %s", fault.code().c_str(), fault.what(), fault.hint().c_str()); return 1;'
        "  } return 0; }"
    )
    program = tmp_path / "absent"
    command = [
        compiler,
        "-std=c++17",
        f"-I{native}",
        str(main),
        str(native / "postgresql_absent.cc"),
        "-o",
        str(program),
    ]
    subprocess.run(command, check=True, capture_output=True)
    for word in calls:
        done = subprocess.run([program, word], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert re.match(r"machine-lacks: .* without libpq.*: apt-get install libpq-dev .*libpq5", done.stdout)


def test_what_the_machine_lacks_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = {"event": "error", "code": "machine-lacks", "what": "no libpq", "hint": "install it"}
    (tmp_path / "duratune-ycsb").write_text(f"#!/bin/sh\necho '{json.dumps(event)}'\n")
    (tmp_path / "duratune-ycsb").chmod(0o755)
    monkeypatch.setenv("DURATUNE_NATIVE_DIR", str(tmp_path))
    with (
        DriverProcess("load", "spec", tmp_path / "log", engine="postgresql") as driver,
        pytest.raises(MachineLacks, match="no libpq") as caught,
    ):
        driver.wait_for("loaded", DEADLINE_S)
    assert (caught.value.where, caught.value.hint) == ("postgresql", "install it")


def test_whose_transaction_a_record_shows() -> None:
    """Known where one field was written, or all of them by one insert; not where two writers may be meant."""
    rows = np.array(
        [
            *[(0, 1), (0, 2), (0, 3)],
            *[(0, 4), (2, 9), (0, 6)],
            *[(1, 4), (2, 9), (0, 6)],
            *[(3, 7), (3, 8), (3, 9)],
            *[(3, 7), (3, 8), (3, 10)],
            *[(3, 7), (2, 8), (3, 9)],
        ],
        dtype=ROW,
    )
    xmin = np.repeat(np.arange(101, 107, dtype=np.uint64), 3)
    known = transactions_known(rows, xmin, 3)
    assert known.tolist() == [0, 0, 0, 0, 102, 0, 0, 0, 0, 104, 0, 0, 0, 0, 0, 0, 0, 0]


@given(st.booleans(), st.lists(st.tuples(st.integers(1, 3), st.integers(0, FIELDS - 1)), max_size=6))
def test_no_record_names_a_transaction_that_is_not_its_own(
    is_inserted: bool, updates: list[tuple[int, int]]
) -> None:
    """One record's history, played: an insert of the run or a loaded record, then updates of one field."""
    counts = dict.fromkeys((1, 2, 3), 0)
    versions = [(0, 1 + field) for field in range(FIELDS)]
    owner, xmin = dict.fromkeys(versions, 0), 0
    if is_inserted:
        versions, counts[1], xmin = [(1, 1 + field) for field in range(FIELDS)], FIELDS, 100
        owner = dict.fromkeys(versions, xmin)
    for client, field in updates:
        counts[client] += 1
        xmin = max(100, xmin) + 1
        versions[field] = (client, counts[client])
        owner[versions[field]] = xmin
    rows = np.array(versions, dtype=ROW)
    known = transactions_known(rows, np.full(FIELDS, xmin, dtype=np.uint64), FIELDS)
    told = [(version, int(number)) for version, number in zip(versions, known, strict=True) if number]
    assert all(owner[version] == number for version, number in told)
    assert len(told) <= 1
    if (len(updates) == 1 and not is_inserted) or (is_inserted and not updates):
        assert len(told) == 1


def test_the_engine_says_what_a_register_is() -> None:
    workload = ycsb("a", records=7)
    assert workload.initial_records == 70 and workload.on("rocksdb").initial_records == 7
    assert workload.at_most(3).initial_records == 30 and workload.at_most(8).initial_records == 70
    with pytest.raises(InvalidInput, match="there is no YCSB for 'sqlite'"):
        workload.on("sqlite")
    assert field_name(13, workload.parameters) == "user8517097267634966620.field3"


@pytest.mark.parametrize(("letter", "expected"), [("a", True), ("c", False), ("d", True), ("f", True)])
def test_which_loads_write(letter: str, expected: bool) -> None:
    assert writes(ycsb(letter).properties) is expected


def test_a_folder_of_any_name_is_found() -> None:
    address = Address(Path("/tmp/a b\\c'd"), 5432, "postgres")
    assert conninfo(address) == (r"host='/tmp/a b\\c\'d' port='5432' user='postgres' dbname='postgres'")
