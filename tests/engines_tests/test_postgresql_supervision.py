"""A duratune that is killed leaves no process, no shared memory and no folder of a PostgreSQL cluster."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from engines.identity import ProcessIdentity, identify
from engines.postgresql import shared_memory
from engines.postgresql.cluster import Cluster
from engines.postgresql.configuration import socket_path
from engines.postgresql.server import start
from engines.process import owned_by
from engines.scratch import Scratch, sweep
from tests.engines_tests.programs import first_line, python, running
from tests.engines_tests.test_supervisor import await_gone, identities

pytestmark = pytest.mark.slow

# A duratune in small, with one running cluster in a scratch folder and one session. Prints the pids of
# itself, the postmaster and the session's backend, and the two folders.
OWNER = """
import sys, time
from pathlib import Path
from engines.postgresql import binaries, server_user
from engines.postgresql.cluster import Cluster
from engines.postgresql.server import start
from engines.postgresql.session import Session
from engines.scratch import Scratch
from engines.supervisor import Supervisor
template, room, mode = sys.argv[1:]
template = Cluster(binaries.find(), server_user.choose(), Path(template))
with Scratch() as scratch, Supervisor() as supervisor:
    cluster = template.clone(scratch.folder(Path(room), "cluster"))
    watcher = supervisor if mode == "watched" else None
    with start(cluster, {}, scratch=scratch, watcher=watcher) as server, Session(server.address) as session:
        backend = session.value("select pg_backend_pid()")
        print(server.identity.pid, backend, cluster.data, server.address.sockets, flush=True)
        time.sleep(60)
"""


def descendants(postmaster: int) -> list[ProcessIdentity]:
    found = [identify(child.pid) for child in psutil.Process(postmaster).children(recursive=True)]
    return [process for process in found if process is not None]


def posix_names(data: Path) -> list[Path]:
    return [Path(name) for name in shared_memory.names(data) if name.startswith("/")]


def system_v_ids(data: Path) -> list[str]:
    return [name.rsplit(" ", 1)[1] for name in shared_memory.names(data) if not name.startswith("/")]


def is_there(segment: str) -> bool:
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return segment in [line.split()[1] for line in lines]


@pytest.mark.parametrize(
    ("mode", "is_orphaned"),
    [("watched", False), ("watched", True), ("unwatched", False), ("unwatched", True)],
)
def test_nothing_outlives_a_killed_owner(
    template: Cluster, tmp_path: Path, mode: str, is_orphaned: bool
) -> None:
    """``is_orphaned``: the postmaster died first and left a backend that hangs, of whom only the title
    tells whose it is."""
    with running(python(OWNER, str(template.folder), str(tmp_path), mode)) as owner:
        postmaster, backend, data, sockets = first_line(owner).split()
        processes = [*identities([postmaster, backend]), *descendants(int(postmaster))]
        files, segments = posix_names(Path(data)), system_v_ids(Path(data))
        assert len(processes) > 5 and files and segments and all(map(is_there, segments))
        assert socket_path(Path(sockets)).exists()
        if is_orphaned:
            os.kill(int(backend), signal.SIGSTOP)
            os.kill(int(postmaster), signal.SIGKILL)
        owner.send_signal(signal.SIGKILL)
        owner.wait(30)
        await_gone(processes, 5)  # The five seconds that are promised.
        await_swept(Path(data).parent, 20)
    assert not Path(sockets).exists()
    assert not any(file.exists() for file in files) and not any(map(is_there, segments))


def await_swept(folder: Path, deadline_s: float) -> None:
    ends_s = time.monotonic() + deadline_s
    while folder.exists():
        assert time.monotonic() < ends_s, "the folder is still there"
        time.sleep(0.01)


def test_the_title_tells_the_owner(template: Cluster, tmp_path: Path) -> None:
    with running(python(OWNER, str(template.folder), str(tmp_path), "watched")) as owner:
        _, backend, _, _ = first_line(owner).split()
        mine = identify(owner.pid)
        assert mine is not None
        assert int(backend) in [process.pid for process in owned_by(mine)]
        # Another's pid of which this one's is the beginning is another's.
        shorter = ProcessIdentity(mine.pid, mine.start_ticks // 10)
        assert int(backend) not in [process.pid for process in owned_by(shorter)]
        owner.send_signal(signal.SIGINT)
        owner.wait(30)
    assert list(tmp_path.iterdir()) == []


def test_the_next_start_removes_what_the_supervisor_could_not(template: Cluster, tmp_path: Path) -> None:
    """Supervisor and duratune killed together: the sweep finds the segments by way of the folder."""
    with running(python(OWNER, str(template.folder), str(tmp_path), "watched")) as owner:
        postmaster, _, data, sockets = first_line(owner).split()
        processes = [*identities([postmaster]), *descendants(int(postmaster))]
        files, segments = posix_names(Path(data)), system_v_ids(Path(data))
        for supervisor in descendants(owner.pid):
            if b"engines.supervisor" in Path(f"/proc/{supervisor.pid}/cmdline").read_bytes():
                os.kill(supervisor.pid, signal.SIGKILL)
        owner.send_signal(signal.SIGKILL)
        owner.wait(30)
        for process in processes:
            with contextlib.suppress(ProcessLookupError):  # A worker of autovacuum may have ended by itself.
                os.kill(process.pid, signal.SIGKILL)
        await_gone(processes, 5)
        assert all(file.exists() for file in files) and all(map(is_there, segments))
        sweep()
    assert not Path(data).exists() and not Path(sockets).exists()
    assert not any(file.exists() for file in files) and not any(map(is_there, segments))


@pytest.mark.parametrize("above", ["", "db/", "worker-0/state/db/", "a/b/c/d/e/f/"])
def test_a_cluster_is_found_however_deep_it_lies(tmp_path: Path, above: str) -> None:
    """Crash states lie deeper than instances; a database in a data folder is no data folder."""
    data = tmp_path / f"{above}data"
    for place in (data, data / "base" / "5"):
        place.mkdir(parents=True)
        (place / "PG_VERSION").write_text("15\n")
    assert [*shared_memory.data_folders(tmp_path)] == [data]


# What Docker gives root in a container: neither CAP_IPC_OWNER nor CAP_SYS_ADMIN nor CAP_SYS_PTRACE.
CONTAINER = ("chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "sys_chroot")

KILLED = """
import sys
from pathlib import Path
from engines.postgresql import binaries, server_user, shared_memory
from engines.postgresql.cluster import Cluster
from engines.postgresql.server import start
from engines.scratch import Scratch
cluster = Cluster(binaries.find(), server_user.choose(), Path(sys.argv[1]))
with Scratch() as scratch, start(cluster, {}, scratch=scratch, watcher=None) as server:
    print(shared_memory.in_use(cluster.data), *shared_memory.names(cluster.data), sep="\\n", flush=True)
    server.kill()
    print(shared_memory.names(cluster.data), flush=True)
"""


@pytest.mark.usefixtures("as_root")
def test_roots_rights_in_a_container_are_enough(cluster: Cluster) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv here")
    rights = ",".join(("-all", *(f"+{name}" for name in CONTAINER)))
    command = ["setpriv", "--inh-caps=-all", f"--bounding-set={rights}", *python(KILLED, str(cluster.folder))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    is_used, *names, left = done.stdout.splitlines()
    assert is_used == "True" and left == "[]" and len(names) >= 2
    assert not any(is_there(name.rsplit(" ", 1)[1]) for name in names if not name.startswith("/"))


def test_segments_of_another_folder_are_left_alone(cluster: Cluster, tmp_path: Path) -> None:
    """A copied postmaster.pid names a segment, but the segment does not name the copy's folder."""
    copy = tmp_path / "copy"
    copy.mkdir()
    with Scratch() as scratch, start(cluster, {}, scratch=scratch, watcher=None) as server:
        (copy / "postmaster.pid").write_bytes((cluster.data / "postmaster.pid").read_bytes())
        assert shared_memory.names(copy) == [] and shared_memory.release(copy) == []
        assert not shared_memory.in_use(copy) and shared_memory.in_use(cluster.data)
        assert shared_memory.release(cluster.data) == []  # In use.
        server.check()
