"""Real runs on a real RocksDB: acknowledged writes survive a kill, failed ones are never acknowledged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.rocksdb.launch import RocksdbLaunch
from knobs.errors import InvalidInput, MachineLacks, Undecided
from knobs.native import find
from workloads.ledger import (
    ACKNOWLEDGED,
    FAILED,
    KIND_INSERT,
    KIND_READ_MODIFY_WRITE,
    KIND_UPDATE,
    Entries,
    Ledger,
)
from workloads.workload import EFFECTIVE_NAME, Plan, Recovered
from workloads.ycsb.driver import DriverProcess, write_spec
from workloads.ycsb.workload import YcsbWorkload

# Each runs the driver; together they take too long for `make check`.
pytestmark = pytest.mark.slow

DEADLINE_S = 30.0
RECORDS = 500
SOUND = 7  # header readable, checksum right, key matches

Small = Callable[[str], YcsbWorkload]


def newest_acknowledged(entries: Entries) -> dict[int, int]:
    """For each register, the entry of the write that was acknowledged last."""
    newest: dict[int, int] = {}
    for row in np.argsort(entries.end, kind="stable"):
        if entries.status[row] == ACKNOWLEDGED:
            newest[int(entries.register[row])] = int(row)
    return newest


def lost(entries: Entries, recovered: Recovered) -> int:
    """Registers whose content is older than the write that was acknowledged last."""
    rows = {int(row["key"]): row for row in recovered.neutral}
    written = {
        (int(client), int(sequence)): index
        for index, (client, sequence) in enumerate(zip(entries.client, entries.sequence, strict=True))
    }
    count = 0
    for key, index in newest_acknowledged(entries).items():
        row = rows.get(key)
        found = None if row is None else written.get((int(row["client"]), int(row["sequence"])))
        # Concurrent writes may be in either order: the survivor must not have ended before the newest began.
        if found is None or (
            found != index
            and entries.status[found] == ACKNOWLEDGED
            and entries.end[found] < entries.begin[index]
        ):
            count += 1
    return count


def run_and_kill(
    workload: YcsbWorkload, launch: RocksdbLaunch, plan: Plan, folder: Path, ledger_path: Path
) -> tuple[dict[str, Any], Entries]:
    with Ledger.create(ledger_path, plan.threads, 400_000) as ledger:
        with workload.start(launch, plan, folder, ledger_path) as run:
            measured = run.wait_for("measured", DEADLINE_S)
            run.kill()
            assert run.finished
        return measured, ledger.entries()


def verify(workload: YcsbWorkload, launch: RocksdbLaunch, folder: Path) -> Recovered:
    return workload.verify(launch, folder, DEADLINE_S)


@pytest.mark.parametrize("letter", "abcdef")
def test_killed_in_the_middle_every_acknowledged_write_is_there(
    small: Small, letter: str, tmp_path: Path, ledger_path: Path
) -> None:
    workload = small(letter)
    launch = RocksdbLaunch(tmp_path / "db")
    assert workload.load(launch, tmp_path, seed=1)["records"] == RECORDS
    plan = Plan(threads=4, seed=1, operations=6_000)
    measured, entries = run_and_kill(workload, launch, plan, tmp_path, ledger_path)
    recovered = verify(workload, launch, tmp_path)

    assert (recovered.recovered, recovered.stage, recovered.error) == (True, "", "")
    assert recovered.recovery_s > 0
    assert set(recovered.neutral["flags"].tolist()) == {SOUND}
    assert np.array_equal(recovered.candidate, recovered.neutral)
    assert lost(entries, recovered) == 0
    assert set(range(RECORDS)) <= set(recovered.neutral["key"].tolist())
    kinds = {"d": {KIND_INSERT}, "e": {KIND_INSERT}, "f": {KIND_READ_MODIFY_WRITE}, "c": set()}
    assert set(entries.kind.tolist()) == kinds.get(letter, {KIND_UPDATE})
    assert_measured(letter, measured)
    assert_checksums(entries, recovered)


def assert_measured(letter: str, measured: Mapping[str, Any]) -> None:
    names = {
        "a": {"READ", "UPDATE"},
        "b": {"READ", "UPDATE"},
        "c": {"READ"},
        "d": {"READ", "INSERT"},
        "e": {"SCAN", "INSERT"},
        "f": {"READ", "UPDATE", "READ-MODIFY-WRITE"},
    }
    operations = measured["per_operation"]
    assert set(operations) == names[letter]
    assert measured["operations"] >= 5_000
    for numbers in operations.values():
        assert numbers["errors"] == numbers["returns"]["ERROR"] == numbers["returns"]["NOT_FOUND"] == 0
        assert numbers["count"] == numbers["returns"]["OK"]
        assert numbers["min_us"] <= numbers["p50_us"] <= numbers["p95_us"] <= numbers["p99_us"]
        assert numbers["p99_us"] <= numbers["p999_us"] <= numbers["max_us"]
        assert numbers["min_us"] <= numbers["average_us"] <= numbers["max_us"]
    if letter == "f":  # counted three times, as YCSB does
        assert abs(operations["UPDATE"]["count"] - operations["READ-MODIFY-WRITE"]["count"]) <= 4
        assert operations["READ"]["count"] >= measured["operations"] - 4
    else:
        assert abs(sum(numbers["count"] for numbers in operations.values()) - measured["operations"]) <= 4


def assert_checksums(entries: Entries, recovered: Recovered) -> None:
    """A recovered version has the checksum that its writer put in the ledger."""
    written = {
        (int(client), int(sequence)): int(checksum)
        for client, sequence, checksum in zip(entries.client, entries.sequence, entries.checksum, strict=True)
    }
    for row in recovered.neutral:
        if row["client"]:
            assert written[(int(row["client"]), int(row["sequence"]))] == int(row["checksum"])
        else:
            assert row["sequence"] == row["key"] + 1


def test_without_a_wal_the_loss_is_seen(small: Small, tmp_path: Path, ledger_path: Path) -> None:
    # The control of the test above: the same judgement on a run that must lose.
    workload = small("a")
    launch = RocksdbLaunch(tmp_path / "db", write_options={"disableWAL": True})
    workload.load(launch, tmp_path, seed=1)
    plan = Plan(threads=2, seed=1, operations=2_000)
    _, entries = run_and_kill(workload, launch, plan, tmp_path, ledger_path)
    recovered = verify(workload, launch, tmp_path)
    assert recovered.recovered
    assert lost(entries, recovered) == len(newest_acknowledged(entries)) > 100
    assert set(recovered.neutral["client"].tolist()) == {0}


def test_the_load_writes_no_wal_where_the_candidate_writes_none(small: Small, tmp_path: Path) -> None:
    # RocksDB 7.8 waits for itself at the first write of a WAL with these two.
    workload, options = small("a"), tmp_path / "OPTIONS"
    options.write_text(options_text(db="unordered_write=true\n  manual_wal_flush=true"))
    launch = RocksdbLaunch(tmp_path / "db", options, write_options={"disableWAL": True})
    assert workload.load(launch, tmp_path, seed=1, deadline_s=DEADLINE_S)["records"] == RECORDS
    assert len(verify(workload, launch, tmp_path).candidate) == RECORDS


def test_flushing_the_wal_as_an_application_does(small: Small, tmp_path: Path, ledger_path: Path) -> None:
    workload = small("a")
    options = tmp_path / "OPTIONS"
    options.write_text(options_text(db="manual_wal_flush=true"))
    quiet = RocksdbLaunch(tmp_path / "db", options)
    workload.load(quiet, tmp_path, seed=1)
    plan = Plan(threads=2, seed=1, operations=300, stop_after=True)
    flushing = RocksdbLaunch(tmp_path / "db", options, flush_wal_every_ms=1, sync_wal_every_ms=1)
    slow = Plan(threads=2, seed=1, operations=300, target_per_s=3_000, stop_after=True)
    with Ledger.create(ledger_path, 2, 1_000) as ledger:
        with workload.start(flushing, slow, tmp_path, ledger_path) as run:
            measured = run.wait_for("measured", DEADLINE_S)
            run.wait_for("closed", DEADLINE_S)
        sample = ledger.sync_sample()
    assert measured["background_calls"] > 2
    assert measured["background_errors"] == 0
    assert sample is not None
    assert sample.counter > 1
    assert sample.position_before == sample.position_after == ledger_position(ledger_path)
    with workload.start(quiet, plan, tmp_path) as run:
        assert run.wait_for("measured", DEADLINE_S)["background_calls"] == 0


def ledger_position(path: Path) -> int:
    with Ledger.open(path) as ledger:
        return ledger.position


def test_each_synced_write_is_counted_by_the_engine(small: Small, tmp_path: Path, ledger_path: Path) -> None:
    workload = small("a")
    launch = RocksdbLaunch(tmp_path / "db", write_options={"sync": True})
    workload.load(launch, tmp_path, seed=1)
    plan = Plan(threads=1, seed=1, operations=200, stop_after=True)
    with Ledger.create(ledger_path, 1, 1_000) as ledger:
        with workload.start(launch, plan, tmp_path, ledger_path) as run:
            run.wait_for("closed", DEADLINE_S)
            assert run.wait() == 0
        writes = len(ledger.entries())
        sample = ledger.sync_sample()
    assert sample is not None
    assert 50 < writes == sample.counter


def test_a_stalled_write_fails_and_is_never_acknowledged(
    small: Small, tmp_path: Path, ledger_path: Path
) -> None:
    workload = small("a")
    options = tmp_path / "OPTIONS"
    # A memtable of 64 KiB is full after some fifty writes; while it is flushed, the second is full too.
    options.write_text(options_text(family="write_buffer_size=65536\n  max_write_buffer_number=2"))
    launch = RocksdbLaunch(tmp_path / "db", options, write_options={"no_slowdown": True})
    workload.load(launch, tmp_path, seed=1)
    plan = Plan(threads=2, seed=1, operations=4_000, stop_after=True)
    with Ledger.create(ledger_path, 2, 10_000) as ledger:
        with workload.start(launch, plan, tmp_path, ledger_path) as run:
            measured = run.wait_for("measured", DEADLINE_S)
            run.wait_for("closed", DEADLINE_S)
        entries = ledger.entries()
    failed = entries.status == FAILED
    assert failed.sum() > 100
    assert (entries.end[failed] == 0).all()
    assert (entries.begin[failed] > 0).all()
    update = measured["per_operation"]["UPDATE"]
    assert update["errors"] == update["returns"]["ERROR"] > 100
    assert measured["acknowledged_writes"] == update["returns"]["OK"]
    assert "Write stall" in measured["last_error"]
    recovered = verify(workload, RocksdbLaunch(tmp_path / "db"), tmp_path)
    assert lost(entries, recovered) == 0


def test_a_full_disk_during_the_run(small: Small, tmp_path: Path, ledger_path: Path) -> None:
    # A limit on the size of a file stands in for the disk: the WAL's write fails in the same way.
    workload = small("a")
    launch = RocksdbLaunch(tmp_path / "db")
    workload.load(launch, tmp_path, seed=1)
    with Ledger.create(ledger_path, 2, 10_000) as ledger:
        with workload.start(launch, Plan(2, 1, operations=100_000), tmp_path, ledger_path) as run:
            run.wait_for("measuring", DEADLINE_S)
            run.kill()  # only its spec file is wanted
        ledger_path.unlink()
    with Ledger.create(ledger_path, 2, 3_000) as ledger:
        driver = command_of(run_spec=tmp_path / "run.spec")
        shell = "trap '' XFSZ; ulimit -f 600; exec " + driver
        with subprocess.Popen(
            ["bash", "-c", shell], stdout=subprocess.PIPE, stdin=subprocess.PIPE
        ) as process:
            events = []
            assert process.stdout is not None
            for line in process.stdout:
                events.append(json.loads(line))
                if events[-1]["event"] == "stopped":
                    process.kill()
        entries = ledger.entries()
    assert events[-1]["why"] == "ledger-full"
    measured = next(event for event in events if event["event"] == "measured")
    assert measured["per_operation"]["UPDATE"]["errors"] > 100
    assert "IO error" in measured["last_error"]
    failed = entries.status == FAILED
    assert failed.sum() > 100
    assert (entries.end[failed] == 0).all()
    recovered = verify(workload, launch, tmp_path)
    assert recovered.recovered
    assert lost(entries, recovered) == 0


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 600 KiB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", folder], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a tmpfs needs root and CAP_SYS_ADMIN")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("records", ["450", "5000"])
def test_a_full_disk_during_the_load(small: Small, tmp_path: Path, tiny_disk: Path, records: str) -> None:
    # 450 records fit into the WAL and not into a table as well: then it is the flush that fails.
    workload = small("a").with_values({"recordcount": records})
    with pytest.raises(MachineLacks, match="No space left on device") as caught:
        workload.load(RocksdbLaunch(tiny_disk / "db"), tmp_path, seed=1)
    assert "free space" in caught.value.hint


def command_of(run_spec: Path) -> str:
    """For what only a driver without its Python side shows."""
    return f"{find('duratune-ycsb')} run {run_spec}"


def test_a_full_ledger_stops_the_load(small: Small, tmp_path: Path, ledger_path: Path) -> None:
    workload = small("a")
    launch = RocksdbLaunch(tmp_path / "db")
    workload.load(launch, tmp_path, seed=1)
    with Ledger.create(ledger_path, 2, 50) as ledger:
        with workload.start(launch, Plan(2, 1, operations=100_000), tmp_path, ledger_path) as run:
            assert run.wait_for(("reached", "stopped"), DEADLINE_S)["why"] == "ledger-full"
            assert not run.finished
        assert ledger.stop == 2
        assert 50 <= len(ledger.entries()) <= 100
    with Ledger.open(ledger_path) as ledger, pytest.raises(Undecided, match="ledger-full"):
        ledger.ask_stop()
        with workload.start(launch, Plan(2, 1, operations=100_000), tmp_path, ledger_path) as run:
            run.wait_for("reached", DEADLINE_S)


def test_a_request_to_stop_ends_a_clean_run(small: Small, tmp_path: Path, ledger_path: Path) -> None:
    workload = small("b")
    launch = RocksdbLaunch(tmp_path / "db")
    workload.load(launch, tmp_path, seed=1)
    plan = Plan(2, 1, measure_s=600.0, stop_after=True)
    with (
        Ledger.create(ledger_path, 2, 1_000_000) as ledger,
        workload.start(launch, plan, tmp_path, ledger_path) as run,
    ):
        run.wait_for("measuring", DEADLINE_S)
        ledger.ask_stop()
        assert run.wait_for("closed", DEADLINE_S)["why"] == "asked"
        assert run.wait() == 0


def test_phases_provocations_and_the_end_of_a_bounded_run(
    small: Small, tmp_path: Path, ledger_path: Path
) -> None:
    workload = small("a")
    launch = RocksdbLaunch(tmp_path / "db")
    workload.load(launch, tmp_path, seed=1)
    plan = Plan(4, 1, operations=40_000, provoke="flush@0.25,compact@0.5,flush@0.75")
    with (
        Ledger.create(ledger_path, 4, 200_000) as ledger,
        workload.start(launch, plan, tmp_path, ledger_path) as run,
    ):
        run.wait_for("reached", DEADLINE_S)
        beyond = ledger.operations
        assert beyond >= 40_000
        names = [event["event"] for event in run.events]
        while ledger.operations < beyond + 100:  # it goes on until it is killed
            assert not run.finished
        while sum(event["event"] == "provoked" for event in run.events) < 3:
            run.wait_for("provoked", DEADLINE_S)
        provoked = [event for event in run.events if event["event"] == "provoked"]
    assert [name for name in names if name != "provoked"] == [
        "opened",
        "warming",
        "measuring",
        "measured",
        "reached",
    ]
    assert [event["what"] for event in provoked] == ["flush", "compact", "flush"]
    assert [event["fraction"] for event in provoked] == [0.25, 0.5, 0.75]
    assert {event["error"] for event in provoked} == {""}
    assert all(event["begin_position"] <= event["end_position"] for event in provoked)


def test_a_clean_run_does_exactly_its_operations(small: Small, tmp_path: Path, ledger_path: Path) -> None:
    workload = small("d")
    launch = RocksdbLaunch(tmp_path / "db")
    workload.load(launch, tmp_path, seed=1)
    with Ledger.create(ledger_path, 3, 1_000) as ledger:
        with workload.start(
            launch, Plan(3, 1, operations=1_000, stop_after=True), tmp_path, ledger_path
        ) as run:
            assert run.wait_for("closed", DEADLINE_S)["operations"] == 1_000
            assert run.wait() == 0
        inserted = ledger.entries().register
    assert sorted(inserted.tolist()) == list(range(RECORDS, RECORDS + len(inserted)))
    assert len(verify(workload, launch, tmp_path).neutral) == RECORDS + len(inserted)


def test_same_seed_same_writes(small: Small, tmp_path: Path) -> None:
    contents = []
    for name in ("first", "second", "other"):
        folder = tmp_path / name
        folder.mkdir()
        workload, launch, seed = small("a"), RocksdbLaunch(folder / "db"), 2 if name == "other" else 1
        workload.load(launch, folder, seed=seed, threads=1 if name == "first" else 4)
        with workload.start(launch, Plan(1, seed, operations=500, stop_after=True), folder) as run:
            run.wait_for("closed", DEADLINE_S)
        contents.append(verify(workload, launch, folder).neutral)
    assert np.array_equal(contents[0], contents[1])
    assert not np.array_equal(contents[0], contents[2])


def test_a_target_rate_gives_intended_latencies(small: Small, tmp_path: Path) -> None:
    workload = small("a")
    launch = RocksdbLaunch(tmp_path / "db")
    workload.load(launch, tmp_path, seed=1)
    plan = Plan(2, 1, operations=400, target_per_s=1_000, stop_after=True)
    with workload.start(launch, plan, tmp_path) as run:
        measured = run.wait_for("measured", DEADLINE_S)
    # The last operations are due at (200 - 1) * 2 ms.
    assert measured["seconds"] >= 0.398
    for numbers in measured["per_operation"].values():
        assert numbers["intended_min_us"] >= numbers["min_us"] > 0
        assert numbers["intended_max_us"] >= numbers["max_us"]


def test_the_driver_does_not_outlive_its_starter(small: Small, tmp_path: Path) -> None:
    workload = small("a")
    launch = RocksdbLaunch(tmp_path / "db")
    workload.load(launch, tmp_path, seed=1)
    with workload.start(launch, Plan(2, 1, measure_s=600.0), tmp_path) as run:
        run.wait_for("measuring", DEADLINE_S)
        run.kill()
    command = command_of(tmp_path / "run.spec").split()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while b"measuring" not in process.stdout.readline():
            assert process.poll() is None
        process.stdin.close()
        assert process.wait(DEADLINE_S) == -signal.SIGKILL


def test_effective_settings_are_read_back(small: Small, tmp_path: Path) -> None:
    workload = small("a")
    options = tmp_path / "OPTIONS"
    options.write_text(options_text(db="recycle_log_file_num=4"))
    launch = RocksdbLaunch(tmp_path / "db", options, write_options={"sync": True})
    workload.load(launch, tmp_path, seed=1)
    with workload.start(launch, Plan(1, 1, operations=10, stop_after=True), tmp_path) as run:
        run.wait_for("warming", DEADLINE_S)
        text = (tmp_path / EFFECTIVE_NAME).read_text()
    # RocksDB turns recycling off under the default wal_recovery_mode and says nothing.
    assert "recycle_log_file_num=0\n" in text
    assert '[CFOptions "default"]' in text
    # RocksDB takes its own read-back as an OPTIONS file.
    again = tmp_path / "again"
    again.write_text(text)
    assert small("a").load(RocksdbLaunch(tmp_path / "db2", again), tmp_path, seed=1)["records"] == RECORDS


def test_field_values_and_integrity(small: Small, tmp_path: Path) -> None:
    workload = small("a").with_values({"dataintegrity": "true", "fieldlength": "60"})
    launch = RocksdbLaunch(tmp_path / "db")
    workload.load(launch, tmp_path, seed=1)
    plan = Plan(2, 1, operations=2_000, stop_after=True)
    with workload.start(launch, plan, tmp_path) as run:
        measured = run.wait_for("measured", DEADLINE_S)
        run.wait_for("closed", DEADLINE_S)
    assert all(numbers["errors"] == 0 for numbers in measured["per_operation"].values())
    # A record of another workload is an error, not a read: here its fields have other names.
    other = workload.with_values({"fieldnameprefix": "other", "readallfields": "false"})
    with other.start(launch, plan, tmp_path) as run:
        measured = run.wait_for("measured", DEADLINE_S)
    assert measured["per_operation"]["READ"]["returns"]["OK"] == 0
    assert "no record of this workload" in measured["last_error"]


def test_a_named_column_family_is_loaded_and_the_others_are_opened(
    small: Small, tmp_path: Path, ledger_path: Path
) -> None:
    workload = small("a")
    options = tmp_path / "OPTIONS"
    options.write_text(options_text() + options_family("hot", "write_buffer_size=4194304"))
    launch = RocksdbLaunch(tmp_path / "db", options, column_family="hot")
    workload.load(launch, tmp_path, seed=1)
    plan = Plan(2, 1, operations=1_000)
    _, entries = run_and_kill(workload, launch, plan, tmp_path, ledger_path)
    recovered = verify(workload, launch, tmp_path)
    assert len(recovered.neutral) == RECORDS
    assert lost(entries, recovered) == 0
    assert len(verify(workload, RocksdbLaunch(tmp_path / "db", options), tmp_path).neutral) == 0
    with pytest.raises(InvalidInput, match="no column family 'cold'") as caught:
        workload.load(RocksdbLaunch(tmp_path / "db2", options, column_family="cold"), tmp_path, seed=1)
    assert "default, hot" in caught.value.hint


def options_text(db: str = "", family: str = "") -> str:
    """An OPTIONS file of the kind that people have."""
    return (
        "[Version]\n  rocksdb_version=7.8.3\n  options_file_version=1.1\n\n"
        f"[DBOptions]\n  {db}\n\n" + options_family("default", family)
    )


def options_family(name: str, family: str) -> str:
    return (
        f'[CFOptions "{name}"]\n  {family}\n\n[TableOptions/BlockBasedTable "{name}"]\n  block_size=4096\n\n'
    )


@pytest.mark.parametrize(
    ("db", "family", "fault"),
    [
        ("", "comparator=my.Comparator", "comparator=my.Comparator is application code"),
        ("", "comparator=rocksdb.ReverseBytewiseComparator", "another key order"),
        ("", "merge_operator=my.Append", "merge_operator=my.Append is application code"),
        ("wal_bytes_per_synk=1", "", "wal_bytes_per_synk"),
        ("max_open_files=many", "", "RocksDB rejects"),
        ("", "compaction_filter=my.Filter", "RocksDB rejects"),
    ],
)
def test_options_that_cannot_be_run(small: Small, tmp_path: Path, db: str, family: str, fault: str) -> None:
    options = tmp_path / "OPTIONS"
    options.write_text(options_text(db, family))
    with pytest.raises(InvalidInput, match=fault):
        small("a").load(RocksdbLaunch(tmp_path / "db", options), tmp_path, seed=1)
    assert not (tmp_path / "db").exists()


def test_options_files_that_are_none(small: Small, tmp_path: Path) -> None:
    options = tmp_path / "OPTIONS"
    for content in (b"", b"\x00\xff\x01" * 50, options_text().encode()[:40], b"[DBOptions]\n"):
        options.write_bytes(content)
        with pytest.raises(InvalidInput, match="RocksDB rejects"):
            small("a").load(RocksdbLaunch(tmp_path / "db", options), tmp_path, seed=1)
    with pytest.raises(InvalidInput, match="cannot read the OPTIONS file"):
        small("a").load(RocksdbLaunch(tmp_path / "db", tmp_path / "absent"), tmp_path, seed=1)


def test_launches_that_cannot_be_run(small: Small, tmp_path: Path) -> None:
    workload = small("a")
    both = RocksdbLaunch(tmp_path / "db", write_options={"sync": True, "disableWAL": True})
    with pytest.raises(InvalidInput, match=r"sync=true contradicts WriteOptions\.disableWAL"):
        workload.load(both, tmp_path, seed=1)
    with pytest.raises(InvalidInput, match="already exists"):
        workload.load(RocksdbLaunch(tmp_path), tmp_path, seed=1)
    with (
        pytest.raises(InvalidInput),
        workload.start(RocksdbLaunch(tmp_path / "db"), Plan(1, 1), tmp_path) as run,
    ):
        run.wait_for("opened", DEADLINE_S)
    with pytest.raises(InvalidInput, match="seed=-1 is negative; threads=0 is below 1"):
        Plan(0, -1)


def test_specs_that_are_wrong(program: Path, tmp_path: Path) -> None:
    faults = {
        "threds=2": "unknown keys in the spec: threds",
        "threads=two": "threads=two is no whole number",
        "threads=0": "threads=0 is below 1",
        "provoke=flush@2": "provoke item 'flush@2'",
        "provoke=crash@0.5": "provoke item 'crash@0.5'",
        "readproportion=-1": "readproportion=-1 is negative",
        "requestdistribution=zipf": "requestdistribution=zipf is unknown",
    }
    for number, (line, fault) in enumerate(faults.items()):
        key, _, value = line.partition("=")
        spec = {"db.path": str(tmp_path / "db"), "ledger": "off", key: value}
        path = write_spec(tmp_path / f"{number}.spec", spec)
        with (
            pytest.raises(InvalidInput) as caught,
            DriverProcess("load", str(path), tmp_path / "log") as driver,
        ):
            driver.wait_for("loaded", DEADLINE_S)
        assert fault in caught.value.what
    answer = subprocess.run([program, "fly", path], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "'fly' is no subcommand" in json.loads(answer.stdout)["what"]
    with pytest.raises(InvalidInput, match="line break"):
        write_spec(tmp_path / "x", {"db.path": "a\nb"})


def test_a_ledger_for_fewer_clients_is_refused(small: Small, tmp_path: Path, ledger_path: Path) -> None:
    workload = small("a")
    launch = RocksdbLaunch(tmp_path / "db")
    workload.load(launch, tmp_path, seed=1)
    with (
        Ledger.create(ledger_path, 2, 10),
        pytest.raises(InvalidInput, match="room for 2 clients, not for 3"),
        workload.start(launch, Plan(3, 1, operations=10), tmp_path, ledger_path) as run,
    ):
        run.wait_for("opened", DEADLINE_S)
    os.truncate(ledger_path, 5_000)
    with (
        pytest.raises(InvalidInput, match="cut short"),
        workload.start(launch, Plan(2, 1, operations=10), tmp_path, ledger_path) as run,
    ):
        run.wait_for("opened", DEADLINE_S)
