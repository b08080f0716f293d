from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.identity import identify
from engines.postgresql import shared_memory
from engines.postgresql.cluster import Cluster
from engines.postgresql.refusal import ServerDied, StartRefused
from engines.postgresql.server import Server, start
from engines.postgresql.session import ConnectionLost, Session
from engines.process import DeadlinePassed
from engines.scratch import Scratch

pytestmark = pytest.mark.slow


def launched(cluster: Cluster, scratch: Scratch, **settings: str) -> Server:
    return start(cluster, settings, scratch=scratch, watcher=None)


def await_true(what: str, holds: object, deadline_s: float = 20.0) -> None:
    assert callable(holds)
    ends_s = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < ends_s, what
        time.sleep(0.01)


def test_it_takes_connections_stops_and_leaves_nothing(cluster: Cluster, scratch: Scratch) -> None:
    with launched(cluster, scratch, work_mem="8MB") as server:
        with Session(server.address) as session:
            assert session.value("show work_mem") == "8MB"
            assert (
                session.value("show listen_addresses") == "" and session.value("show data_checksums") == "on"
            )
        segments, sockets = shared_memory.names(cluster.data), server.address.sockets
        assert len(segments) >= 2 and sockets.exists()
        server.stop()
        assert not server.running
    assert not sockets.exists() and not (cluster.data / "postmaster.pid").exists()
    assert not [name for name in segments if name.startswith("/") and Path(name).exists()]
    assert "database system is shut down" in cluster.log.read_text()


@pytest.mark.parametrize("mode", ["smart", "fast", "immediate"])
def test_ways_to_stop(cluster: Cluster, scratch: Scratch, mode: str) -> None:
    with launched(cluster, scratch) as server:
        server.stop(mode)  # type: ignore[arg-type]  # parametrize knows no Literal.
        asked = [message.text for message in server.messages() if message.text.startswith("received ")]
        assert asked == [f"received {mode} shutdown request"]


def test_a_smart_stop_waits_for_the_sessions(cluster: Cluster, scratch: Scratch) -> None:
    with launched(cluster, scratch) as server, Session(server.address):
        with pytest.raises(DeadlinePassed, match="smart shutdown: still running after"):
            server.stop("smart", deadline_s=0.3)
        server.stop("fast")


def test_a_kill_takes_every_process_and_leaves_the_data(cluster: Cluster, scratch: Scratch) -> None:
    with launched(cluster, scratch) as server, Session(server.address) as session:
        session.query("create table t (n int)")
        backend = int(session.value("select pg_backend_pid()"))
        session.query("insert into t values (1)")
        segments = shared_memory.names(cluster.data)
        alive_at_last: list[bool] = []
        before_ns = time.monotonic_ns()
        killed = server.kill(lambda: alive_at_last.append(server.running))
        assert alive_at_last == [True] and before_ns < killed.at_ns < time.monotonic_ns()
        assert killed.processes[0] == server.identity
        assert backend in [process.pid for process in killed.processes] and len(killed.processes) >= 6
        assert not any(process.alive() for process in killed.processes)
        assert (cluster.data / "postmaster.pid").exists()
        assert shared_memory.names(cluster.data) == []
        assert not [name for name in segments if name.startswith("/") and Path(name).exists()]
        assert server.kill().processes == killed.processes
    with launched(cluster, scratch) as server, Session(server.address) as session:
        assert session.value("select count(*) from t") == "1" and server.start_s > 0


def test_what_is_shut_down_is_not_recovered(cluster: Cluster, scratch: Scratch) -> None:
    """The counterpart: the words that the test of a crash's clone looks for come with a crash only."""
    with launched(cluster, scratch) as server:
        assert not any("not properly shut down" in message.text for message in server.messages())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"shared_bufers": "64MB"}, ['unrecognized configuration parameter "shared_bufers"', "line 2"]),
        (
            {"work_mem": "1 gb", "fsync": "maybe"},
            ['invalid value for parameter "work_mem"', '"fsync"', "HINT"],
        ),
        ({"work_mem": "99999GB"}, ["work_mem"]),
        ({"max_wal_senders": "5", "wal_level": "minimal"}, ["WAL streaming"]),
    ],
)
def test_a_bad_setting_is_told_in_the_servers_words(
    cluster: Cluster, scratch: Scratch, settings: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(StartRefused) as caught:
        launched(cluster, scratch, **settings)
    assert caught.value.cause == "settings" and caught.value.exit_code == 2
    assert all(word in "\n".join(caught.value.lines) for word in words), caught.value.lines
    said = str(caught.value)
    assert said.startswith("server: the server does not start: ")
    assert "/proc/self" not in said and str(cluster.data) not in said
    assert not shared_memory.in_use(cluster.data)
    with launched(cluster, scratch) as server:  # The next candidate does not suffer from it.
        server.check()


def test_memory_that_cannot_be_had(cluster: Cluster, scratch: Scratch) -> None:
    with pytest.raises(StartRefused, match=r"shared_buffers 4194304 .* MiB of shared memory; ") as caught:
        launched(cluster, scratch, shared_buffers="4TB")
    assert caught.value.cause == "memory"
    # The server's own word, where it is not asked first.
    with pytest.raises(StartRefused) as caught:
        start(cluster, {"shared_buffers": "4TB"}, scratch=scratch, watcher=None, checks_memory=False)
    assert caught.value.cause == "memory" and "could not map" in caught.value.lines[0]


def test_data_that_cannot_be_read(cluster: Cluster, scratch: Scratch) -> None:
    shutil.rmtree(cluster.data / "pg_wal")
    with pytest.raises(StartRefused) as caught:
        launched(cluster, scratch)
    assert caught.value.cause == "data" and "pg_wal" in caught.value.lines[0]


def test_a_start_that_takes_too_long(cluster: Cluster, scratch: Scratch) -> None:
    before = segments_of(cluster)
    for deadline_s in (0.0, 0.01, 0.02, 0.03, 0.04):
        # The last ones may be long enough.
        with (
            contextlib.suppress(DeadlinePassed),
            start(cluster, {}, scratch=scratch, watcher=None, deadline_s=deadline_s) as server,
        ):
            server.kill()
        assert not shared_memory.in_use(cluster.data)
    with pytest.raises(DeadlinePassed, match="not ready within 0 s"):
        start(cluster, {}, scratch=scratch, watcher=None, deadline_s=0.0)
    assert segments_of(cluster) <= before


def segments_of(cluster: Cluster) -> set[str]:
    """The System V segments whose key is the data folder's, whatever is in them."""
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {line.split()[1] for line in lines if int(line.split()[0]) == cluster.data.stat().st_ino}


@pytest.fixture
def neighbour(cluster: Cluster) -> Iterator[int]:
    """A process of the server's own user that has got the pid of a dead server."""
    with subprocess.Popen(["sleep", "60"], **cluster.user.popen()) as process:
        yield process.pid
        process.kill()


def pid_file_of(pid: int, cluster: Cluster) -> str:
    lines = [str(pid), str(cluster.data), "1", "5432", "/tmp", "", "1 1", "ready   "]
    return "\n".join(lines) + "\n"


def test_the_pid_file_of_a_dead_run(cluster: Cluster, scratch: Scratch, neighbour: int) -> None:
    """It names a living process and says "ready": PostgreSQL itself would refuse to start."""
    (cluster.data / "postmaster.pid").write_text(pid_file_of(neighbour, cluster))
    with launched(cluster, scratch) as server, Session(server.address) as session:
        assert session.value("select 1") == "1"
        lines = (cluster.data / "postmaster.pid").read_text().splitlines()
        assert lines[0] == str(server.identity.pid)


def test_such_a_pid_file_stops_postgresql(
    cluster: Cluster, scratch: Scratch, neighbour: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault of the test above, seen: the file comes just after duratune has looked for one."""
    original = Cluster.strip

    def strip_and_plant(self: Cluster) -> None:
        original(self)
        (self.data / "postmaster.pid").write_text(pid_file_of(neighbour, self))
        self.user.give(self.data / "postmaster.pid")

    monkeypatch.setattr(Cluster, "strip", strip_and_plant)
    with pytest.raises(StartRefused, match="already exists") as caught:
        launched(cluster, scratch)
    assert caught.value.cause == "in-use"


def test_a_server_killed_from_outside(cluster: Cluster, scratch: Scratch) -> None:
    with launched(cluster, scratch) as server:
        server.check()
        os.kill(server.identity.pid, signal.SIGKILL)
        await_true("it ends", lambda: not server.running)
        with pytest.raises(ServerDied, match="ended with signal SIGKILL"):
            server.check()
        segments = shared_memory.names(cluster.data)
        server.kill()
    assert not [name for name in segments if name.startswith("/") and Path(name).exists()]


def test_one_process_killed_from_outside(cluster: Cluster, scratch: Scratch) -> None:
    """As the kernel does it for want of memory: the postmaster survives and starts the rest anew."""
    with launched(cluster, scratch) as server, Session(server.address) as session:
        os.kill(int(session.value("select pg_backend_pid()")), signal.SIGKILL)
        await_true("it is logged", lambda: "signal 9" in cluster.log.read_text())
        with pytest.raises(ServerDied, match="was terminated by signal 9"):
            server.check()
        with pytest.raises(ConnectionLost):
            session.query("select 1")


def test_what_outlives_a_dead_postmaster_is_killed_too(cluster: Cluster, scratch: Scratch) -> None:
    """A stopped backend cannot see that its postmaster has died; it is known by its title."""
    with launched(cluster, scratch) as server, Session(server.address) as session:
        backend = identify(int(session.value("select pg_backend_pid()")))
        assert backend is not None
        os.kill(backend.pid, signal.SIGSTOP)
        os.kill(server.identity.pid, signal.SIGKILL)
        await_true("the postmaster ends", lambda: not server.running)
        assert backend.alive() and shared_memory.in_use(cluster.data)
        assert backend in server.kill().processes
        assert not backend.alive() and not shared_memory.in_use(cluster.data)


def test_two_servers_of_one_duratune_are_told_apart(
    cluster: Cluster, scratch: Scratch, tmp_path: Path
) -> None:
    (tmp_path / "second").mkdir()
    other = cluster.clone(tmp_path / "second")
    with launched(cluster, scratch) as first, launched(other, scratch) as second:
        first.kill()
        second.check()
        with Session(second.address) as session:
            assert session.value("select 1") == "1"


def test_the_environment_of_the_server(cluster: Cluster, scratch: Scratch) -> None:
    with start(
        cluster, {}, scratch=scratch, watcher=None, environment=lambda seen: {"ROOT": seen.path}
    ) as server:
        environment = told_by_proc(server.identity.pid, "environ", cluster)
        assert f"ROOT={server.seen_path}\0" in environment and "PYTEST" not in environment


def told_by_proc(pid: int, file: str, cluster: Cluster) -> str:
    """Read as the server's user: in a container root may not see another user's."""
    command = ["cat", f"/proc/{pid}/{file}"]
    printed: bytes = subprocess.run(command, **cluster.user.popen(), capture_output=True).stdout
    return printed.decode()


def test_a_value_reaches_the_server_as_it_is(cluster: Cluster, scratch: Scratch) -> None:
    value = "it's \\n \" \n a\ttab, ümlaut # no comment"
    with (
        start(cluster, {"duratune.text": value}, scratch=scratch, watcher=None) as server,
        Session(server.address) as session,
    ):
        assert session.value("select current_setting('duratune.text')") == value


def test_a_program_finds_it_by_the_environment(cluster: Cluster, scratch: Scratch) -> None:
    with launched(cluster, scratch) as server:
        done = subprocess.run(
            [str(cluster.binaries.program("pgbench")), "-i", "-q", "-s", "1", "-I", "dtg"],
            env={**cluster.environment(), **server.address.environment()},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
