"""A virtual disk with a volatile write cache, mounted: its server, its loop device, its file system.

What the file system writes has reached the disk and is lost at a power cut, unless the disk was told to flush
after it: the write log of the disk has each write, and each flush, with begin and end. The disk's content
lies in shared memory.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from crashlab.block.file_system import FILE_SYSTEMS, FileSystemKind
from crashlab.block.server import DISK_NAME
from crashlab.copying import copy_sparse
from crashlab.recording.places import DATABASE_FOLDER
from engines import mounting
from engines.process import Child, LaunchSpec, Watcher
from knobs.errors import Undecided

SERVER_DEADLINE_S = 30.0
ROOM_BYTES = 2 << 30
"""What a run may add to the database; what nobody writes takes no memory."""
BACKING_FOLDER = "disk"
"""The folder of the disk's content, which is the recorded root of the server's write log."""


def make_base(kind: FileSystemKind, database: Path, image: Path, at: Path) -> None:
    """Make a disk with this file system, and the database in it, synced and unmounted.

    ``at`` is an empty folder to mount it on meanwhile. Raises MachineLacks where something is not there, and
    Undecided where it cannot be done.
    """
    used = sum(path.stat().st_blocks * 512 for path in database.rglob("*"))
    kind.make(image, 2 * used + ROOM_BYTES)
    with mounted(image, kind.name, "", at):
        said = mounting.run(["cp", "-a", str(database), str(at / DATABASE_FOLDER)])
        if said is not None:
            raise Undecided(f"the database cannot be copied to the virtual disk: {said}", where=str(at))
        at.chmod(0o755)


@contextmanager
def mounted(image: Path, kind: str, options: str, at: Path) -> Iterator[None]:
    """A disk's content, mounted as it is: the file system's own recovery runs here."""
    with mounting.loop_device(image) as device:
        mounting.mount(device, at, kind, FILE_SYSTEMS[kind].mount_options(options))
        try:
            yield
        finally:
            mounting.unmount(at)


class VirtualDisk:
    """One disk that is served and mounted on ``mount_point``."""

    def __init__(self, folder: Path, shared: Path, kind: str, options: str) -> None:
        self.mount_point = folder / "mount"
        self.content = shared / BACKING_FOLDER / "content"
        self._served = folder / "served"
        self._kind = kind
        self._options = options
        self._stack = ExitStack()
        self._server: Child | None = None

    def start(self, image: Path, environment: Mapping[str, str], log: Path, watcher: Watcher | None) -> None:
        """Serve a copy of the image, and mount it; ``environment`` records the server."""
        self.content.parent.mkdir()
        copy_sparse(image, self.content)
        self._served.mkdir(mode=0o700)
        self.mount_point.mkdir(mode=0o755)
        packages = str(Path(__file__).resolve().parent.parent.parent)
        command = [sys.executable, "-P", "-m", "crashlab.block.server", str(self.content), str(self._served)]
        spec = LaunchSpec(command, log, environment={**environment, "PYTHONPATH": packages})
        self._server = self._stack.enter_context(Child(spec, watcher))
        self._stack.callback(self._unmount_served)
        self._server.await_line(lambda line: line == "ready", SERVER_DEADLINE_S, "serving the virtual disk")
        device = self._stack.enter_context(mounting.loop_device(self._served / DISK_NAME))
        options = FILE_SYSTEMS[self._kind].mount_options(self._options)
        mounting.mount(device, self.mount_point, self._kind, options)
        self._stack.callback(mounting.unmount, self.mount_point)

    def stop(self) -> None:
        """Unmount it and end its server; the content stays. Nothing happens where it is stopped already."""
        self._stack.close()

    def cut(self) -> None:
        """End the server at once, and with it whatever waits for the disk."""
        if self._server is not None:
            self._server.signal(signal.SIGKILL)

    def _unmount_served(self) -> None:
        # After a cut its connection is dead, and unmounting it is all that is left to do.
        with suppress(Undecided):
            mounting.unmount(self._served)
        assert self._server is not None, "it is started before"
        with suppress(Undecided):
            self._server.wait(SERVER_DEADLINE_S, "the virtual disk's server ends with its mount")

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Mount what is left of it in the same place, unrecorded."""
        with mounted(self.content, self._kind, self._options, self.mount_point):
            yield
