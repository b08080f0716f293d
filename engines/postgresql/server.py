"""A running server: started with a deadline, asked how it is, stopped, or killed as a crash kills it.

The postmaster has no lifeline that ends it with duratune; the supervisor does (engines/supervisor.py). It
knows the postmaster by its identity, and processes that a dead postmaster left behind by the cluster's
name, which PostgreSQL shows in the title of each of its processes.

Every start has a socket folder of its own, in a short place that the server's user can reach.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from engines.identity import ProcessIdentity, own_identity
from engines.postgresql import server_log, shared_memory
from engines.postgresql.cluster import SUPERUSER, Cluster, Seen, write
from engines.postgresql.configuration import (
    PORT,
    SOCKET_PATH_BYTES_MAX,
    Configuration,
    configure,
    socket_path,
)
from engines.postgresql.memory import refuse_what_does_not_fit
from engines.postgresql.refusal import ServerDied, StartRefused
from engines.postgresql.server_log import Message
from engines.postgresql.server_user import ServerUser
from engines.postgresql.session import own_options
from engines.process import (
    OWNER_VARIABLE,
    Child,
    DeadlinePassed,
    Killed,
    LaunchSpec,
    Watcher,
    kill_tree,
    titled,
)
from engines.scratch import Scratch
from knobs.catalogue import Settings
from knobs.errors import MachineLacks

START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 300.0
POLL_S = 0.005

StopMode = Literal["smart", "fast", "immediate"]
_STOP_SIGNALS: Mapping[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
# The postmaster writes its state, padded with spaces, into this line (pg_ctl waits for it too; miscinit.h,
# LOCK_FILE_LINE_PM_STATUS).
_PID_FILE_STATUS_LINE = 8
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Address:
    """Where a server listens, as whom duratune connects, and the options of its own connections there."""

    sockets: Path
    port: int = PORT
    user: str = SUPERUSER
    own_options: str = ""

    def environment(self, database: str = "postgres") -> dict[str, str]:
        """The variables by which libpq programs such as pgbench find it (manual, libpq)."""
        return {
            "PGHOST": str(self.sockets),
            "PGPORT": str(self.port),
            "PGUSER": self.user,
            "PGDATABASE": database,
        }


class Server:
    """One running server. Use as a context manager: it is killed on the way out."""

    def __init__(
        self,
        cluster: Cluster,
        configuration: Configuration,
        child: Child,
        cleanup: contextlib.ExitStack,
        *,
        seen_path: str,
        log_offset: int,
    ) -> None:
        """Use `start` to make one; ``cleanup`` is closed when it has ended."""
        self.cluster = cluster
        self.configuration = configuration
        own = own_options(cluster.binaries.version.major)
        self.address = Address(configuration.sockets, own_options=own)
        self.start_s = 0.0
        """How long the start took, a recovery included."""
        self._child = child
        self._log_offset = log_offset
        self._oom_kills = _oom_kills()
        self._is_stopped = False
        self._cleanup = cleanup
        self.seen_path = seen_path
        """The data folder as its processes name it (cluster.py, `Seen`)."""

    @property
    def identity(self) -> ProcessIdentity:
        """The postmaster."""
        return self._child.identity

    @property
    def running(self) -> bool:
        """Whether the postmaster runs."""
        return self.identity.alive()

    def messages(self) -> list[Message]:
        """What it has logged since this start."""
        return server_log.read(self.cluster.log, self._log_offset)

    def check(self) -> None:
        """Raises ServerDied if it has ended, or one of its processes was ended by a signal."""
        if not self.running:
            raise self._died(self._exit_code())
        ended = server_log.signalled(self.messages())
        if ended:
            raise ServerDied(f"{ended[0]}{self._oom()}", where="server", hint=self._tail())

    def stop(self, mode: StopMode = "fast", deadline_s: float = STOP_DEADLINE_S) -> None:
        """Shut it down: smart waits for the sessions to end, fast ends them, immediate syncs nothing.

        Raises ServerDied if it ends with an error, DeadlinePassed if it still runs then.
        """
        self._child.signal(_STOP_SIGNALS[mode])
        code = self._child.wait(deadline_s, f"{mode} shutdown")
        self._clean()
        if code != 0:
            raise self._died(code)
        self._is_stopped = True

    def kill(self, at_last: Callable[[], object] = lambda: None) -> Killed:
        """SIGKILL every process of it: the postmaster is stopped, the others are enumerated, then all are
        killed, the postmaster first.

        ``at_last`` is called just before the first signal. The data folder is left as it is; the shared
        memory is removed. Raises Undecided if a process does not end.
        """
        killed = self._child.kill(at_last)
        # One that has shut down in order was the last of its processes (postmaster.c, PM_NO_CHILDREN).
        titles = [] if self._is_stopped else titled(self._title())
        left = [process for process in titles if process not in killed.processes]
        for process in left:
            kill_tree(process)
        self._clean()
        return Killed(killed.at_ns, (*killed.processes, *left))

    def await_ready(self, deadline_s: float) -> None:
        """Wait until it takes connections.

        Raises StartRefused or ServerDied if it ends instead, DeadlinePassed if it takes longer.
        """
        began_s = time.monotonic()
        while self._status() != "ready":
            if not self.running:
                raise self._refused(self._exit_code())
            if time.monotonic() - began_s > deadline_s:
                raise DeadlinePassed(
                    f"start: not ready within {deadline_s:g} s", where="server", hint=self._tail()
                )
            time.sleep(POLL_S)
        self.start_s = time.monotonic() - began_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.kill()
            self._child.__exit__(None, None, None)
        finally:
            self._cleanup.close()

    def _status(self) -> str:
        """What line 8 of postmaster.pid says, if line 1 is this postmaster's pid: "starting", "ready", ..."""
        try:
            lines = (self.cluster.data / shared_memory.PID_FILE).read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        if len(lines) < _PID_FILE_STATUS_LINE or lines[0].strip() != str(self.identity.pid):
            return ""
        return lines[_PID_FILE_STATUS_LINE - 1].strip()

    def _exit_code(self) -> int:
        return self._child.wait(STOP_DEADLINE_S, "its end")

    def _refused(self, code: int) -> StartRefused | ServerDied:
        messages = self.messages()
        cause = server_log.cause(messages, code)
        if cause == "killed":
            return self._died(code)
        # Of another server in the folder one must know where it is; else the path says nothing to the user.
        folder = str(self.cluster.data) if cause == "in-use" else ""
        return StartRefused(
            cause, server_log.told_from(self.seen_path, server_log.why(messages), folder), "server"
        )

    def _died(self, code: int) -> ServerDied:
        ended = server_log.signalled(self.messages())
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if code >= 0 and ended:
            how += f": {ended[0]}"
        return ServerDied(f"the server ended with {how}{self._oom()}", where="server", hint=self._tail())

    def _oom(self) -> str:
        more = _oom_kills() - self._oom_kills
        if more <= 0:
            return ""
        return f"; meanwhile the kernel killed {more} processes of this machine for want of memory"

    def _tail(self) -> str:
        messages = self.messages()
        lines = server_log.why(messages) or [str(message) for message in messages[-3:]]
        return "\n".join(lines)

    def _title(self) -> str:
        return self.configuration.own["cluster_name"]

    def _clean(self) -> None:
        shared_memory.release(self.cluster.data)


def start(
    cluster: Cluster,
    settings: Settings,
    *,
    scratch: Scratch,
    watcher: Watcher | None,
    deadline_s: float = START_DEADLINE_S,
    environment: Callable[[Seen], Mapping[str, str]] = lambda _: {},
    checks_memory: bool = True,
) -> Server:
    """Start a server of this cluster with these settings, recovery included, and wait until it is ready.

    ``environment`` makes what every process of it has in its environment, told how the server's user sees
    the data folder. ``checks_memory`` is for the first start of a candidate, before anything is known of
    it. What a dead server has left in the data folder is removed first.

    Raises InvalidInput for a setting that cannot be, StartRefused if the server does not start or
    would need more memory than there is, ServerDied if something ends it, DeadlinePassed if it takes
    longer, Undecided if another server runs in the cluster; nothing runs on after any of these.
    """
    cluster.strip()
    with contextlib.ExitStack() as stack:
        folder = _socket_folder(cluster.user, scratch)
        stack.callback(scratch.remove, folder)
        configuration = configure(settings, folder, _cluster_name())
        write(cluster, "postgresql.conf", configuration.text)
        offset = cluster.log.stat().st_size if cluster.log.exists() else 0
        with cluster.seen() as seen:
            if checks_memory:
                refuse_what_does_not_fit(cluster, configuration, seen)
            child = Child(_spec(cluster, configuration, seen, environment(seen)), watcher)
        server = Server(
            cluster, configuration, child, stack.pop_all(), seen_path=seen.path, log_offset=offset
        )
    with _killed_on_error(server):
        server.await_ready(deadline_s)
    return server


@contextlib.contextmanager
def _killed_on_error(server: Server) -> Iterator[None]:
    try:
        yield
    except BaseException:
        # Whatever it was, an interrupt included: the caller never sees this server.
        server.__exit__(None, None, None)
        raise


def _spec(
    cluster: Cluster, configuration: Configuration, seen: Seen, environment: Mapping[str, str]
) -> LaunchSpec:
    program = str(cluster.binaries.program("postgres"))
    user = cluster.user
    return LaunchSpec(
        command=[program, "-D", seen.path, *configuration.arguments()],
        log=cluster.log,
        folder=Path("/"),
        environment={**cluster.environment(), **environment},
        inherits=False,
        user=(user.uid, user.gid) if user.is_other else None,
        descriptors=seen.descriptors,
    )


def _cluster_name() -> str:
    """A name that the supervisor knows as this duratune's, and this process as this server's."""
    return f"{OWNER_VARIABLE}={own_identity()}/{next(_numbers)}"


def _socket_folder(user: ServerUser, scratch: Scratch) -> Path:
    """A new folder, the server user's own, in the first short place within its reach."""
    folder = scratch.folder(_short_place(user), "pg")
    try:
        user.give(folder)
    except BaseException:
        # An interrupt included; what is raised goes on.
        scratch.remove(folder)
        raise
    return folder


def _short_place(user: ServerUser) -> Path:
    places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")]
    for place in dict.fromkeys(places):
        longest = socket_path(place / "duratune-pg-00000000")
        if len(os.fsencode(longest)) <= SOCKET_PATH_BYTES_MAX and place.is_dir() and user.may_pass(place):
            return place
    raise MachineLacks(
        f"no short folder for a Unix socket that user {user.name} can reach",
        where=", ".join(str(place) for place in dict.fromkeys(places)),
        hint="set TMPDIR to one",
    )


def _oom_kills() -> int:
    """How many processes the kernel has killed for want of memory, in any group (proc(5), /proc/vmstat)."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return 0
