"""The write log of a virtual disk, read: one file that is the disk, without names."""

from __future__ import annotations

from pathlib import Path

from crashlab.copying import copy_sparse, same_content
from crashlab.recording.write_log import Kind, WriteLog
from crashlab.states.disk import BaseFile, Disk, FileImage, Surviving
from knobs.errors import Undecided

BASE_NAME, LOG_NAME = "disk.base", "disk.log"
CONTENT = "content"
"""The path of the disk's content below the recorded root."""


def disk_of(folder: Path) -> Disk:
    """The disk of a recording: its content before the run, and every write and flush.

    Raises InvalidInput where the folder holds none, and Undecided where its log is damaged.
    """
    log = WriteLog.read(folder / LOG_NAME)
    written = [each for each in log.operations if each.kind is not Kind.ATTACH]
    inodes = {each.inode for each in written}
    if len(inodes) > 1:
        raise Undecided("the disk's write log is of more than one file", where=str(folder / LOG_NAME))
    base = BaseFile.kept(CONTENT, next(iter(inodes), 0), folder / BASE_NAME)
    return Disk([base], {"": 0}, written)


def log_faults(folder: Path, content: Path, shared: Path) -> list[str]:
    """Why the disk's log must not be believed: what the recorder could not see, and that the log, replayed,
    is not what the disk holds in the end. ``shared`` takes a copy of it."""
    log = WriteLog.read(folder / LOG_NAME)
    faults = [f"disk: the recorder saw {times} x {what}" for what, times in log.unsupported.items()]
    try:
        [file] = disk_of(folder).files
    except Undecided as error:
        return [*faults, f"disk: {error}"]
    replayed = shared / "replayed"
    copy_sparse(folder / BASE_NAME, replayed)
    ended = tuple(Surviving(change) for change in file.changes if change.end is not None)
    FileImage(file, ended).write_to(replayed)
    if not same_content(replayed, content):
        faults.append("disk: its write log, replayed, is not what the disk holds")
    replayed.unlink()
    return faults
