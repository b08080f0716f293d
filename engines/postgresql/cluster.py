"""A private cluster as a folder: made by initdb, cloned, synced, stripped of a dead server, removed.

``folder`` holds ``data`` and duratune's own files about it (``server.log``). A template is a cluster that
was loaded and stopped; every trial runs on a clone of it. A clone shares no file with its template: where
the file system can share blocks and part them on the first write (reflink) it does, else they are copied.
Hard links would let the clone change its template, since PostgreSQL writes its files in place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engines.postgresql import shared_memory
from engines.postgresql.binaries import Binaries
from engines.postgresql.server_user import ServerUser
from engines.scratch import MARKER_NAME
from knobs.errors import InvalidInput, MachineLacks, Undecided

SUPERUSER = "postgres"
CREATE_DEADLINE_S = 300.0
CLONE_DEADLINE_S = 3600.0

_HBA = "# Written by duratune. The folder of the socket is closed to everybody else.\nlocal all all trust\n"
_CHECKSUMS_BY_DEFAULT_MAJOR = 18


@dataclass(frozen=True)
class Seen:
    """A folder as the server's user can name it; ``descriptors`` are to be handed down for that."""

    path: str
    descriptors: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cluster:
    """One cluster: whose programs, whose files, where."""

    binaries: Binaries
    user: ServerUser
    folder: Path

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What its servers print; they append."""
        return self.folder / "server.log"

    def clone(self, folder: Path) -> Cluster:
        """A copy of this cluster in ``folder``, which exists and holds no cluster yet.

        What a dead server left in it (postmaster.pid) is not in the copy. Raises Undecided if a server
        uses this cluster or the copy takes over an hour, InvalidInput if ``folder`` holds one, MachineLacks
        if the copy cannot be made, such as for want of space.
        """
        if shared_memory.in_use(self.data):
            raise Undecided("a server runs in the cluster to be cloned", where=str(self.data))
        target = Cluster(self.binaries, self.user, folder)
        _refuse_existing(target.data)
        let_pass(folder, self.user)
        try:
            _copy(self.data, target.data)
            target.strip()
        except BaseException:
            # An interrupt included: half a copy would pass for a cluster.
            shutil.rmtree(target.data, ignore_errors=True)
            raise
        return target

    def strip(self) -> None:
        """Remove what a dead server leaves in its data folder: postmaster.pid and postmaster.opts.

        Its pid may be somebody else's by now, and PostgreSQL would take that for a running server.
        Raises Undecided if the server is not dead.
        """
        if shared_memory.in_use(self.data):
            raise Undecided("a server runs in this cluster", where=str(self.data))
        shared_memory.release(self.data)
        for name in (shared_memory.PID_FILE, "postmaster.opts"):
            (self.data / name).unlink(missing_ok=True)

    def adopt(self) -> None:
        """Give every file of it to the server's user, and close the data folder to everybody else.

        Raises MachineLacks where this process may not do that.
        """
        data = self.data
        data.chmod(0o700)
        let_pass(self.folder, self.user)
        if not self.user.is_other:
            return
        command = ["chown", "-R", "-h", f"{self.user.uid}:{self.user.gid}", "--", str(data)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CREATE_DEADLINE_S, check=False)
        if done.returncode != 0:
            raise MachineLacks(
                f"cannot be given to user {self.user.name}: {done.stderr.strip()[-200:]}", where=str(data)
            )

    def sync(self, deadline_s: float = CREATE_DEADLINE_S) -> None:
        """Make every file of it durable, whatever fsync its server ran with."""
        with self.seen() as seen:
            self._initdb(["--sync-only"], seen, deadline_s)
        for folder in (self.folder, self.folder.parent):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def remove(self) -> None:
        """Remove its data and its log. Raises Undecided if a server runs in it."""
        self.strip()
        shutil.rmtree(self.data)
        self.log.unlink(missing_ok=True)

    @contextmanager
    def seen(self) -> Iterator[Seen]:
        """The data folder as the server's user can name it, while processes are started.

        Where that user may not pass the folders above it, it is an open descriptor of this process.
        """
        if not self.user.is_other or self.user.may_pass(self.folder):
            yield Seen(str(self.data))
            return
        descriptor = os.open(self.data, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield Seen(f"/proc/self/fd/{descriptor}", (descriptor,))
        finally:
            os.close(descriptor)

    def environment(self) -> dict[str, str]:
        """The whole environment of its programs: nothing of the user's, such as PGOPTIONS or TZ."""
        return {
            "PATH": os.defpath,
            "LC_ALL": "C",
            "TZ": "UTC",
            **self.binaries.environment(),
        }

    def run(
        self, program: str, arguments: Sequence[str], seen: Seen, deadline_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run one of its programs to its end, as the server's user; the caller judges the exit code.

        Raises MachineLacks if that user may not run it, Undecided if it does not end in time.
        """
        command = [str(self.binaries.program(program)), *arguments]
        try:
            return subprocess.run(
                command,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=deadline_s,
                check=False,
                env=self.environment(),
                pass_fds=seen.descriptors,
                **self.user.popen(),
            )
        except subprocess.TimeoutExpired:
            raise Undecided(f"{program} still runs after {deadline_s:g} s", where=str(self.data)) from None
        except PermissionError:
            raise MachineLacks(
                f"user {self.user.name} may not run it",
                where=command[0],
                hint="put PostgreSQL where every user can read it, and name its folder with --bindir",
            ) from None

    def _initdb(self, arguments: Sequence[str], seen: Seen, deadline_s: float) -> None:
        done = self.run("initdb", ["-D", seen.path, *arguments], seen, deadline_s)
        if done.returncode != 0:
            raise MachineLacks(
                f"initdb failed: {(done.stderr.strip() or done.stdout.strip())[-1000:]}", where=str(self.data)
            )


def create(
    binaries: Binaries,
    user: ServerUser,
    folder: Path,
    *,
    checksums: bool = True,
    deadline_s: float = CREATE_DEADLINE_S,
) -> Cluster:
    """Make an empty cluster in ``folder``: superuser `postgres`, UTF8, locale C, local trust.

    It is not synced yet: call `sync` when it is loaded. Raises InvalidInput if the folder holds one,
    MachineLacks if initdb fails or may not be run by that user, Undecided if it does not end in time.
    """
    cluster = Cluster(binaries, user, folder)
    _refuse_existing(cluster.data)
    let_pass(folder, user)
    cluster.data.mkdir(mode=0o700)
    user.give(cluster.data)
    try:
        with cluster.seen() as seen:
            cluster._initdb(_initdb_arguments(binaries, checksums), seen, deadline_s)
    except BaseException:
        # An interrupt included: half a cluster would stand in the way of the next try.
        shutil.rmtree(cluster.data, ignore_errors=True)
        raise
    write(cluster, "pg_hba.conf", _HBA)
    write(cluster, "postgresql.conf", "# Written by duratune.\n")
    return cluster


def _copy(source: Path, target: Path) -> None:
    """Copy a folder with owners, modes, times and holes, its files' blocks shared where that is possible."""
    command = ["cp", "-a", "--reflink=auto", "--", str(source), str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CLONE_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired:
        raise Undecided(f"the copy still runs after {CLONE_DEADLINE_S:g} s", where=str(target)) from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise MachineLacks(
            f"the cluster cannot be copied: {said[-1] if said else f'cp ended with {done.returncode}'}",
            where=str(target),
            hint="make room there, or name another folder with --data",
        )


def write(cluster: Cluster, name: str, text: str) -> None:
    """Replace a file in the data folder by one with this text, in one step."""
    path, new = cluster.data / name, cluster.data / f"{name}.duratune"
    new.write_text(text, encoding="utf-8")
    new.chmod(0o600)
    cluster.user.give(new)
    new.replace(path)


def _initdb_arguments(binaries: Binaries, checksums: bool) -> list[str]:
    arguments = ["--no-sync", "-U", SUPERUSER, "--auth=trust", "-E", "UTF8", "--locale=C"]
    if checksums:
        return [*arguments, "--data-checksums"]
    # They are on by default since PostgreSQL 18, and the option to leave them out came with that.
    if binaries.version.major < _CHECKSUMS_BY_DEFAULT_MAJOR:
        return arguments
    return [*arguments, "--no-data-checksums"]


def _refuse_existing(data: Path) -> None:
    if os.path.lexists(data):
        raise InvalidInput("there is a cluster already", where=str(data), hint="name another folder")


def let_pass(folder: Path, user: ServerUser) -> None:
    """Let the server's user pass a scratch folder of duratune's own, but not list it."""
    if user.is_other and (folder / MARKER_NAME).is_file():
        folder.chmod(0o711)
