"""The options that commands share: each command has them all, spelled and explained alike."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import fields

import pytest
import typer
from typer.main import get_command

from knobs.errors import InvalidInput
from tuner import cli, options
from tuner.options import Asked, takes_asked


def parameters(name: str) -> dict[str, tuple[object, ...]]:
    """What a command's help says of each of its parameters."""
    app = typer.Typer(add_completion=False)
    app.command(name)(importlib.import_module(cli.COMMANDS[name].module).command)
    return {
        str(one.name): (one.opts, getattr(one, "help", None), one.default) for one in get_command(app).params
    }


def test_what_is_asked_alike_is_explained_alike() -> None:
    commands = {name: parameters(name) for name in ("tune", "crash", "bench")}
    shared = {field.name for field in fields(Asked)}
    for found in commands.values():
        assert shared <= set(found)
        assert {name: found[name] for name in shared} == {name: commands["tune"][name] for name in shared}
    assert commands["crash"]["measure"][1:] == commands["bench"]["time"][1:]
    for name in ("knobs", "doctor"):
        assert parameters(name)["json"] == commands["tune"]["json"]


def test_a_command_gets_what_was_typed_and_its_own_options() -> None:
    @takes_asked
    def command(asked: Asked, rounds: int, vs: str = "default") -> int:
        assert (asked.engine, asked.sets, asked.protocol, vs) == ("rocksdb", ["a=1"], "simple", "default")
        return rounds

    assert command(**vars(Asked("rocksdb", sets=["a=1"])), rounds=3) == 3
    names = list(inspect.signature(command).parameters)
    assert names == [*(field.name for field in fields(Asked)), "rounds", "vs"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("300s", 300.0), ("5min", 300.0), ("1h", 3_600.0), ("0.5s", 0.5), ("20", 20.0)]
)
def test_a_time_is_read(text: str, seconds: float) -> None:
    assert options.seconds(text) == seconds


@pytest.mark.parametrize("text", ["0", "0s", "-1s", "soon", "", "5 min", "1d", "1e3s", "nan", "5minutes"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no time"):
        options.seconds(text)


@pytest.mark.parametrize("text", ["99999999999h", "721h", "2592001s", "9" * 400])
def test_a_time_that_would_never_end_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is longer than 30 days"):
        options.seconds(text)
    assert options.seconds("720h") == 30 * 86_400
