"""Segments of dead servers that are hard to tell: still attached for a moment, or never filled."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engines.postgresql import shared_memory
from engines.postgresql.cluster import Cluster
from engines.postgresql.server import start
from engines.scratch import Scratch, remove_tree

READER_S = 0.4
CREATE, EXCLUSIVE = 0o1000, 0o2000
# Makes a segment as the folder's owner, in a process of its own, and says its number.
MAKES_ONE = """
import sys
from engines.postgresql import shared_memory
key, size, uid, flags = map(int, sys.argv[1:])
with shared_memory._as_user(uid):
    print(shared_memory._libc().shmget(key, size, flags))
"""


def attach(segment: int, cluster: Cluster) -> int:
    """Hold a segment as somebody does who reads a dead process's memory; returns where it is."""
    with shared_memory._as_user(cluster.data.stat().st_uid):
        address = shared_memory._libc().shmat(segment, None, 0o10000)
    assert address is not None
    return int(address)


def detach(address: int) -> None:
    shared_memory._libc().shmdt(ctypes.c_void_p(address))


def there(segment: int) -> bool:
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return segment in [int(line.split()[1]) for line in lines]


def number_of(cluster: Cluster) -> int:
    return int(shared_memory.names(cluster.data)[-1].rsplit(" ", 1)[1])


def test_what_is_attached_for_a_moment_longer_is_waited_for(cluster: Cluster, scratch: Scratch) -> None:
    with start(cluster, {}, scratch=scratch, watcher=None) as server:
        segment, files = number_of(cluster), shared_memory.names(cluster.data)[:-1]
        address = attach(segment, cluster)
        reader = threading.Timer(READER_S, detach, [address])
        reader.start()
        server.kill()
        assert not there(segment) and files and not any(Path(file).exists() for file in files)
        reader.join()


def test_what_stays_attached_is_left_alone(cluster: Cluster, scratch: Scratch) -> None:
    """The counterpart: a second server's folder would be torn from under it."""
    with start(cluster, {}, scratch=scratch, watcher=None) as server:
        segment = number_of(cluster)
        address = attach(segment, cluster)
        server.kill()
        assert there(segment)
    detach(address)
    remove_tree(cluster.folder)
    assert not there(segment) and not cluster.folder.exists()


@pytest.mark.parametrize(
    ("size", "further", "is_removed"), [(56, 0, True), (56, 3, True), (56, 5_000, False), (64, 0, False)]
)
def test_a_segment_that_was_never_filled(cluster: Cluster, size: int, further: int, is_removed: bool) -> None:
    """Its server was killed first. What has another size, or another folder's key, may be somebody's."""
    folder = cluster.data.stat()
    spec = [str(each) for each in (folder.st_ino + further, size, folder.st_uid, CREATE | EXCLUSIVE | 0o600)]
    segment = int(subprocess.check_output([sys.executable, "-c", MAKES_ONE, *spec]))
    try:
        assert there(segment)
        shared_memory.release(cluster.data)
        assert there(segment) is not is_removed
    finally:
        remove(segment, folder.st_uid)


def test_a_segment_that_may_still_be_filled(cluster: Cluster) -> None:
    """Its maker lives: a server that is just starting."""
    folder = cluster.data.stat()
    with shared_memory._as_user(folder.st_uid):
        segment = shared_memory._libc().shmget(folder.st_ino, 56, CREATE | EXCLUSIVE | 0o600)
    try:
        assert shared_memory.release(cluster.data) == [] and there(segment)
    finally:
        remove(segment, folder.st_uid)


def remove(segment: int, uid: int) -> None:
    with shared_memory._as_user(uid):
        shared_memory._libc().shmctl(segment, 0, None)
    assert os.geteuid() != uid or not there(segment)
