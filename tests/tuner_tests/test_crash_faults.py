"""`duratune crash --fault`: told with where it struck, replayed, never reached, refused."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tuner_tests.crash_runs import QUICK, Room, refused

pytestmark = pytest.mark.slow


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room.make(tmp_path)
    yield room
    assert room.left_behind() == []


def test_a_fault_is_told_with_where_it_struck_and_replayed(room: Room, seed: int) -> None:
    """RocksDB takes no more writes behind a log that it could not sync."""
    words = ("--set", "WriteOptions.sync=true", "--contract", "strict", "--fault", "fsync-eio@30:wal")
    ended = room.run("crash", "rocksdb", *words, *QUICK, "--seed", str(seed), "--json")
    assert ended.code == 0, ended
    document = ended.document
    fault = document["fault"]
    assert (fault["asked"], fault["call"], fault["role"]) == ("fsync-eio@30:wal", "fdatasync", "wal")
    assert re.fullmatch(r"db/\d+\.log", fault["file"]) and fault["position"] > 0 and fault["after_ms"] > 0
    planned = {state["position"] for state in document["states"] if state["source"] == "fault"}
    assert planned and min(planned) > fault["position"]
    assert all(control["wanted"] == control["got"] for control in document["controls"].values())
    again = room.run(*shlex.split(document["replay"])[1:], "--json")
    assert (again.code, again.document["fault"]) == (0, fault)
    told = room.run(*shlex.split(document["replay"])[1:])
    assert (
        f"fault          fsync-eio@30:wal: fdatasync of {fault['file']} (wal) failed at position" in told.out
    )
    changed = room.run(*shlex.split(document["replay"])[1:], "--fault", "enospc@1", "--json")
    assert changed.code == 2 and "--fault cannot change a run" in changed.document["error"]["what"]


def test_a_fault_that_is_never_reached_is_unknown(room: Room) -> None:
    error = refused(room, *QUICK, "--fault", "fsync-eio@1000000:table", code=4)
    assert "was never reached: the load made" in error["what"] and "syncs of table files" in error["what"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fault", "fsync-eio"), "'fsync-eio' is no fault"),
        (("--fault", "fsync-eio@0"), "there is no sync number 0"),
        (("--fault", "enospc@1:relation"), "no role of a recorded file of rocksdb"),
        (("--fault", "enospc@1", "--contract", "bounded:500ms"), "a fault is not judged under bounded:500ms"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(room: Room, words: tuple[str, ...], said: str) -> None:
    error = refused(room, *words)
    assert said in error["what"] and error["where"] == "--fault" and error["hint"]
