"""`duratune crash` with second crashes: told, replayed, left out, interrupted; nothing left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tuner_tests.crash_runs import QUICK, Room
from tests.tuner_tests.interruptions import SIGNALS
from tests.tuner_tests.program import Ended
from tuner.commands.crash import parse_any_state, parse_state

pytestmark = pytest.mark.slow


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room.make(tmp_path)
    yield room
    assert room.left_behind() == []


SYNCED = ("--contract", "strict", "--set", "sync=true")
MANY = ("--states", "20", *QUICK[2:])


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory, seed: int) -> tuple[Room, Ended]:
    room = Room.make(tmp_path_factory.mktemp("held"))
    return room, room.run("crash", "rocksdb", *SYNCED, "--seed", str(seed), *MANY, "--json")


def test_a_tenth_of_the_states_is_double_and_has_its_controls(held: tuple[Room, Ended]) -> None:
    room, ended = held
    assert ended.code == 0, ended
    document = ended.document
    doubles = [state for state in document["states"] if ">" in state["id"]]
    assert len(doubles) == document["power_cut"]["models"]["double"]["states"] == 2
    for state in doubles:
        assert state["model"].count(">") == 1 and state["source"] == "recovery"
        assert (state["verdict"], state["lost"]) == ("HELD", 0)
        assert state["acks"] > 0 and state["checks"]
    for kind in ("lossy", "honest"):
        control = document["controls"][f"double.{kind}"]
        assert control["wanted"] == control["got"]
    kept = room.folder / document["study"] / "recording" / "again"
    assert {path.name for path in kept.iterdir()} == {state["id"].partition(">")[0] for state in doubles}
    assert room.left_behind() == []


def test_a_double_state_is_replayed(held: tuple[Room, Ended]) -> None:
    room, ended = held
    document = ended.document
    where = ("crash", "rocksdb", "--study", document["study"], "--replay")
    (state, *_) = [state for state in document["states"] if ">" in state["id"]]
    before = sorted(room.folder.rglob("*"))
    again = room.run(*where, state["id"], "--json")
    assert (again.code, again.document["verdict"]) == (0, "HELD")
    assert (again.document["acks"], again.document["state"]) == (state["acks"], state["id"])
    assert again.document["provenance"]["models"] == ["double"]
    first, _, second = state["id"].partition(">")
    model, _, seed = second.replace("@", "#").split("#")
    for wrong, told in (
        (f"{first}>{model}@999999#{seed}", "lies at the positions"),
        (f"{first}>{model}@0#{seed}", "lies at the positions"),
        (f"{first}0>{second}", "no recovery from"),
        (f"cache@0#1>{second}", "the load of this run lies at the positions"),
        (f"{state['id']}>{second}", "is no crash state"),
        (f"{first}>", "is no crash state"),
    ):
        refused = room.run(*where, wrong, "--json")
        assert refused.code == 2, wrong
        assert told in refused.document["error"]["what"]
    changed = room.run(*where, state["id"], "--no-double", "--json")
    assert (changed.code, "--no-double cannot change" in changed.document["error"]["what"]) == (2, True)
    assert sorted(room.folder.rglob("*")) == before
    assert room.left_behind() == []


def test_double_states_can_be_left_out(room: Room, seed: int) -> None:
    ended = room.run("crash", "rocksdb", *SYNCED, "--seed", str(seed), *MANY, "--no-double", "--json")
    assert ended.code == 0
    assert not any(">" in state["id"] for state in ended.document["states"])
    assert not any(name.startswith("double") for name in ended.document["controls"])
    assert "double" not in ended.document["power_cut"]["models"]
    assert list(room.folder.glob("results/*/recording/again")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interruption_while_recoveries_are_recorded_leaves_nothing_behind(
    room: Room, number: signal.Signals
) -> None:
    with room.start("crash", "rocksdb", *SYNCED, *MANY[:1], "200", *MANY[2:]) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "crashing recoveries" in line:
                break
        os.kill(process.pid, number)
        process.communicate(timeout=60.0)
    assert process.returncode == SIGNALS[number]
    if number is signal.SIGKILL:
        room.await_quiet(5.0)
        assert room.processes() == []
        swept = room.run("doctor", "--clean", "--json")
        assert swept.code in (0, 3), swept.err


def test_a_state_may_be_two_joined() -> None:
    state = parse_any_state("torn@81234#5>synced@97#6")
    assert (state.id, state.model) == ("torn@81234#5>synced@97#6", "torn>synced")
    assert parse_any_state("cache@7#1") == parse_state("cache@7#1")
