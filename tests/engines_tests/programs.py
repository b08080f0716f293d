"""Small programs that the tests start as real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# Stays until it is killed. It has a parent that may die, so it ends by itself after a minute.
SLEEP = "import time; time.sleep(60)"

# Says how it is called and then stays.
READY_SLEEP = "import time; print('ready', flush=True); time.sleep(60)"

# A parent with a child and a grandchild in the same group; prints their pids.
FAMILY = """
import subprocess, sys, time
inner = "import time; print('up', flush=True); time.sleep(60)"
outer = f'''
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {inner!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
'''
child = subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE, text=True)
print(child.pid, int(child.stdout.readline()), flush=True)
time.sleep(60)
"""


def python(source: str, *arguments: str) -> list[str]:
    """The command that runs ``source``."""
    return [sys.executable, "-c", source, *arguments]


@contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Start a process with pipes; it is killed on the way out whatever happens."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    """The next line that it prints; a process that ends instead fails the test."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"it ended with {process.wait()}"
    return line.strip()
