"""Scratch folders and shared memory files that must not outlive duratune.

Promise: whatever a `Scratch` creates is gone when it closes, on exceptions and signals too; if the
process dies without closing (SIGKILL), the next `sweep` removes it. Each Scratch writes a manifest in
the state folder: every path is noted before it is created.

Who owns what is told by the owner's token `PID-TICKS-BOOT-RANDOM`: it is the name of the manifest, the
content of the marker file in each scratch folder and a part of the name of each shared memory file. A
path is removed only if it carries the token of the manifest that names it, whatever else the manifest
says, and only if that owner is dead: its manifest's lock is free (the kernel frees it at the end of a
process, in other pid namespaces too) and no process of this boot has its pid and start time.

Not covered: a power cut of this machine right after a note was written, since notes are not synced
(a sync would compete with the engine that is being measured).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from engines import mounting
from engines.identity import ProcessIdentity, boot_id, own_identity
from engines.postgresql import shared_memory
from knobs.errors import InvalidInput, MachineLacks

MARKER_NAME = ".duratune-scratch"
SHARED_MEMORY_FOLDER = Path("/dev/shm")

_TOKEN = re.compile(r"(?P<pid>\d+)-(?P<ticks>\d+)-(?P<boot>[0-9a-f]{32})-[0-9a-f]{16}")
_FOLDER_NAME = re.compile(r"duratune-.+-[0-9a-f]{8}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class LeftBehind:
    """Something of a dead duratune that is still there, and why."""

    path: Path
    reason: str


@dataclass
class SweepReport:
    """What a sweep removed, and what it had to leave."""

    removed: list[Path] = field(default_factory=list)
    kept: list[LeftBehind] = field(default_factory=list)


def state_folder() -> Path:
    """Where duratune keeps what it must remember between runs: $XDG_STATE_HOME/duratune.

    The default of XDG_STATE_HOME is ~/.local/state (XDG Base Directory Specification). Not created here.
    """
    base = os.environ.get("XDG_STATE_HOME")
    # The specification says that a relative path is to be ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state"
    return root / "duratune"


class Scratch:
    """Creates scratch paths and removes them when it closes. Safe to use from several threads."""

    def __init__(self) -> None:
        """Open a manifest; raises MachineLacks if the state folder cannot be written."""
        owner = own_identity()
        self._token = f"{owner.pid}-{owner.start_ticks}-{boot_id()}-{secrets.token_hex(8)}"
        self._mutex = threading.Lock()
        self._paths: list[Path] = []
        self._manifest = _manifest_folder() / f"{self._token}.jsonl"
        self._fd = _create_manifest(self._manifest)

    def folder(self, parent: Path, name: str) -> Path:
        """Create an empty folder of this Scratch in ``parent``, its own name beginning with ``name``.

        Raises InvalidInput if ``parent`` is no folder that can be written, MachineLacks if it is shared
        memory, which nobody can name elsewhere, or full.
        """
        path = parent.absolute() / f"duratune-{_plain(name)}-{secrets.token_hex(4)}"
        self._note("folder", path)
        try:
            path.mkdir(mode=0o700)
            (path / MARKER_NAME).write_text(self._token + "\n", encoding="ascii")
        except OSError as error:
            if parent == SHARED_MEMORY_FOLDER:
                raise _no_shared_memory(error) from error
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise MachineLacks(
                    f"no folder can be made here: {error.strerror}",
                    where=str(parent),
                    hint="free space there",
                ) from error
            raise InvalidInput(
                f"no folder can be made here: {error.strerror}", where=str(parent), hint="name another folder"
            ) from error
        return path

    def shared_memory(self, name: str) -> Path:
        """Create an empty file in /dev/shm, readable by this user only.

        Raises MachineLacks if there is no /dev/shm to write to.
        """
        path = SHARED_MEMORY_FOLDER / f"duratune-{self._token}-{_plain(name)}"
        self._note("shared-memory", path)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            raise InvalidInput(f"shared memory '{name}' exists already", where=str(path)) from None
        except OSError as error:
            raise _no_shared_memory(error) from error
        return path

    def remove(self, path: Path) -> None:
        """Remove one of the created paths now. Raises OSError if that fails; closing tries once more."""
        with self._mutex:
            if path not in self._paths:
                raise ValueError(f"{path} is not of this Scratch")
        _remove(path, self._token)
        with self._mutex:
            self._paths.remove(path)
            self._write({"removed": str(path)})

    def close(self) -> None:
        """Remove everything that is still there. What cannot be removed stays noted for the next sweep."""
        if self._fd < 0:
            return
        failed = []
        for path in reversed(self._paths):
            try:
                _remove(path, self._token)
            except OSError as error:
                failed.append(error)
        if not failed:
            self._manifest.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = -1
        if failed:
            raise failed[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        # The first error is what the user must see; what stays behind is noted for the next sweep.
        with contextlib.suppress(OSError):
            self.close()

    def _note(self, kind: str, path: Path) -> None:
        with self._mutex:
            self._write({"kind": kind, "path": str(path)})
            self._paths.append(path)

    def _write(self, entry: dict[str, str]) -> None:
        if self._fd < 0:
            raise ValueError("this Scratch is closed")
        os.write(self._fd, (json.dumps(entry) + "\n").encode())


def _no_shared_memory(error: OSError) -> MachineLacks:
    return MachineLacks(
        f"no shared memory: {error.strerror}",
        where=str(SHARED_MEMORY_FOLDER),
        hint="mount a tmpfs there that this user can write (docker: --shm-size)",
    )


def remove_tree(folder: Path) -> None:
    """Remove a folder inside of a scratch folder, and what dead servers whose data lie in it left in the
    kernel, which can be found by way of them only. What cannot be removed stays, for the Scratch to try."""
    shared_memory.release_below(folder)
    shutil.rmtree(folder, ignore_errors=True)


def sweep() -> SweepReport:
    """Remove what dead duratune processes of this user have left behind; never raises for one of them."""
    report = SweepReport()
    for manifest, fd in _dead_manifests():
        try:
            kept = _sweep_manifest(manifest, report)
            if not kept:
                manifest.unlink(missing_ok=True)
        finally:
            os.close(fd)
    return report


def left_behind() -> list[Path]:
    """The paths that `sweep` would look at: those noted by dead processes and still there."""
    paths = []
    for manifest, fd in _dead_manifests():
        paths += [path for path in _noted_paths(manifest) if os.path.lexists(path)]
        os.close(fd)
    return paths


def _sweep_manifest(manifest: Path, report: SweepReport) -> bool:
    """Remove one dead owner's paths; returns whether something must be tried again later."""
    again = False
    for path in _noted_paths(manifest):
        if not os.path.lexists(path):
            continue
        try:
            _remove(path, manifest.stem)
        except _NotOurs as reason:
            report.kept.append(LeftBehind(path, str(reason)))
        except OSError as error:
            report.kept.append(LeftBehind(path, error.strerror or str(error)))
            again = True
        else:
            report.removed.append(path)
    return again


class _NotOurs(OSError):
    """The path carries no mark of the owner that is said to have made it."""


def _remove(path: Path, token: str) -> None:
    """Remove ``path`` if it carries ``token``; raises _NotOurs, or OSError if it cannot be removed."""
    if not path.is_absolute():
        raise _NotOurs("not an absolute path")
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISREG(found.st_mode):
        _remove_shared_memory(path, token)
    elif stat.S_ISDIR(found.st_mode):
        _remove_folder(path, token)
    else:
        raise _NotOurs("neither a folder nor a file")


def _remove_shared_memory(path: Path, token: str) -> None:
    if path.parent != SHARED_MEMORY_FOLDER or not path.name.startswith(f"duratune-{token}-"):
        raise _NotOurs("its name is not that of duratune's shared memory")
    path.unlink(missing_ok=True)


def _remove_folder(path: Path, token: str) -> None:
    marker = _read_marker(path)
    if marker in (None, "") and _FOLDER_NAME.fullmatch(path.name) and _remove_unmarked(path):
        return
    if marker != token:
        raise _NotOurs("it does not carry duratune's marker")
    # A killed server's segments can be found only by way of its data folder.
    shared_memory.release_below(path)
    mounting.unmount_below(path)
    # The marker goes last: an interrupted removal can be taken up again.
    for child in path.iterdir():
        if child.name == MARKER_NAME:
            continue
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink(missing_ok=True)
    (path / MARKER_NAME).unlink(missing_ok=True)
    path.rmdir()


def _remove_unmarked(path: Path) -> bool:
    """Remove a folder whose maker was killed before its marker was written: it holds nothing else."""
    if any(child.name != MARKER_NAME for child in path.iterdir()):
        return False
    (path / MARKER_NAME).unlink(missing_ok=True)
    path.rmdir()
    return True


def _read_marker(folder: Path) -> str | None:
    try:
        fd = os.open(folder / MARKER_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        return file.read(256).decode("ascii", errors="replace").strip()


def _manifest_folder() -> Path:
    return state_folder() / "manifests"


def _create_manifest(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise MachineLacks(
            f"the state folder cannot be written: {error.strerror}",
            where=str(path.parent),
            hint="set XDG_STATE_HOME to a folder that this user can write",
        ) from error
    fcntl.flock(fd, fcntl.LOCK_EX)
    if os.fstat(fd).st_nlink == 0:
        # A sweep in another pid namespace saw it before it was locked.
        os.close(fd)
        return _create_manifest(path)
    return fd


def _dead_manifests() -> Iterator[tuple[Path, int]]:
    """Each manifest whose owner is dead, with a descriptor that holds its lock until it is closed."""
    folder = _manifest_folder()
    for manifest in sorted(folder.glob("*.jsonl")) if folder.is_dir() else []:
        fd = _lock_if_dead(manifest)
        if fd is not None:
            yield manifest, fd


def _lock_if_dead(manifest: Path) -> int | None:
    match = _TOKEN.fullmatch(manifest.stem)
    if match is None:
        return None
    if match["boot"] == boot_id() and ProcessIdentity(int(match["pid"]), int(match["ticks"])).alive():
        return None
    try:
        fd = os.open(manifest, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None  # Another sweep has just finished it, or it is not this user's.
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None  # Its owner lives in another pid namespace, or another sweep is at it.
    return fd


def _noted_paths(manifest: Path) -> list[Path]:
    """The noted paths, newest first. Lines that cannot be read, and kinds unknown here, are passed over."""
    paths: dict[Path, None] = {}
    for line in manifest.read_bytes().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # A torn or damaged line; a path that it named cannot be known.
        if not isinstance(entry, dict):
            continue
        if isinstance(entry.get("path"), str) and entry.get("kind") in ("folder", "shared-memory"):
            paths[Path(entry["path"])] = None
        elif isinstance(entry.get("removed"), str):
            paths.pop(Path(entry["removed"]), None)
    return list(reversed(paths))


def _plain(name: str) -> str:
    if not _PLAIN_NAME.fullmatch(name):
        raise ValueError(f"'{name}' is no plain file name")
    return name
