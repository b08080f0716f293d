"""What `duratune doctor` looks at: one function per check, each pure reading, listed in CHECKS.

A check never raises for what it looks for; it says so in the Check that it returns.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crashlab.block import recorder as block
from crashlab.block.file_system import FILE_SYSTEMS
from engines import host, scratch
from engines.postgresql import binaries, server_user
from engines.supervisor import Supervisor
from knobs import native
from knobs.errors import DuratuneError, MachineLacks
from tuner.request import FILE_BYTES_MIN
from tuner.room import check_address_space, check_shared_memory

CheckState = Literal["ok", "warning", "lacks", "wrong"]

ROOMS = ("tuner", "crashlab", "workloads", "engines", "knobs")

ROCKSDB_OLDEST = (7, 8)
# A ledger and a write log of one run together stay below this (Docker gives 64 MiB unless told otherwise).
SHARED_MEMORY_WANTED_BYTES = 512 << 20
OPEN_FILES_WANTED = 1024
PROGRAM_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Check:
    """One answer: `ok`; `warning` works with a restriction; `lacks` something (exit code 3); `wrong`, a
    control did not come out as it must (exit code 4)."""

    name: str
    state: CheckState
    what: str
    hint: str = ""


@dataclass(frozen=True)
class Look:
    """Where the checks look: ``folder`` is where studies and their data would lie."""

    folder: Path


def machine(_look: Look) -> Iterable[Check]:
    """The machine and the limits on this process; for information."""
    found = host.describe()
    gib = found.memory_bytes / (1 << 30)
    yield Check("machine", "ok", f"{found.cpus} x {found.cpu_model}, {gib:.1f} GiB, Linux {found.kernel}")
    limits = []
    if found.limits.memory_bytes is not None:
        limits.append(f"{found.limits.memory_bytes / (1 << 30):.1f} GiB of memory")
    if found.limits.cpus is not None:
        limits.append(f"{found.limits.cpus:g} CPUs")
    if limits:
        yield Check("limits", "ok", f"the control group allows {' and '.join(limits)}")


def python_packages(_look: Look) -> Iterable[Check]:
    """The interpreter and the packages that duratune's own metadata requires."""
    version = ".".join(map(str, sys.version_info[:3]))
    missing = [name for name in _required_packages() if not _is_installed(name)]
    if missing:
        hint = f"{sys.executable} -m pip install {' '.join(missing)}"
        yield Check("python", "lacks", f"{version}, without {', '.join(missing)}", hint)
    else:
        yield Check("python", "ok", f"{version} with every required package")


def import_names(_look: Look) -> Iterable[Check]:
    """The five packages have generic names: another distribution in the same environment may own one."""
    owners = importlib.metadata.packages_distributions()
    for room in ROOMS:
        others = sorted(set(owners.get(room, [])) - {"duratune"})
        if others:
            yield Check(
                "import names",
                "warning",
                f"'{room}' also belongs to {', '.join(others)}",
                "install duratune into an environment of its own (pipx, uv tool or a venv)",
            )


def native_parts(_look: Look) -> Iterable[Check]:
    """What was built with this installation."""
    missing = native.missing()
    for part in missing:
        try:
            native.find(part.name)
        except MachineLacks as error:
            what = f"{error}; without it nothing {part.purpose}"
            yield Check(part.name, "lacks", what, error.hint)
    built = [name for name in native.PARTS if name not in {part.name for part in missing}]
    if built:
        yield Check("native parts", "ok", ", ".join(built))


def compiler(_look: Look) -> Iterable[Check]:
    """A compiler is needed only to build; where everything is built its absence is no fault."""
    program = shutil.which("c++")
    if program is not None:
        line = _output([program, "--version"]).partition("\n")[0]
        yield Check("compiler", "ok", line or program)
    elif native.missing():
        yield Check("compiler", "lacks", "no C++ compiler", "apt-get install g++")
    else:
        yield Check("compiler", "ok", "none, and none is needed: everything is built")


def rocksdb(_look: Look) -> Iterable[Check]:
    """The library that is installed for building, by pkg-config."""
    hint = "apt-get install librocksdb-dev pkg-config"
    version = _output(["pkg-config", "--modversion", "rocksdb"]).strip()
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        yield Check("librocksdb", "warning" if _has_driver() else "lacks", "not found by pkg-config", hint)
    elif (int(numbers[1]), int(numbers[2])) < ROCKSDB_OLDEST:
        yield Check("librocksdb", "lacks", f"{version} is older than 7.8", "install RocksDB 7.8 or newer")
    else:
        yield Check("librocksdb", "ok", version)


def postgresql(_look: Look) -> Iterable[Check]:
    """The server's programs, and the user that it would run as; an engine that one may do without."""
    try:
        found, user = binaries.find(), server_user.choose()
    except MachineLacks as error:
        yield Check("postgresql", "warning", f"{error}; without it no cluster is made", error.hint)
    else:
        yield Check("postgresql", "ok", f"{found.version} in {found.folder}, run as {user.name}")


def recorders(_look: Look) -> Iterable[Check]:
    """Which recorder can be used: whether a program starts and answers with the library loaded into it."""
    try:
        library = native.find("libduratune_record.so")
    except DuratuneError as error:
        yield Check("recorder preload", "lacks", error.what, error.hint)
    else:
        complaint = _preload_complaint(library)
        if complaint:
            yield Check(
                "recorder preload", "lacks", f"cannot be loaded: {complaint}", "see noexec mounts, ld.so(8)"
            )
        else:
            yield Check("recorder preload", "ok", "can be loaded into a program")
    lacking = block.lacks()
    if lacking is None:
        kinds = [name for name in FILE_SYSTEMS if block.lacks(name) is None]
        yield Check("recorder block", "ok", f"can be used, with {', '.join(kinds)}")
    else:
        yield Check("recorder block", "warning", f"cannot be used: {lacking.what}", lacking.hint)


def shared_memory(_look: Look) -> Iterable[Check]:
    """Room for the ledger and the write log: what tune, crash and bench refuse to run without, and what is
    enough for a full log."""
    hint = "mount a larger tmpfs on /dev/shm (docker: --shm-size=1g)"
    try:
        check_shared_memory()
    except MachineLacks as error:
        yield Check("/dev/shm", "lacks", error.what, error.hint)
        return
    free = shutil.disk_usage(scratch.SHARED_MEMORY_FOLDER).free
    state: CheckState = "ok" if free >= SHARED_MEMORY_WANTED_BYTES else "warning"
    yield Check("/dev/shm", state, f"{free >> 20} MiB free", "" if state == "ok" else hint)


def data_folder(look: Look) -> Iterable[Check]:
    """The file system on which studies and data would lie by default."""
    found = host.file_system(look.folder)
    words = f"{found.type} on {found.device} ({found.options}), {found.free_bytes >> 20} MiB free"
    if found.type in host.UNSAFE_TYPES:
        yield Check(
            "data folder",
            "warning",
            f"{words}: a sync is free there, so `strict` cannot be measured",
            "work on a disk, or name one with --data",
        )
    else:
        yield Check("data folder", "ok", words)


def open_files(_look: Look) -> Iterable[Check]:
    """How many descriptors a process may have; RocksDB's max_open_files needs them."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit < OPEN_FILES_WANTED:
        yield Check("open files", "warning", f"at most {limit}", f"ulimit -n {OPEN_FILES_WANTED}")
    else:
        yield Check("open files", "ok", f"at most {limit}")


def file_size(_look: Look) -> Iterable[Check]:
    """How large a file may grow; a run without room in its files is killed by SIGXFSZ."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and limit < FILE_BYTES_MIN:
        yield Check("file size", "lacks", f"at most {limit >> 10} KiB", "ulimit -f unlimited")
    else:
        yield Check("file size", "ok", "unlimited" if limit < 0 else f"at most {limit >> 20} MiB")


def address_space(_look: Look) -> Iterable[Check]:
    """How much a process may map."""
    try:
        check_address_space()
    except MachineLacks as error:
        yield Check("address space", "lacks", error.what, error.hint)


def supervisor(_look: Look) -> Iterable[Check]:
    """Whether the process that cleans up after a killed duratune starts."""
    try:
        with Supervisor():
            yield Check("supervisor", "ok", "starts and ends")
    except (DuratuneError, OSError) as error:
        yield Check("supervisor", "lacks", f"does not start: {error}", "see the message above")


# The order of the report. What needs an engine, such as the lab's controls, comes last.
CHECKS: list[Callable[[Look], Iterable[Check]]] = [
    machine,
    python_packages,
    import_names,
    native_parts,
    compiler,
    rocksdb,
    postgresql,
    recorders,
    shared_memory,
    data_folder,
    open_files,
    file_size,
    address_space,
    supervisor,
]


def _required_packages() -> list[str]:
    """The names in duratune's own metadata, those of extras left out (core metadata, Requires-Dist)."""
    try:
        lines = importlib.metadata.requires("duratune") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    names = [re.match(r"[A-Za-z0-9._-]+", line) for line in lines if "extra ==" not in line]
    return [name[0] for name in names if name is not None]


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _has_driver() -> bool:
    return "duratune-ycsb" not in {part.name for part in native.missing()}


def _preload_complaint(library: Path) -> str:
    """What the dynamic loader says against ``library``; it goes on without it, and says so (ld.so(8))."""
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    try:
        done = subprocess.run(
            [sys.executable, "-S", "-c", "print('up')"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROGRAM_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return "the program did not end"
    if done.returncode != 0 or done.stdout != "up\n" or "LD_PRELOAD" in done.stderr:
        return done.stderr.strip().partition("\n")[0] or f"exit code {done.returncode}"
    return ""


def _output(command: list[str]) -> str:
    """What a program prints; "" if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
