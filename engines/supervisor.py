"""Ends what duratune has started when duratune itself is killed, SIGKILL included.

The supervisor is a small process in a session of its own. It holds the read end of a pipe whose other
end only duratune has, and learns over it which processes to watch. When the pipe closes, the supervisor
kills every watched tree and every process that carries that duratune's mark in its environment. Unless
duratune said goodbye it has died, and the scratch folders of dead processes are swept too.

Not covered: the supervisor and duratune killed together; then the next start sweeps the folders, and
only programs with a lifeline end by themselves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from engines.identity import ProcessIdentity, own_identity
from engines.process import await_end, kill_tree, owned_by
from engines.scratch import sweep
from knobs.errors import Undecided

END_DEADLINE_S = 10.0
GOODBYE = "goodbye"


class Supervisor:
    """duratune's end of the pipe: a Watcher for the children that it starts."""

    def __init__(self) -> None:
        """Start the supervising process and wait until it is ready. Raises Undecided if it is not."""
        # -P and the path of our own package: a folder `engines` where the user stands is not ours.
        packages = str(Path(__file__).resolve().parent.parent)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "engines.supervisor", str(own_identity())],
            env={**os.environ, "PYTHONPATH": packages},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        if self._output().readline() != b"ready\n":
            self.close()
            raise Undecided("the supervisor process did not start", hint="its own message stands above")

    def watch(self, process: ProcessIdentity) -> None:
        """Kill this process and its descendants if duratune dies before `forget`."""
        self._tell(f"watch {process}")

    def forget(self, process: ProcessIdentity) -> None:
        """The process has ended and was reaped."""
        self._tell(f"forget {process}")

    def close(self) -> None:
        """End the supervisor. It kills what is still being watched."""
        if not self._input().closed:
            with contextlib.suppress(Undecided):  # Already gone: there is nobody to part from.
                self._tell(GOODBYE)
            self._input().close()
            self._process.wait(END_DEADLINE_S)
            self._output().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tell(self, line: str) -> None:
        try:
            # One write below PIPE_BUF: lines of several threads do not mix.
            os.write(self._input().fileno(), f"{line}\n".encode())
        except BrokenPipeError:
            raise Undecided(
                "the supervisor process has ended", hint="something killed it; start again"
            ) from None

    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None, "it was started with a pipe"
        return self._process.stdin

    def _output(self) -> IO[bytes]:
        assert self._process.stdout is not None, "it was started with a pipe"
        return self._process.stdout


def supervise(owner: ProcessIdentity, lines: Iterable[str]) -> None:
    """Follow the lines until they end, kill what is left of ``owner``, and sweep if it has died."""
    watched: set[ProcessIdentity] = set()
    orderly = False
    for line in lines:
        verb, _, name = line.strip().partition(" ")
        if verb == "watch":
            watched.add(ProcessIdentity.parse(name))
        elif verb == "forget":
            watched.discard(ProcessIdentity.parse(name))
        else:
            orderly = True
    failed = _kill_all([*watched, *owned_by(owner)])
    if not orderly:
        # The pipe closes a moment before the process has ended, and only the dead are swept.
        await_end([owner])
        sweep()
    if failed:
        raise failed[0]


def _kill_all(processes: Iterable[ProcessIdentity]) -> list[Undecided]:
    """Kill every tree; one that hangs must not save the others."""
    failed = []
    for process in processes:
        try:
            kill_tree(process)
        except Undecided as error:
            failed.append(error)
    return failed


def main() -> None:
    """Run as the supervising process: stdin is the pipe, the argument is the owner's PID@TICKS."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # It ends with its pipe. A signal to all of a user's processes must not end it before duratune.
        signal.signal(number, signal.SIG_IGN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    supervise(ProcessIdentity.parse(sys.argv[1]), sys.stdin)


if __name__ == "__main__":
    main()
