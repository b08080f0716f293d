"""What this machine is: kernel, processor, memory, limits of the container, and file systems.

Read from /proc and /sys as proc(5), cgroups(7) and the kernel's admin-guide/cgroup-v2 describe them.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

from knobs.contract import Contract
from knobs.errors import InvalidInput

# File systems on which a sync costs nothing because nothing is made durable. An overlayfs may be mounted
# `volatile`, and its upper layer is not what a mount table shows.
UNSAFE_TYPES = ("tmpfs", "ramfs", "overlay")

# statfs(2), <linux/magic.h>. The three generations of ext share one number.
_MAGIC = {
    0xEF53: "ext",
    0x01021994: "tmpfs",
    0x858458F6: "ramfs",
    0x794C7630: "overlay",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0x2FC12FC1: "zfs",
    0xF2F52010: "f2fs",
    0xCA451A4E: "bcachefs",
    0x6969: "nfs",
    0x65735546: "fuse",
    0x01021997: "9p",
}


@dataclass(frozen=True)
class Mount:
    """One line of the mount table: where, what kind, from which device, with which options."""

    mount_point: Path
    type: str
    source: str
    options: str


@dataclass(frozen=True)
class FileSystem:
    """The file system that a path lies on; ``type`` is what statfs(2) says, told apart by the mount table."""

    type: str
    mount_point: Path
    options: str
    device: str
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Limits:
    """What the control groups allow this process; None where there is no limit."""

    memory_bytes: int | None
    cpus: float | None


@dataclass(frozen=True)
class Host:
    """This machine, as far as a measurement depends on it."""

    kernel: str
    architecture: str
    cpu_model: str
    cpus: int
    memory_bytes: int
    limits: Limits
    open_files_max: int


def describe() -> Host:
    """This machine now. ``cpus`` counts those that this process may run on."""
    return Host(
        kernel=platform.release(),
        architecture=platform.machine(),
        cpu_model=_cpu_model(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        limits=limits(),
        open_files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )


def kernel_version() -> tuple[int, int]:
    """The first two numbers of the running kernel's release (uname(2))."""
    first, second = re.findall(r"\d+", platform.release())[:2]
    return int(first), int(second)


def mounts(table: Path = Path("/proc/self/mountinfo")) -> list[Mount]:
    """The mount table, in the order of mounting (proc(5), /proc/PID/mountinfo)."""
    found = []
    for line in table.read_text(errors="surrogateescape").splitlines():
        front, _, back = line.partition(" - ")
        fields, (kind, source, super_options) = front.split(), back.split()[:3]
        options = ",".join(dict.fromkeys([*fields[5].split(","), *super_options.split(",")]))
        found.append(Mount(Path(_unescape(fields[4])), kind, _unescape(source), options))
    return found


def mounts_below(folder: Path) -> list[Mount]:
    """What is mounted at or below ``folder``."""
    folder = folder.resolve()
    return [mount for mount in mounts() if mount.mount_point.is_relative_to(folder)]


def file_system(path: Path) -> FileSystem:
    """The file system that ``path`` lies on, or would lie on: its nearest existing parent's.

    Raises OSError if that cannot be asked.
    """
    existing = path.absolute().resolve()
    while not existing.exists():
        existing = existing.parent
    mount = _mount_of(existing, mounts())
    usage = shutil.disk_usage(existing)
    return FileSystem(
        type=_type(mount.type, _statfs_magic(existing)),
        mount_point=mount.mount_point,
        options=mount.options,
        device=mount.source,
        free_bytes=usage.free,
        total_bytes=usage.total,
    )


def refuse_unsafe_data_folder(path: Path, contract: Contract) -> None:
    """Refuse to measure under `strict` where a sync is free: on tmpfs or overlayfs.

    Raises InvalidInput.
    """
    kind = file_system(path).type
    if contract.kind == "strict" and kind in UNSAFE_TYPES:
        raise InvalidInput(
            f"lies on {kind}, where a sync makes nothing durable, so nothing can be measured under strict",
            where=str(path),
            hint="name a folder on a disk with --data (in a container: a volume)",
        )


def limits(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> Limits:
    """The control groups' limits on this process: the tightest of its own group and those above it."""
    memory: list[int] = []
    cpus: list[float] = []
    for folder in _group_folders(groups, root):
        memory += _number(folder / "memory.max") + _number(folder / "memory.limit_in_bytes")
        cpus += _cpu_quota(folder)
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Version 1 writes "no limit" as a number near 2^63.
    binding = [value for value in memory if value < physical]
    return Limits(min(binding, default=None), min(cpus, default=None))


def _group_folders(groups: Path, root: Path) -> list[Path]:
    """This process's group in each hierarchy, and every group above it (cgroups(7), /proc/PID/cgroup)."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        bases = [root, root / "unified"] if number == "0" else [root / controllers]
        for base in bases:
            inner = base / path.lstrip("/")
            # In a container the path may be the host's and not exist here; the base itself does.
            folders += [folder for folder in (inner, *inner.parents) if folder.is_relative_to(base)]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _cpu_quota(folder: Path) -> list[float]:
    """CPUs' worth of time: quota / period, from cpu.max (version 2) or cpu.cfs_* (version 1)."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return [] if quota == "max" else [int(quota) / int(period)]
    except OSError:
        pass  # Not a version 2 group, or the root of one.
    quota_us, period_us = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return [quota_us[0] / period_us[0]] if quota_us and period_us and quota_us[0] > 0 else []


def _number(file: Path) -> list[int]:
    try:
        text = file.read_text().strip()
    except OSError:
        return []
    return [] if text == "max" else [int(text)]


def _cpu_model() -> str:
    text = Path("/proc/cpuinfo").read_text(errors="replace")
    # x86 calls it "model name"; ARM has only the numbers of the implementer and the part.
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _mount_of(path: Path, table: list[Mount]) -> Mount:
    holding = [mount for mount in table if path.is_relative_to(mount.mount_point)]
    deepest = max(len(mount.mount_point.parts) for mount in holding)
    # Of several mounts on one point the last hides the others.
    return [mount for mount in holding if len(mount.mount_point.parts) == deepest][-1]


def _type(mount_type: str, magic: int) -> str:
    """What statfs says, where the mount table says something of another family (it may be stale)."""
    family = _MAGIC.get(magic)
    if family is None or mount_type.startswith(family):
        return mount_type
    return family


def _statfs_magic(path: Path) -> int:
    """f_type of statfs(2): the first word of the structure, which os.statvfs leaves out."""
    buffer = ctypes.create_string_buffer(512)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.statfs(os.fsencode(path), buffer) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(path))
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF


def _unescape(text: str) -> str:
    """Undo the octal escapes of space, tab, newline and backslash in the mount table."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
