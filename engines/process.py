"""A child process that cannot outlive duratune, whose output is awaited with a deadline.

Each child has its own session, so a Ctrl-C on the terminal reaches duratune alone; the environment
variable DURATUNE_OWNER, by which the supervisor finds what a dead duratune has left running; and, for
programs that know it, a lifeline, which is stdin (descriptor 0): a pipe whose other end only duratune
holds. A program that sees its end there kills itself. A program that overwrites its environment, or runs
as a user whose environment may not be read, is known by its title: PostgreSQL's are
"postgres: CLUSTER_NAME: ...", the postmaster has "cluster_name=..." among its arguments, and a cluster's
name is the same mark and a slash and its number.

Not covered: a descendant that clears its environment and leaves its parent before it is enumerated.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

import psutil

from engines.identity import ProcessIdentity, identify, own_identity
from knobs.errors import MachineLacks, Undecided

LIFELINE_FD = 0
OWNER_VARIABLE = "DURATUNE_OWNER"

END_DEADLINE_S = 30.0
LINE_BYTES_MAX = 1 << 20
LOG_TAIL_BYTES = 2000
_LOOKS_MAX = 10
_PR_SET_CHILD_SUBREAPER = 36
_started: set[int] = set()
"""The numbers of the children that nobody has waited for yet."""


class DeadlinePassed(Undecided):
    """What was awaited did not come in time; the child may still run."""


class Watcher(Protocol):
    """Whoever ends the children when duratune itself is killed (engines/supervisor.py)."""

    def watch(self, process: ProcessIdentity) -> None:
        """Kill this process and its descendants if duratune dies before `forget`."""
        ...

    def forget(self, process: ProcessIdentity) -> None:
        """The process has ended and was reaped."""
        ...


@dataclass(frozen=True)
class LaunchSpec:
    """What to start. ``log`` receives stderr.

    ``environment`` is added to duratune's own, or is all there is where it ``inherits`` nothing. ``user``
    is the uid and gid to run as, without further groups; ``descriptors`` stay open under their numbers.
    """

    command: Sequence[str]
    log: Path
    folder: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    inherits: bool = True
    user: tuple[int, int] | None = None
    descriptors: Sequence[int] = ()


@dataclass(frozen=True)
class Killed:
    """A tree that was killed: when, just before the first signal (CLOCK_MONOTONIC), and who."""

    at_ns: int
    processes: tuple[ProcessIdentity, ...]


class Child:
    """One started process. Use as a context manager: it is killed with its tree on the way out."""

    def __init__(self, spec: LaunchSpec, watcher: Watcher | None = None) -> None:
        """Start it. Raises MachineLacks if the program is not there or may not be run."""
        self._spec = spec
        self._watcher = watcher
        self._buffer = b""
        self._killed: Killed | None = None
        try:
            self._process = _start(spec)
        except OSError as error:
            raise MachineLacks(
                f"cannot be started: {error.strerror}", where=spec.command[0], hint="see duratune doctor"
            ) from error
        _started.add(self._process.pid)
        # Until it is reaped below, even a child that has ended keeps its pid and start time.
        identity = identify(self._process.pid)
        assert identity is not None, "an unreaped child has its entry in /proc"
        self.identity: ProcessIdentity = identity
        if watcher is not None:
            self._register(watcher)

    def write_line(self, line: str, deadline_s: float, reason: str) -> None:
        """Write one line, at most PIPE_BUF bytes, to stdin.

        Raises Undecided if the child has ended, DeadlinePassed if it does not read for that long.
        """
        data = line.encode() + b"\n"
        if len(data) > select.PIPE_BUF or b"\n" in data[:-1]:
            raise ValueError(f"not one line of at most {select.PIPE_BUF} bytes: {line[:80]!r}")
        stream = self._stdin().fileno()
        if not select.select([], [stream], [], deadline_s)[1]:
            raise self._late(f"{reason}: it reads nothing for {deadline_s:g} s")
        try:
            # A pipe that select calls writable takes PIPE_BUF bytes without blocking (pipe(7)).
            os.write(stream, data)
        except BrokenPipeError:
            raise self._undecided(f"{reason}: it ended first") from None

    def end_input(self) -> None:
        """Close stdin: the end of what it is to read, and of its lifeline."""
        self._stdin().close()

    def read_line(self, deadline_s: float, reason: str) -> str | None:
        """The next line of stdout without its end; None when the child has closed it.

        Raises DeadlinePassed if no line comes within ``deadline_s`` seconds; ``reason`` says what for.
        """
        ends_s = time.monotonic() + deadline_s
        stream = self._stdout()
        while b"\n" not in self._buffer:
            if not select.select([stream], [], [], max(0.0, ends_s - time.monotonic()))[0]:
                raise self._late(f"{reason}: nothing within {deadline_s:g} s")
            data = os.read(stream, 65536)
            if not data:
                rest, self._buffer = self._buffer, b""
                return rest.decode("utf-8", errors="replace") if rest else None
            self._buffer += data
            if len(self._buffer) > LINE_BYTES_MAX and b"\n" not in self._buffer:
                raise self._undecided(f"{reason}: a line of more than {LINE_BYTES_MAX} bytes")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", errors="replace")

    def await_line(self, matches: Callable[[str], bool], deadline_s: float, reason: str) -> str:
        """The first line that ``matches``; those before it are dropped.

        Raises DeadlinePassed if it does not come within ``deadline_s`` seconds, Undecided if the child
        ends first.
        """
        ends_s = time.monotonic() + deadline_s
        while True:
            line = self.read_line(max(0.0, ends_s - time.monotonic()), reason)
            if line is None:
                raise self._undecided(f"{reason}: it ended first")
            if matches(line):
                return line

    def wait(self, deadline_s: float, reason: str) -> int:
        """The exit code, or minus the number of the signal that ended it, once it has ended.

        Raises DeadlinePassed if it still runs after ``deadline_s`` seconds.
        """
        try:
            code = self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise self._late(f"{reason}: still running after {deadline_s:g} s") from None
        self._release()
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it has ended."""
        _signal(self.identity, number)

    def kill(self, at_last: Callable[[], object] = lambda: None) -> Killed:
        """SIGKILL it and all its descendants, the parent first, and wait until none is left.

        ``at_last`` is called just before the first signal, when nothing else is left to do before it.
        Calling it again returns what the first call did. Raises Undecided if one does not end.
        """
        if self._killed is None:
            self._killed = kill_tree(self.identity, self._process.wait, at_last)
            self._release()
        return self._killed

    def log_tail(self) -> str:
        """The end of what it wrote to stderr."""
        return self._spec.log.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", errors="replace").strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._stdin().close()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None, "it was started with a pipe"
        return self._process.stdin

    def _stdout(self) -> int:
        assert self._process.stdout is not None, "it was started with a pipe"
        return self._process.stdout.fileno()

    def _register(self, watcher: Watcher) -> None:
        try:
            watcher.watch(self.identity)
        except BaseException:
            # Nobody would end it any more, and the caller never sees this object.
            self._watcher = None
            self.__exit__(None, None, None)
            raise

    def _release(self) -> None:
        _started.discard(self._process.pid)
        _reap_orphans()
        if self._watcher is not None:
            self._watcher.forget(self.identity)
            self._watcher = None

    def _undecided(self, what: str) -> Undecided:
        return Undecided(what, where=Path(self._spec.command[0]).name, hint=self.log_tail())

    def _late(self, what: str) -> DeadlinePassed:
        return DeadlinePassed(what, where=Path(self._spec.command[0]).name, hint=self.log_tail())


def kill_tree(
    root: ProcessIdentity,
    reap: Callable[[float], object] | None = None,
    at_last: Callable[[], object] = lambda: None,
) -> Killed:
    """SIGKILL ``root`` and all its descendants, ``root`` first, and wait until none is left.

    A ``root`` with children is stopped before they are enumerated, so it starts nothing meanwhile; its
    children work on until they are killed, so nothing is looked for between ``at_last`` and the signals. One
    without is killed as it runs: a stop would let the system calls under way finish, and spare it just
    what a process crash does to them. Its process group is killed too when it leads one. ``reap`` waits
    for root where it is the caller's child; ``at_last`` is called just before the first signal. Raises
    Undecided if a process is still there after 30 s (it hangs in the kernel).
    """
    leads_group = identify(root.pid) == root and _group_of(root.pid) == root.pid
    tree = [root]
    if _descendants(root):
        _signal(root, signal.SIGSTOP)
        tree += _descendants(root)
    at_last()
    at_ns = time.monotonic_ns()
    for process in tree:
        _signal(process, signal.SIGKILL)
    if leads_group:
        # Not yet reaped, so its number cannot belong to another group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(root.pid, signal.SIGKILL)
    if reap is not None:
        reap(END_DEADLINE_S)
    await_end(tree)
    _reap_orphans()
    return Killed(at_ns, tuple(tree))


@functools.cache
def _adopt_orphans() -> None:
    """Become the parent of descendants whose own is killed (prctl(2), PR_SET_CHILD_SUBREAPER): else process 1
    does, which in many containers never reaps them."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reap_orphans() -> None:
    """Let go of the entries of processes that have ended and whose own parent was there before this one.

    This process' own children are left to whoever waits for them: those of `Child`, by their numbers, and
    those of others, who are in this process' session as no orphan is.
    """
    own_session = os.getsid(0)
    for pid in _children(os.getpid()):
        if pid in _started:
            continue
        with contextlib.suppress(OSError, ChildProcessError):
            state, session = _state_and_session(pid)
            if state == "Z" and session != own_session:
                os.waitpid(pid, os.WNOHANG)


def _state_and_session(pid: int) -> tuple[str, int]:
    """Of proc(5), stat; the name before them may hold anything but ends with the last parenthesis."""
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return fields[0], int(fields[3])


def owned_by(owner: ProcessIdentity) -> list[ProcessIdentity]:
    """The running processes that a given duratune has started: its mark is in their environment or title."""
    mark = f"{OWNER_VARIABLE}={owner}".encode()
    return [
        process
        for process in _processes()
        if mark in _read(process, "environ").split(b"\0") or _cluster_name(process).startswith(mark + b"/")
    ]


def titled(name: str) -> list[ProcessIdentity]:
    """The running processes of the cluster with this very name: the postmaster by its argument, the others
    by their title."""
    return [process for process in _processes() if _cluster_name(process) == name.encode()]


def _processes() -> list[ProcessIdentity]:
    return [found for found in map(identify, psutil.pids()) if found is not None]


def _read(process: ProcessIdentity, file: str) -> bytes:
    try:
        return Path(f"/proc/{process.pid}/{file}").read_bytes()
    except OSError:
        return b""  # It has ended, or it is another user's and must be known by its title.


def _cluster_name(process: ProcessIdentity) -> bytes:
    """The name in an argument, or between the first two colons of a title that has replaced them."""
    line = _read(process, "cmdline")
    for argument in line.split(b"\0"):
        if argument.startswith(b"cluster_name="):
            return argument.removeprefix(b"cluster_name=")
    parts = line.split(b": ", 2)
    return parts[1] if len(parts) == 3 else b""


def _start(spec: LaunchSpec) -> subprocess.Popen[bytes]:
    _adopt_orphans()
    inherited = os.environ if spec.inherits else {}
    environment = {**inherited, **spec.environment, OWNER_VARIABLE: str(own_identity())}
    user, group = spec.user or (None, None)
    with spec.log.open("ab") as log:
        # Unbuffered: a line is written by one call or not at all.
        return subprocess.Popen(
            list(spec.command),
            bufsize=0,
            cwd=spec.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            pass_fds=tuple(spec.descriptors),
            user=user,
            group=group,
            # Root's further groups would give its hold on files to a user that is to have none.
            extra_groups=None if spec.user is None else (),
        )


def _signal(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to that very process; False if it has ended.

    The pidfd is opened before the identity is checked, so it cannot mean a later owner of the pid.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if identify(process.pid) != process:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _descendants(root: ProcessIdentity) -> list[ProcessIdentity]:
    """All of them. The kernel may leave one out of its list while another ends, so two looks must agree."""
    found = _look_for_descendants(root)
    for _ in range(_LOOKS_MAX):
        before, found = found, _look_for_descendants(root)
        if set(before) == set(found):
            break
    return found


def _look_for_descendants(root: ProcessIdentity) -> list[ProcessIdentity]:
    found: list[ProcessIdentity] = []
    waiting = [root.pid]
    while waiting:
        for pid in _children(waiting.pop()):
            child = identify(pid)
            if child is not None and child not in found:
                found.append(child)
                waiting.append(pid)
    return found


def _children(pid: int) -> list[int]:
    """By the kernel's own lists (proc(5), task/TID/children) where it has them; else all are looked at."""
    try:
        lists = list(Path(f"/proc/{pid}/task").glob("*/children"))
        if lists:
            return [int(child) for each in lists for child in each.read_text().split()]
        return [child.pid for child in psutil.Process(pid).children()]
    except (OSError, psutil.NoSuchProcess):
        return []  # It has ended meanwhile.


def await_end(processes: Sequence[ProcessIdentity]) -> None:
    """Wait until none of them runs. A zombie has ended; whoever is its parent now reaps it.

    Raises Undecided if one still runs after 30 s.
    """
    ends_s = time.monotonic() + END_DEADLINE_S
    for process in processes:
        try:
            handle = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            # A pidfd becomes readable when its process ends (pidfd_open(2)).
            if (
                process.alive()
                and not select.select([handle], [], [], max(0.0, ends_s - time.monotonic()))[0]
            ):
                raise Undecided(
                    f"process {process.pid} does not end",
                    hint="it may hang in the kernel; see its state in /proc",
                )
        finally:
            os.close(handle)
