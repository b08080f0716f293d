"""The lives of files under their names: a log that is recycled by a rename begins another life.

An engine's log is its name and not its inode. What a file held under an earlier name is no part of the
log that it is now, although the bytes are still there until they are written over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import Disk, File, Surviving, apply

NEVER_ENDS = 2**63 - 1


@dataclass(frozen=True)
class Life:
    """One file under one name, from the change of names that gave it until the one that took it.

    The first life of each file has the file's number, and the others come after them all. ``begin`` 0
    is a name that the base had.
    """

    number: int
    file: File
    path: str
    begin: int
    end: int = NEVER_ENDS

    @property
    def is_of_base(self) -> bool:
        """Whether the base's content is a part of it."""
        return self.begin == 0 and self.file.base is not None

    @property
    def changes(self) -> Iterator[Operation]:
        """What was done to the content in this life, in order of its begin."""
        return (change for change in self.file.changes if self.begin <= change.begin < self.end)

    @cached_property
    def final_content(self) -> bytes:
        """What the file held at the end of this life, bytes of earlier ones included."""
        return apply(
            self.file.base_bytes(),
            [Surviving(change) for change in self.file.changes if change.begin < self.end],
        )


def lives(disk: Disk) -> dict[int, Life]:
    """Every life of every file that ever had a name, by number."""
    found: dict[int, Life] = {}
    now: dict[str, int] = {}

    def begin(path: str, file: File, at: int) -> None:
        end(path, at)
        number = file.number if file.number not in found else max(len(disk.files), max(found) + 1)
        found[number] = Life(number, file, path, at)
        now[path] = number

    def end(path: str, at: int) -> None:
        number = now.pop(path, None)
        if number is not None:
            life = found[number]
            found[number] = Life(number, life.file, path, life.begin, at)

    for path, file in disk.names_at_start.items():
        begin(path, file, 0)
    for change in disk.name_changes:
        operation, at = change.operation, change.operation.begin
        if operation.kind in (Kind.UNLINK, Kind.RENAME):
            end(operation.path, at)
        if operation.kind in (Kind.CREATE, Kind.LINK, Kind.RENAME) and change.file is not None:
            begin(operation.new_path or operation.path, change.file, at)
    return found
