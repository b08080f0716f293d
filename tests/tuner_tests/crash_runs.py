"""`duratune` as a process of its own, in a room of its own, and everything that it might leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.tuner_tests.program import PROGRAM, Ended

SHARED_MEMORY = Path("/dev/shm")
SECONDS_MAX = 900.0
MARKER = ".duratune-scratch"
QUICK = ("--states", "9", "--measure", "0.3", "--operations", "1000", "--scale", "2")
"""A crash run that takes a few seconds."""


def _prepare(before: Callable[[], None] | None) -> None:
    # A shell that started the tests in the background has SIGINT ignored, and that is inherited.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if before is not None:
        before()


@dataclass
class Room:
    """A folder to stand in and a state folder of its own; ``pids`` are the commands that were started."""

    folder: Path
    state: Path
    pids: list[int] = field(default_factory=list)

    @staticmethod
    def make(parent: Path) -> Room:
        room = Room(parent / "room", parent / "state")
        room.folder.mkdir()
        room.state.mkdir()
        return room

    def start(self, *arguments: str, before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
        """Start a command; ``before`` is done in its process first (limits)."""
        process = subprocess.Popen(
            [*PROGRAM, *arguments],
            cwd=self.folder,
            env={**os.environ, "XDG_STATE_HOME": str(self.state)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: _prepare(before),
        )
        self.pids.append(process.pid)
        return process

    def run(self, *arguments: str, before: Callable[[], None] | None = None) -> Ended:
        with self.start(*arguments, before=before) as process:
            out, err = process.communicate(timeout=SECONDS_MAX)
        return Ended(process.returncode, out, err)

    def processes(self) -> list[str]:
        """The command lines of what still runs with this room's state folder, other than its commands."""
        mark = f"XDG_STATE_HOME={self.state}".encode()
        found = []
        for process in psutil.process_iter():
            try:
                environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
                if mark in environment and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {' '.join(process.cmdline())}")
            except (OSError, psutil.Error):
                continue  # It has just ended, or it is another user's.
        return found

    def scratch(self) -> list[str]:
        """Scratch folders below the room, shared memory of its commands, and notes of either."""
        paths = [path.parent for path in self.folder.rglob(MARKER)]
        for path in SHARED_MEMORY.glob("duratune-*"):
            marker = path / MARKER
            token = marker.read_text() if marker.is_file() else path.name.removeprefix("duratune-")
            if any(token.startswith(f"{pid}-") for pid in self.pids):
                paths.append(path)
        return [str(path) for path in [*paths, *self.state.rglob("*.jsonl")]]

    def left_behind(self) -> list[str]:
        return self.processes() + self.scratch()

    def await_quiet(self, seconds_max: float = 10.0) -> list[str]:
        """What is left once no process is: they may take a moment to end."""
        ends_s = time.monotonic() + seconds_max
        while self.processes() and time.monotonic() < ends_s:
            time.sleep(0.05)
        return self.left_behind()


def refused(room: Room, *arguments: str, code: int = 2) -> dict[str, str]:
    """The error of a crash command that must fail; it leaves no results folder."""
    before = sorted(room.folder.rglob("*"))
    ended = room.run("crash", "rocksdb", *arguments, "--json")
    assert ended.code == code, ended
    document = ended.document
    verdict = {"verdict": "UNKNOWN"} if code == 4 else {}
    assert document == {"schema": 1, "error": document["error"], **verdict}
    error: dict[str, str] = document["error"]
    assert set(error) == {"code", "what", "where", "hint"}
    after = [path for path in sorted(room.folder.rglob("*")) if path != room.folder / "results"]
    assert after == before
    assert "Traceback" not in ended.err
    return error
