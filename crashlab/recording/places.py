"""Where something is recorded: scratch folders for the live data on a disk, and for log and ledger in memory.

A log on the disk of the data would compete with the engine's own syncs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crashlab.copying import LEFT_OUT
from crashlab.preload.access import opened_to
from engines.engine import Engine, LogReader
from engines.scratch import SHARED_MEMORY_FOLDER, Scratch

DATABASE_FOLDER = "db"


@dataclass(frozen=True)
class Places:
    """The two folders of one recording: ``live`` for the data, ``shared`` for log and ledger."""

    live: Path
    shared: Path

    @property
    def log(self) -> Path:
        return self.shared / "write.log"

    @property
    def ledger(self) -> Path:
        return self.shared / "ledger"

    def opened(self, engine: Engine, environment: Mapping[str, str]) -> dict[str, str]:
        """The recorder's environment for the engine's processes; log and ledger are there already."""
        return opened_to(engine.runs_as, self.shared, (self.log, self.ledger), environment)

    def make_root(self) -> Path:
        """An empty folder on the disk of the data, which every user may pass, to be recorded."""
        root = self.live / "root"
        root.mkdir(mode=0o755)
        root.chmod(0o755)
        return root


@contextmanager
def recording_places(engine: Engine, scratch: Scratch, parent: Path) -> Iterator[Places]:
    """Folders below ``parent`` and in shared memory that the engine's processes can reach; they are gone
    afterwards."""
    shared = scratch.folder(SHARED_MEMORY_FOLDER, "record")
    try:
        live = scratch.folder(parent, "live")
        try:
            if engine.runs_as is not None:
                live.chmod(0o711)
            yield Places(live, shared)
        finally:
            scratch.remove(live)
    finally:
        scratch.remove(shared)


def inodes_below(root: Path, reader: LogReader) -> tuple[dict[str, int], dict[str, int]]:
    """The inodes of the files and of the folders below the root, by path; what no copy holds is removed."""
    files, folders = {}, {"": root.stat().st_ino}
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root).as_posix()
        if not path.is_file():
            folders[relative] = path.stat().st_ino
        elif reader.role(relative) in LEFT_OUT:
            path.unlink()
        else:
            files[relative] = path.stat().st_ino
    return files, folders
