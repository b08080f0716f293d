"""How long the program takes to start."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.bench.figures import CHECKOUT, Figure, Sheet
from tests.bench.rounds import in_turn

pytestmark = pytest.mark.bench

ROUNDS = 10
PROGRAM = Path(sys.executable).with_name("duratune")
COMMANDS: dict[str, list[str | Path]] = {
    "duratune --version": [PROGRAM, "--version"],
    "duratune knobs rocksdb WriteOptions.sync": [PROGRAM, "knobs", "rocksdb", "WriteOptions.sync"],
    "duratune bench --help": [PROGRAM, "bench", "--help"],
    "python -c pass": [sys.executable, "-c", "pass"],
}


def seconds(words: list[str | Path], _seed: int) -> float:
    begin_s = time.monotonic()
    subprocess.run(words, cwd=CHECKOUT, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begin_s


def test_start_up(sheet: Sheet) -> None:
    if not PROGRAM.is_file():
        pytest.skip("duratune is not installed beside this Python")

    found = in_turn(ROUNDS, {name: partial(seconds, words) for name, words in COMMANDS.items()})
    figures = [Figure(f"`{name}`", took, "s") for name, took in found.items()]
    sheet.add("Start-up", "Seconds from start to end of the whole process.", figures)
