"""The block recorder: a run on a virtual disk, recorded on the disk too.

The engine's calls are recorded by the preload recorder, which tells what was acknowledged when and which
moments are worth a cut; what a power cut leaves is what the disk would hold, with the file system's own order
of writes, its journal and its flushes. Needs root, /dev/fuse and loop devices.
"""

from __future__ import annotations

import importlib.util
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from crashlab.block.file_system import FILE_SYSTEMS
from crashlab.block.stage import disk_stage
from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.fault import Fault
from crashlab.recording.recorder import CanaryReport
from crashlab.recording.stage import Stage, Staging
from crashlab.recording.write_log import WriteLog
from engines import host
from engines.mounting import LOOP_CONTROL, enter_own_table
from engines.process import Watcher
from knobs.errors import InvalidInput, MachineLacks

FUSE = Path("/dev/fuse")


@dataclass(frozen=True)
class BlockRecorder:
    """Records by a virtual disk with this file system and these mount options, and by the preload
    recorder."""

    file_system: str = "ext4"
    mount_options: str = ""
    preload: PreloadRecorder = field(default_factory=PreloadRecorder)
    watcher: Watcher | None = None
    name: str = "block"

    @property
    def plain(self) -> BlockRecorder:
        """Mounted as the file system is by default."""
        return replace(self, mount_options="")

    def stage(self, staging: Staging) -> AbstractContextManager[Stage]:
        return disk_stage(
            staging, self.file_system, self.mount_options, self.preload.environment, self.watcher
        )

    def environment(self, root: Path, log: Path, ledger: Path) -> dict[str, str]:
        return self.preload.environment(root, log, ledger)

    def acks_environment(self, ledger: Path, processes: Path) -> dict[str, str]:
        return self.preload.acks_environment(ledger, processes)

    def fault_environment(self, fault: Fault, files: str) -> dict[str, str]:
        del files
        raise InvalidInput(
            "a call that fails leaves a real file system's pages as they are",
            where=f"--fault {fault}",
            hint="use --recorder preload, which knows what Linux loses then",
        )

    def run_canary(self, root: Path, log: Path, ledger: Path) -> CanaryReport:
        return self.preload.run_canary(root, log, ledger)

    def check_canary(self, log: WriteLog, report: CanaryReport) -> list[str]:
        return self.preload.check_canary(log, report)


def enter(file_system: str) -> None:
    """Make ready what the recorder needs of this process. Raises MachineLacks where it cannot be used, with
    what to do about it."""
    lacking = lacks(file_system)
    if lacking is not None:
        raise lacking
    enter_own_table()


def lacks(file_system: str = "ext4") -> MachineLacks | None:
    """Why this machine cannot use the recorder with one of FILE_SYSTEMS, None where it can."""
    kind = FILE_SYSTEMS[file_system]
    if os.geteuid() != 0:
        return _lacks("it needs root", "run as root, or with sudo")
    for device in (FUSE, LOOP_CONTROL):
        if not os.access(device, os.R_OK | os.W_OK):
            return _lacks(f"{device} is not there", "in a container: --device /dev/fuse --privileged")
    if importlib.util.find_spec("pyfuse3") is None:
        return _lacks(
            "the package pyfuse3 is not installed", "apt-get install libfuse3-dev; pip install pyfuse3"
        )
    if not kind.is_known_to_kernel:
        return _lacks(f"the kernel has no {kind.name}", "name another with --file-system")
    if host.kernel_version() < kind.kernel_min:
        oldest = ".".join(map(str, kind.kernel_min))
        return _lacks(f"{kind.name} needs Linux {oldest} here", "name another with --file-system")
    return kind.lacking_program


def _lacks(what: str, hint: str) -> MachineLacks:
    return MachineLacks(what, where="--recorder block", hint=f"{hint}; --recorder preload needs none of this")
