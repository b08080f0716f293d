"""A command for the tests of the command line: it does what its option says."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from engines.scratch import Scratch
from knobs.errors import InvalidInput, MachineLacks, Undecided

ERRORS = {
    "invalid": InvalidInput("bad value", where="--seed", hint="use a number"),
    "lacks": MachineLacks("no compiler", where="c++", hint="apt-get install g++"),
    "unknown": Undecided("the lab failed"),
    "key": KeyError("nobody expected this"),
    "exit": SystemExit(1),
    "memory": MemoryError(),
    "interrupt": KeyboardInterrupt(),
}


def command(
    do: Annotated[str, typer.Option(help="What to do.")] = "return 0",
    room: Annotated[Path | None, typer.Option(help="Where to make a scratch folder.")] = None,
    trials: Annotated[int, typer.Option(min=1, help="A number.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Machine output.")] = False,
) -> int | None:
    """Do what --do says."""
    del trials, json
    if do in ERRORS:
        raise ERRORS[do]
    if do == "wait":
        assert room is not None
        with Scratch() as scratch:
            print(scratch.folder(room, "data"), flush=True)
            time.sleep(60)
    if do == "flood":
        for _ in range(100_000):
            print("a line that somebody may stop to read")
    if do == "pid":
        sys.stdout.write(str(os.getpid()))
        return None
    return int(do.removeprefix("return "))
