"""A private PostgreSQL cluster for the recorder's tests: as an unprivileged user, on a socket of its own.

The server is started here by plain calls, because what is tested is the library inside of it and not how
the product starts one.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from crashlab.preload.access import Owner, copy_library, hand_over
from crashlab.preload.processes import ProcessList
from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.write_log import WriteLog
from engines.identity import identify
from engines.postgresql import shared_memory
from workloads.ledger import Ledger

START_SECONDS_MAX, END_SECONDS_MAX = 60.0, 60.0
CLIENTS, CAPACITY = 4, 100_000
LOG_BYTES = 512 << 20
SETTINGS = """
listen_addresses = ''
shared_buffers = 16MB
max_connections = 20
max_prepared_transactions = 2
"""

TPCB = r"""
\set n :n + 1
\set token 7000000000000000000 + (:client_id + 1) * 1000000000000 + :n
\set aid random(1, 100000 * :scale)
\set bid random(1, 1 * :scale)
\set tid random(1, 10 * :scale)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime, filler)
  VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP, :token);
END;
"""
"""pgbench's own tpcb-like script with a token in the history row; needs -D n=0."""


def find_bindirs() -> list[Path]:
    """The newest installed server's programs, and those of the folders in DURATUNE_TEST_BINDIRS, parted by
    colons; the server's user must be able to read them."""
    named = [Path(name) for name in os.environ.get("DURATUNE_TEST_BINDIRS", "").split(":") if name]
    found = sorted(
        (path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/pgbench")),
        key=lambda bindir: int(bindir.parent.name),
    )
    return [*found[-1:], *named]


def find_owner() -> Owner:
    """Who runs the server: this user, or for root the unprivileged user of Debian's package."""
    if os.geteuid() != 0:
        return Owner(os.geteuid(), os.getegid())
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Owner(entry.pw_uid, entry.pw_gid)
    pytest.skip("PostgreSQL refuses root, and there is no unprivileged user")


@dataclass
class Cluster:
    """One cluster below ``folder``; `remove` ends it and takes the folder away."""

    bindir: Path
    owner: Owner
    folder: Path
    server: subprocess.Popen[bytes] | None = None
    mode: str = ""  # how the server runs: "plain", "acks", "log", or "" where none does

    @staticmethod
    def make(bindir: Path, settings: str = "", scale: int = 1) -> Cluster:
        # A socket's path has room for 107 bytes, so pytest's own folders are too deep.
        cluster = Cluster(bindir, find_owner(), Path(tempfile.mkdtemp(prefix="dt-pg-", dir="/tmp")))
        cluster.root.mkdir()
        cluster.work.mkdir()
        hand_over([cluster.folder, cluster.root, cluster.work], cluster.owner)
        cluster.run("initdb", "-D", cluster.data, "-A", "trust", "-k", "-N", "--no-locale", "-E", "UTF8")
        configuration = cluster.data / "postgresql.conf"
        with configuration.open("a") as file:
            file.write(f"unix_socket_directories = '{cluster.folder}'\n{SETTINGS}{settings}\n")
        cluster.start()
        cluster.run("pgbench", "-i", "-q", "-s", str(scale))
        cluster.stop()
        return cluster

    @property
    def version(self) -> int:
        """The major version of what made the cluster."""
        return int((self.data / "PG_VERSION").read_text())

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def ledger_path(self) -> Path:
        return self.work / "ledger"

    @property
    def processes_path(self) -> Path:
        return self.work / "processes"

    @property
    def log_path(self) -> Path:
        return self.work / "write.log"

    def record(self, recorder: PreloadRecorder, with_log: bool) -> Ledger:
        """Start the server under the recorder, with a new ledger and perhaps a new write log."""
        for path in (self.ledger_path, self.processes_path, self.log_path):
            path.unlink(missing_ok=True)
        theirs = PreloadRecorder(copy_library(recorder.shared_library, self.work))
        ledger = Ledger.create(self.ledger_path, CLIENTS, CAPACITY)
        ProcessList.create(self.processes_path)
        environment = theirs.acks_environment(self.ledger_path, self.processes_path)
        handed = [self.ledger_path, self.processes_path]
        if with_log:
            WriteLog.create(self.log_path, LOG_BYTES)
            environment |= theirs.environment(self.root, self.log_path, self.ledger_path)
            handed.append(self.log_path)
        hand_over(handed, self.owner)
        self.start(environment)
        self.mode = "log" if with_log else "acks"
        return ledger

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        with (self.folder / "server.log").open("ab") as log:
            self.server = subprocess.Popen(
                [self.bindir / "postgres", "-D", self.data],
                env={**os.environ, **(environment or {})},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=self._user,
                group=self._group,
                extra_groups=self._groups,
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while self.run("pg_isready", check=False).returncode != 0:
            assert self.server.poll() is None and time.monotonic() < deadline, self.server_log()
            time.sleep(0.05)
        self.mode = "plain"

    def stop(self) -> None:
        """A fast and clean stop, if a server runs."""
        if self.server is None or self.mode == "":
            return
        self.server.send_signal(signal.SIGINT)
        self.server.wait(END_SECONDS_MAX)
        self.mode = ""

    def kill(self) -> list[int]:
        """SIGKILL every process, the stopped postmaster first; returns what was found to kill."""
        assert self.server is not None
        os.kill(self.server.pid, signal.SIGSTOP)
        found = [self.server.pid, *_descendants(self.server.pid)]
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        self.server.wait()
        self.mode = ""
        deadline = time.monotonic() + END_SECONDS_MAX
        # A zombie has ended; whoever is its parent now reaps it.
        while any((process := identify(pid)) is not None and process.alive() for pid in found):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return found

    def remove(self) -> None:
        if self.server is not None and self.server.poll() is None:
            self.kill()
        # A killed server that never starts again leaves its shared memory; the folder's inode tells which.
        shared_memory.release(self.data)
        shutil.rmtree(self.folder)

    def run(
        self, program: str, *arguments: str | Path, check: bool = True, given: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run one of PostgreSQL's programs on this cluster; its words are the failure."""
        with self.begin(program, *arguments) as process:
            out, err = process.communicate(given)
        assert not check or process.returncode == 0, f"{program}: {out}{err}{self.server_log()}"
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def begin(self, program: str, *arguments: str | Path) -> subprocess.Popen[str]:
        connection = {"PGHOST": str(self.folder), "PGDATABASE": "postgres", "PGUSER": "postgres"}
        if program == "initdb":
            arguments = (*arguments, "-U", "postgres")
        return subprocess.Popen(
            [self.bindir / program, *arguments],
            env={**os.environ, **connection},
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            user=self._user,
            group=self._group,
            extra_groups=self._groups,
        )

    def query(self, text: str) -> str:
        return self.run("psql", "-XAtqc", text).stdout.strip()

    def script(self, name: str, text: str) -> Path:
        path = self.work / name
        path.write_text(text)
        return path

    def server_log(self) -> str:
        path = self.folder / "server.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""

    @property
    def _user(self) -> int | None:
        return None if self.owner.uid == os.geteuid() else self.owner.uid

    @property
    def _group(self) -> int | None:
        return None if self._user is None else self.owner.gid

    @property
    def _groups(self) -> list[int] | None:
        return None if self._user is None else []


def _descendants(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            child = int(path.parent.name)
            found += [child, *_descendants(child)]
    return found
