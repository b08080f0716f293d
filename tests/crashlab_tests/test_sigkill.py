"""What a SIGKILL leaves of the write that it interrupts, on this kernel and file system.

The model `cache` takes a write as whole or absent; this is what it leaves out (crashlab/models/cache.py).
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

WRITER = """
import os, sys
path, size = sys.argv[1], int(sys.argv[2])
file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
data = b"x" * size
print("up", flush=True)
for number in range(1 << 30):
    os.write(file, data)
    if number % max(1, (64 << 20) // size) == 0:
        os.ftruncate(file, 0)
"""
KILLS = 25
PAGE_BYTES = 4096


@pytest.mark.slow
@pytest.mark.parametrize("size", [8_192, 19_200])
def test_a_kill_cuts_a_write_between_two_pages_or_not_at_all(
    tmp_path: Path, rng: random.Random, size: int
) -> None:
    path = tmp_path / "log"
    for _ in range(KILLS):
        command = [sys.executable, "-S", "-c", WRITER, str(path), str(size)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"up\n"
            time.sleep(rng.uniform(0.0, 0.005))  # not a wait for something: the moment of the kill is random
            writer.send_signal(signal.SIGKILL)
        left = path.stat().st_size
        assert left % size == 0 or left % PAGE_BYTES == 0
