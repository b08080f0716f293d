"""A recorded run on a virtual disk: two write logs with one counter, of the files and of the disk below
them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from crashlab.block.canary import DiskCanary
from crashlab.block.disk_log import BASE_NAME, LOG_NAME, log_faults
from crashlab.block.file_system import FILE_SYSTEMS
from crashlab.block.virtual_disk import VirtualDisk, make_base
from crashlab.recording.stage import Staging
from crashlab.recording.write_log import WriteLog
from engines.process import Watcher

DISK_LOG_SHARE = 2
"""A file system writes more than its files: pages whole, and its journal."""
Environment = Callable[[Path, Path, Path], Mapping[str, str]]


class DiskStage:
    """The mount point of a virtual disk."""

    def __init__(
        self, disk: VirtualDisk, log: Path, staging: Staging, file_system: str, stack: ExitStack
    ) -> None:
        self._disk = disk
        self._log = log
        self._staging = staging
        self._stack = stack
        self.file_system = file_system
        self.root = disk.mount_point
        self._canary = DiskCanary.run(self.root, staging.places.ledger)

    def unblock(self) -> None:
        """A disk whose log is full answers no more: its server is ended, and what waits gets an error."""
        if WriteLog.read(self._log).full:
            self._disk.cut()

    def settle(self) -> list[str]:
        """Unmount the disk, so that everything that is still cached is written to it, keep its log, and mount
        what the disk holds in the end."""
        self._disk.stop()
        is_full = WriteLog.read(self._log).full
        WriteLog.compact(self._log, self._staging.folder / LOG_NAME)
        faults = log_faults(self._staging.folder, self._disk.content, self._staging.places.shared)
        if is_full:
            faults.append("the disk's write log was full, and the disk was cut off from then on")
        # With mount options of the user's own, as `sync`, more may be durable than was asked for. The
        # controls have none, and so are held to it in every session.
        if not faults and self.file_system in FILE_SYSTEMS:
            places = self._staging.places
            faults += self._canary.faults(self._staging.folder, self.file_system, places.live)
        self._stack.enter_context(self._disk.at_rest())
        return faults


@contextmanager
def disk_stage(
    staging: Staging, kind: str, options: str, environment: Environment, watcher: Watcher | None
) -> Iterator[DiskStage]:
    """A stage on a new virtual disk that holds the database."""
    with ExitStack() as stack:
        disk = VirtualDisk(staging.places.live, staging.places.shared, kind, options)
        image = staging.folder / BASE_NAME
        at = staging.places.live / "filling"
        at.mkdir()
        make_base(FILE_SYSTEMS[kind], staging.base, image, at)
        log = staging.places.shared / LOG_NAME
        WriteLog.create(log, DISK_LOG_SHARE * staging.log_bytes)
        stack.callback(disk.stop)
        recorded = environment(disk.content.parent, log, staging.places.ledger)
        disk.start(image, recorded, staging.places.shared / "server.log", watcher)
        yield DiskStage(disk, log, staging, f"{kind} {options}".strip(), stack)
