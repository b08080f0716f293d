"""`duratune crash` as a process: verdicts, documents, bad input, limits, signals; nothing left behind."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engines.host import mounts_below
from engines.rocksdb.engine import CONTROLS, RocksdbEngine
from knobs.errors import InvalidInput
from tests.crashlab_tests.block_tests.disks import KINDS, loop_devices, need_disks
from tests.tuner_tests.crash_runs import QUICK, Room, refused
from tests.tuner_tests.interruptions import BLOCK_RUN_S, interrupted
from tests.tuner_tests.program import Ended
from tests.tuner_tests.requests import request_of
from tuner.commands.crash import _refuse_without_control, parse_state

pytestmark = pytest.mark.slow


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    """Whatever the test does, nothing that is duratune's is left at its end."""
    room = Room.make(tmp_path)
    yield room
    assert room.left_behind() == []


# Verdicts.


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory, seed: int) -> tuple[Room, Ended]:
    room = Room.make(tmp_path_factory.mktemp("broken"))
    ended = room.run("crash", "rocksdb", "--contract", "strict", "--seed", str(seed), *QUICK, "--json")
    return room, ended


def test_a_broken_verdict_is_a_whole_document(broken: tuple[Room, Ended], seed: int) -> None:
    room, ended = broken
    assert ended.code == 1
    document = ended.document
    assert (document["schema"], document["engine"], document["contract"]) == (1, "rocksdb", "strict")
    assert (document["seed"], document["verdict"], document["reasons"]) == (seed, "BROKEN", ["lost-ack"])
    for crash, verdict in (("process_crash", "HELD"), ("power_cut", "BROKEN")):
        summary = document[crash]
        assert summary["verdict"] == verdict
        assert summary["acks"] >= summary["decidable"] > 0
        assert summary["states"] > 0
        assert (summary["lost"] > 0, summary["loss_ms"] > 0, summary["loss_writes"] > 0) == (
            verdict == "BROKEN",
        ) * 3
    assert document["power_cut"]["first_lost"]["key"].startswith("user")
    assert document["power_cut"]["models"]["synced"]["verdict"] == "BROKEN"
    audit = document["audit"]
    assert audit["acks"] == audit["covered"] + audit["exposed"] + audit["unlocated"] > 0
    assert set(document["controls"]) == {
        f"{name}.{kind}"
        for name in ("cache", "kill", "synced", "torn", "torn-512", "reordered")
        for kind in ("lossy", "honest")
    }
    assert all(control["wanted"] == control["got"] for control in document["controls"].values())
    assert document["recovery_s_max"] > 0
    assert document["effective"]["DBOptions.manual_wal_flush"] == "false"
    assert {state["model"] for state in document["states"]} == {
        "cache",
        "synced",
        "torn",
        "torn-512",
        "reordered",
    }
    assert all(state["checks"] and state["id"].startswith(state["model"]) for state in document["states"])
    assert len({state["id"] for state in document["states"]}) == len(document["states"])
    provenance = document["provenance"]
    assert {"duratune", "command", "seed", "started_at", "engine", "workload", "recorder"} <= set(provenance)
    assert {"models", "kernel", "file_system", "device", "cpu", "memory_bytes", "limits"} <= set(provenance)
    (saved,) = room.folder.glob("results/*/crash.json")
    assert json.loads(saved.read_text()) == document
    assert room.left_behind() == []


def test_the_replay_command_repeats_the_verdict(broken: tuple[Room, Ended]) -> None:
    room, ended = broken
    document = ended.document
    words = shlex.split(document["replay"])
    assert words[0] == "duratune" and "--replay" in words
    wanted = next(state for state in document["states"] if state["id"] == words[-1])
    assert wanted["lost"] == max(state["lost"] for state in document["states"])
    seen = []
    for _ in range(2):
        again = room.run(*words[1:], "--json")
        assert again.code == 1
        seen.append(again.document)
    for replayed in seen:
        assert (replayed["verdict"], replayed["reasons"]) == (wanted["verdict"], wanted["reasons"])
        assert (replayed["acks"], replayed["lost"]) == (wanted["acks"], wanted["lost"])
        assert len(replayed["lost_writes"]) == wanted["lost"] > 0
        assert replayed["engine"] == "rocksdb"
        for name in ("engine", "settings", "recorder"):
            assert replayed["provenance"][name] == document["provenance"][name], name
        assert replayed["provenance"]["workload"]["name"] == "ycsb:a"
    assert seen[0]["lost_writes"] == seen[1]["lost_writes"]
    # Another contract over the same state: the loss is allowed now, and is the same.
    process = room.run(*words[1:], "--contract", "process", "--json")
    assert (process.code, process.document["verdict"]) == (0, "HELD")
    assert process.document["lost_writes"] == seen[0]["lost_writes"]
    # A window that the run was too short for decides nothing.
    wide = room.run(*words[1:], "--contract", "bounded:60s", "--json")
    assert (wide.code, wide.document["verdict"]) == (4, "UNKNOWN")
    assert "less than the window" in wide.document["unknown_why"]
    assert room.left_behind() == []
    # Where the run was not, and what would have changed it, is refused.
    model, _, seed = words[-1].replace("@", "#").split("#")
    outside = [room.run(*words[1:-1], f"{model}@{position}#{seed}", "--json") for position in (0, 10**9)]
    changed = room.run(*words[1:], "--set", "sync=true", "--states", "9", "--scale", "3", "--json")
    foreign = room.run(*words[1:], "--bindir", "/nowhere", "--json")
    other = room.run("crash", "postgresql", *words[3:], "--json")
    posix = room.run(*words[1:], "--metadata", "posix", "--strict-model", "--json")
    assert [ended.code for ended in (*outside, changed, posix, foreign, other)] == [2] * 6
    assert "--metadata and --strict-model cannot change a run" in posix.document["error"]["what"]
    for ended in outside:
        assert "the load of this run lies at the positions" in ended.document["error"]["what"]
    assert "--set and --scale and --states cannot change a run" in changed.document["error"]["what"]
    assert "--bindir is an option of postgresql" in foreign.document["error"]["what"]
    assert "the recording is of rocksdb" in other.document["error"]["what"]


@pytest.mark.parametrize("wrong", ["got", "none"])
def test_a_replay_stands_on_the_controls_of_its_run(broken: tuple[Room, Ended], wrong: str) -> None:
    """What a run with a wrong control, or with none, could not say, its replay cannot either."""
    room, ended = broken
    document = ended.document
    saved = room.folder / document["study"] / "crash.json"
    whole = saved.read_text()
    try:
        if wrong == "none":
            document = {**document, "controls": {}}
        else:
            control = {**document["controls"]["synced.lossy"], "got": "HELD"}
            document = {**document, "controls": {**document["controls"], "synced.lossy": control}}
        saved.write_text(json.dumps(document))
        again = room.run(*shlex.split(document["replay"])[1:], "--json")
    finally:
        saved.write_text(whole)
    assert (again.code, again.document["verdict"]) == (4, "UNKNOWN")
    why = "no control was run" if wrong == "none" else "control synced.lossy is HELD where it must be BROKEN"
    assert again.document["unknown_why"].startswith(why)


@pytest.mark.parametrize("state", ["nonsense", "cache@1", "synced@x#1", "rotten@5#1", "cache@-5#1", "@1#1"])
def test_a_state_that_is_none_is_refused(room: Room, state: str) -> None:
    (room.folder / "study").mkdir()
    error = refused(room, "--replay", state, "--study", "study")
    assert error["where"] == "--replay"


def test_a_replay_without_its_run_is_refused(room: Room) -> None:
    (room.folder / "study").mkdir()
    assert "needs the folder" in refused(room, "--replay", "cache@1#1")["what"]
    assert "no finished run" in refused(room, "--replay", "cache@1#1", "--study", "study")["what"]
    (room.folder / "study" / "crash.json").write_text(
        '{"contract": "strict", "engine": "rocksdb", "findings": [], "controls": {}, "engine_limits": []}'
    )
    assert "no recording" in refused(room, "--replay", "cache@1#1", "--study", "study")["what"]


def test_text_for_a_person(room: Room, seed: int) -> None:
    lossy = ("--set", "manual_wal_flush=true", "--set", "WriteOptions.sync=false")
    ended = room.run("crash", "rocksdb", *lossy, "--seed", str(seed), *QUICK)
    assert ended.code == 1
    lines = ended.out.splitlines()
    assert lines[0].startswith("contract       process: ")
    (crash,) = [line for line in lines if line.startswith("process crash")]
    for part in ("BROKEN", "acks lost", "a window of", "the first user"):
        assert part in crash
    assert "verdict        BROKEN lost-ack" in lines
    assert lines[-1].startswith("repeat         duratune crash rocksdb --study ")


# Bad input.


def test_an_unknown_option_gets_the_nearest_name(room: Room) -> None:
    error = refused(room, "--set", "manual_wal_flsh=true", "--set", "no_such_thing_at_all=1")
    assert "DBOptions.manual_wal_flush" in error["what"]
    assert "no_such_thing_at_all" in error["what"]


def test_an_error_for_a_person_is_two_lines(room: Room) -> None:
    ended = room.run("crash", "rocksdb", "--set", "manual_wal_flsh=true")
    assert (ended.code, ended.out) == (2, "")
    first, second = ended.err.splitlines()
    assert first.startswith("error: --set: ") and second.startswith("hint: ")


def test_every_wrong_value_is_in_one_message(room: Room) -> None:
    settings = (
        "use_fsync=maybe",
        "write_buffer_size=abc",
        "max_background_jobs=1.5",
        "wal_recovery_mode=kNever",
    )
    error = refused(room, *(word for setting in settings for word in ("--set", setting)))
    for setting in settings:
        assert setting.split("=")[0] in error["what"]


OPTIONS = """\
[Version]
  rocksdb_version={version}
  options_file_version=1.1

[DBOptions]
{lines}

[CFOptions "default"]

[TableOptions/BlockBasedTable "default"]
"""


def options(room: Room, *lines: str, version: str = "7.8.3") -> str:
    text = OPTIONS.format(version=version, lines="\n".join(f"  {line}" for line in lines))
    (room.folder / "OPTIONS").write_text(text)
    return "OPTIONS"


def test_a_truncated_options_file(room: Room) -> None:
    text = (room.folder / options(room, "use_fsync=true")).read_text()
    (room.folder / "OPTIONS").write_text(text[: text.index("ons/BlockBased")])
    error = refused(room, "OPTIONS")
    assert error["where"] == "OPTIONS"
    assert re.search(r"truncated|line \d+", error["what"])


def test_a_binary_options_file(room: Room) -> None:
    (room.folder / "OPTIONS").write_bytes(bytes(range(256)))
    assert "binary" in refused(room, "OPTIONS")["what"]


def test_an_options_file_of_a_newer_version_with_what_is_unknown_here(room: Room) -> None:
    error = refused(room, options(room, "brand_new_option=1", version="99.1.0"))
    assert "99.1.0" in error["what"] and "brand_new_option" in error["what"]


def test_no_file_at_all(room: Room) -> None:
    assert refused(room, "nowhere.OPTIONS")["where"] == "nowhere.OPTIONS"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("readproportion=0.5\nfoo=1\nbar=2\n", ["foo", "bar"]),
        ("readproportion=-0.5\nupdateproportion=-1\n", ["readproportion=-0.5", "updateproportion=-1"]),
        ("readproportion=0\nupdateproportion=0\n", ["zero"]),
        ("recordcount=none\nfieldlength=-1\n", ["recordcount", "fieldlength"]),
    ],
)
def test_a_wrong_workload_file(room: Room, text: str, told: list[str]) -> None:
    (room.folder / "load").write_text(text)
    error = refused(room, "--workload", "ycsb:load")
    for part in told:
        assert part in error["what"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--workload", "ycsb:z"),
        ("--workload", "tpcc"),
        ("--contract", "sometimes"),
        ("--contract", "bounded:0ms"),
        ("--clients", "0"),
        ("--states", "1"),
        ("--nonsense",),
        ("-p", "fieldlength"),
        ("--cf", "nowhere"),
    ],
    ids=" ".join,
)
def test_a_wrong_argument(room: Room, arguments: tuple[str, ...]) -> None:
    refused(room, *arguments)


def test_a_data_folder_that_exists(room: Room) -> None:
    (room.folder / "there").mkdir()
    (room.folder / "there" / "mine").write_text("precious")
    assert refused(room, "--data", "there")["where"] == "there"
    assert (room.folder / "there" / "mine").read_text() == "precious"


def test_data_on_tmpfs_under_strict(room: Room) -> None:
    error = refused(room, "--data", f"/dev/shm/test-{os.getpid()}", "--contract", "strict")
    assert "tmpfs" in error["what"]
    assert not Path(f"/dev/shm/test-{os.getpid()}").exists()


def test_a_named_folder_that_holds_something(room: Room) -> None:
    """A run is not resumed; its results neither lie among others nor elsewhere than they were wanted."""
    (room.folder / "mine").mkdir()
    (room.folder / "mine" / "crash.json").write_text("precious")
    error = refused(room, "--study", "mine")
    assert error["where"] == "mine" and "holds something" in error["what"]


def test_results_that_cannot_be_written(room: Room) -> None:
    (room.folder / "file").write_text("in the way")
    assert "cannot be written" in refused(room, "--study", "file/study")["what"]


def test_paths_of_a_config_are_overridden_and_listed(room: Room, seed: int) -> None:
    elsewhere = room.folder / "elsewhere"
    config = options(
        room,
        f"wal_dir={elsewhere}/wal",
        f"db_log_dir={elsewhere}/log",
        "use_fsync=true",
    )
    ended = room.run("crash", "rocksdb", config, "--seed", str(seed), *QUICK, "--json")
    assert ended.code == 0, ended
    found = {finding["setting"] for finding in ended.document["findings"]}
    assert {"DBOptions.wal_dir", "DBOptions.db_log_dir"} <= found
    assert ended.document["effective"]["DBOptions.use_fsync"] == "true"
    assert not elsewhere.exists()


# Limits of the machine.


def test_too_few_file_descriptors(room: Room) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    ended = room.run("crash", "rocksdb", "--set", "max_open_files=5000", "--json", before=limit)
    assert ended.code == 3
    error = ended.document["error"]
    assert (error["code"], error["where"]) == ("machine-lacks", "RLIMIT_NOFILE")
    assert "256" in error["what"] and error["hint"].startswith("ulimit -n ")
    assert not (room.folder / "results").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(mount)], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


@pytest.mark.parametrize(("scale", "told"), [("100", "MiB of space needed"), ("9", "No space left")])
def test_a_disk_that_is_or_becomes_full(room: Room, small_disk: Path, scale: str, told: str) -> None:
    """Before the load, where it cannot fit; else when it is full."""
    ended = room.run("crash", "rocksdb", "--data", str(small_disk / "data"), "--scale", scale, "--json")
    assert ended.code == 3, ended
    error = ended.document["error"]
    assert error["code"] == "machine-lacks"
    assert told in error["what"]
    assert list(small_disk.iterdir()) == []
    assert list(room.folder.glob("results/*")) == []


# Signals.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interruption_leaves_nothing_behind(
    number: signal.Signals, rng: random.Random, tmp_path: Path
) -> None:
    assert interrupted(tmp_path, number, rng) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_interruption_leaves_no_virtual_disk_behind(
    number: signal.Signals, rng: random.Random, tmp_path: Path
) -> None:
    need_disks()
    before = loop_devices()
    block = ("--recorder", "block", "--file-system", rng.choice(KINDS))
    assert interrupted(tmp_path, number, rng, *block, whole_run_s=BLOCK_RUN_S) == []
    assert mounts_below(tmp_path) == []
    ends_s = time.monotonic() + 10.0
    # Those of other tests, which come and go at the same time, are other ones a moment later.
    while (left := loop_devices() - before) and time.monotonic() < ends_s:
        time.sleep(0.2)
    assert left == set()


def test_a_model_without_controls_replays_nothing() -> None:
    engine = RocksdbEngine(controls={"cache": CONTROLS["cache"]})
    request = replace(request_of(), engine=engine)
    _refuse_without_control(parse_state("cache@7#1"), request)
    with pytest.raises(InvalidInput, match="torn has no control for rocksdb") as refused:
        _refuse_without_control(parse_state("torn@7#1"), request)
    assert refused.value.hint == "use one of cache"


def test_states_are_judged_for_a_time(room: Room, seed: int) -> None:
    words = ("--measure", "0.3", "--operations", "1000", "--scale", "2", "--seed", str(seed), "--no-double")
    ended = room.run("crash", "rocksdb", *words, "--time", "0.1s", "--json")
    assert ended.code == 0, ended
    document = ended.document
    assert document["budget"] == {"states": None, "time_s": 0.1}
    states = document["states"]
    assert [state["model"] for state in states[: len(CONTROLS)]][:2] == ["cache", "synced"]
    assert {state["model"] for state in states} == {"cache", *document["power_cut"]["models"]}
    assert f"states         {len(states)} judged in 0.1 s: " in ended.err
    assert all(
        not state["same_as"] or state["same_as"] in {each["id"] for each in states} for state in states
    )
    covered = document["coverage"]
    assert covered["cells"] == len(covered["operations"]) > 0 < covered["covered"]
    assert "coverage       " in ended.err and {"memtable flush", "WAL switch"} <= set(covered["event_states"])
    # Whichever ends first.
    both = room.run("crash", "rocksdb", *words, "--time", "10min", "--states", "6", "--json")
    assert both.document["budget"] == {"states": 6, "time_s": 600.0} and len(both.document["states"]) == 6
    assert "states         6 of 6 judged in 600 s: " in both.err


@pytest.mark.parametrize(
    "words", [("--time", "0s"), ("--time", "soon"), ("--measure", "0s"), ("--measure", "2h")]
)
def test_a_wrong_time_is_refused_by_the_name_of_its_option(room: Room, words: tuple[str, str]) -> None:
    assert refused(room, *words)["where"] == words[0]


def test_a_replay_takes_no_budget(room: Room) -> None:
    for words in (("--time", "5s"), ("--measure", "5s"), ("--states", "30")):
        error = refused(room, "--study", "x", "--replay", "cache@7#1", *words)
        assert words[0] in error["what"]
