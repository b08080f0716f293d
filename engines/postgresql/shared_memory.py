"""What a killed server leaves in the kernel, found from its data folder and removed.

A server holds one System V segment, whose key is the data folder's inode number or, where that is taken,
one of the next (port/sysv_shmem.c), and POSIX segments /dev/shm/PostgreSQL.N. The System V segment begins
with PGShmemHeader (storage/pg_shmem.h): device and inode of the data folder, and the number of the control
segment that lists the others (storage/ipc/dsm.c). PostgreSQL itself removes all of this at the next start in
the same folder; a killed cluster of ours may never start again. postmaster.pid names the segment as well,
but a server that is killed as it starts has not yet written that.

Nothing is touched whose header does not name this very folder, nor while a process is attached. The
attachment is also how PostgreSQL itself tells whether a folder is in use. What has died is attached for a
moment longer where somebody reads its memory through /proc, so that is waited for.

A server that is killed before it has filled its segment's header leaves one that names no folder. It is known
by its key, size and owner; and nobody can be about to fill it, for the process that made it is dead.

Root's right to every file does not reach System V segments (shmget(2): CAP_IPC_OWNER, CAP_SYS_ADMIN, which
containers lack), so root looks at one, and removes it, with the owner's uid: for this thread alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engines.identity import identify

PID_FILE = "postmaster.pid"
POSIX_FOLDER = Path("/dev/shm")
DETACH_S = 1.0
"""How long what is attached is given to let go."""

_POLL_S = 0.01
_VERSION_FILE = "PG_VERSION"
# How many keys behind the inode number are looked at; each one taken by another is a coincidence.
_KEYS = 1000
_HEADER = struct.Struct("=iiQQI4xQQQ")
_HEADER_MAGIC = 679834894
_CONTROL = struct.Struct("=III4x")
_CONTROL_MAGIC = 0x9A503D32
_CONTROL_BYTES_MAX = 64 << 20
# struct dsm_control_item: handle and refcnt, then two sizes more since PostgreSQL 14.
_ITEM_BYTES, _ITEM_BYTES_BEFORE_14 = 40, 24
_SHM_RDONLY, _IPC_RMID = 0o10000, 0
# setresuid of the kernel, which changes one thread; the C library's changes all of them (credentials(7)).
_SETRESUID = {"x86_64": 117, "aarch64": 147, "riscv64": 147}


@dataclass(frozen=True)
class _Segment:
    """The System V segment of a data folder: its id, how many are attached, and its control handle."""

    id: int
    attached: int
    control: int


def in_use(data: Path) -> bool:
    """Whether a server, or what is left of one, has this data folder open."""
    segment = _settled(data)
    return segment is not None and segment.attached > 0


def names(data: Path) -> list[str]:
    """The segments of this data folder's server, running or dead: POSIX files first, then System V's."""
    segment = _segment(data)
    if segment is None:
        return []
    return [*map(str, _files(segment, data)), _name(segment.id)]


def release(data: Path) -> list[str]:
    """Remove the segments of the dead servers of this data folder; returns their names.

    Does nothing while a process is attached, or where there are none.
    """
    numbers, removed = _unfilled(data), list[str]()
    segment = _settled(data)
    if segment is not None and not segment.attached:
        removed = names(data)
        for path in _files(segment, data):
            path.unlink(missing_ok=True)
        numbers.append(segment.id)
    for number in numbers:
        with _as_user(data.stat().st_uid):
            # It may fail only for a segment that another process has removed meanwhile.
            _libc().shmctl(number, _IPC_RMID, None)
    return list(dict.fromkeys([*removed, *map(_name, numbers)]))


def release_below(folder: Path) -> list[str]:
    """`release` for each data folder that is ``folder`` or lies below it."""
    return [name for data in data_folders(folder) for name in release(data)]


def data_folders(folder: Path) -> Iterator[Path]:
    """Each data folder that is ``folder`` or lies below it, however deep."""
    for place, folders, files in os.walk(folder):
        if _VERSION_FILE in files:
            yield Path(place)
            folders.clear()  # What lies in a data folder is no other's.


def _settled(data: Path) -> _Segment | None:
    """The segment of a data folder, once nothing is attached or that was waited for."""
    ends_s = time.monotonic() + DETACH_S
    while (found := _segment(data)) is not None and found.attached and time.monotonic() < ends_s:
        time.sleep(_POLL_S)
    return found


def _segment(data: Path) -> _Segment | None:
    try:
        folder = data.stat()
    except FileNotFoundError:
        return None
    for entry in _candidates(folder):
        with _as_user(folder.st_uid):
            header = _header(entry.id)
        if header is None:
            continue
        magic, _, _, _, control, _, device, inode = header
        if (magic, device, inode) == (_HEADER_MAGIC, folder.st_dev, folder.st_ino):
            return _Segment(entry.id, entry.attached, control)
    return None


def _unfilled(data: Path) -> list[int]:
    """The segments that could belong to a data folder and that nobody has filled, or can fill any more."""
    try:
        folder = data.stat()
    except FileNotFoundError:
        return []
    found = []
    for entry in _candidates(folder):
        if entry.size != _HEADER.size or entry.attached or identify(entry.creator) is not None:
            continue
        with _as_user(folder.st_uid):
            header = _header(entry.id)
        if header is not None and not any(header):
            found.append(entry.id)
    return found


@dataclass(frozen=True)
class _Entry:
    """A line of /proc/sysvipc/shm: a segment's id and size, who made it, and how many are attached."""

    id: int
    size: int
    creator: int
    attached: int


def _candidates(folder: os.stat_result) -> list[_Entry]:
    """A data folder's owner's segments that could belong to it by their key.

    From proc(5), /proc/sysvipc/shm; a key has 32 bits.
    """
    found = []
    for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
        fields = [int(field) for field in line.split()]
        if (fields[0] - folder.st_ino) % (1 << 32) < _KEYS and fields[7] == folder.st_uid:
            found.append(_Entry(fields[1], fields[3], fields[4], fields[6]))
    return found


def _name(number: int) -> str:
    return f"System V shared memory {number}"


def _files(segment: _Segment, data: Path) -> list[Path]:
    owner = data.stat().st_uid
    handles = (*_listed(segment.control, _item_bytes(data)), segment.control)
    paths = [POSIX_FOLDER / f"PostgreSQL.{handle}" for handle in handles]
    # A handle is only a number: another owner's file of that name is not ours.
    return [path for path in paths if path.exists() and path.stat().st_uid == owner]


def _header(number: int) -> tuple[int, ...] | None:
    libc = _libc()
    address = libc.shmat(number, None, _SHM_RDONLY)
    if address in (None, ctypes.c_void_p(-1).value):
        return None  # Another user's: not this cluster's.
    try:
        return _HEADER.unpack(ctypes.string_at(address, _HEADER.size))
    finally:
        libc.shmdt(ctypes.c_void_p(address))


def _listed(control: int, item_bytes: int) -> list[int]:
    """The handles in a control segment that are in use and have a file of their own."""
    try:
        with (POSIX_FOLDER / f"PostgreSQL.{control}").open("rb") as file:
            content = file.read(_CONTROL_BYTES_MAX)
    except OSError:
        return []
    if len(content) < _CONTROL.size or _CONTROL.unpack_from(content)[0] != _CONTROL_MAGIC:
        return []
    _, items, items_max = _CONTROL.unpack_from(content)
    room = (len(content) - _CONTROL.size) // item_bytes
    handles = []
    for item in range(min(items, items_max, room)):
        handle, references = struct.unpack_from("=II", content, _CONTROL.size + item * item_bytes)
        if references:
            handles.append(handle)
    return handles


def _item_bytes(data: Path) -> int:
    try:
        major = int((data / _VERSION_FILE).read_text())
    except (OSError, ValueError):
        return _ITEM_BYTES
    return _ITEM_BYTES if major >= 14 else _ITEM_BYTES_BEFORE_14


@contextlib.contextmanager
def _as_user(uid: int) -> Iterator[None]:
    """Give this thread that effective uid meanwhile, where it is root's; nothing to do elsewhere."""
    number = _SETRESUID.get(platform.machine())
    if os.geteuid() != 0 or uid == 0 or number is None:
        yield
        return
    _libc().syscall(number, -1, uid, -1)
    try:
        yield
    finally:
        _libc().syscall(number, -1, 0, -1)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    return libc
