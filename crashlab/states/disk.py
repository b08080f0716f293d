"""What the disk's history allows: the recorded operations as files and names, and images of them.

A `Disk` is the base folder plus everything that the write log holds. An `Image` is one content
that a crash may leave; the crash models (crashlab/models) choose it, this file only knows how
operations change bytes and names.

Promised: with everything surviving, the image equals the live folder byte for byte
(crashlab/recording/check.py holds it to that). Files are identified by inode and generation, because a
file system reuses an inode number as soon as its file is gone. Not covered: hard-linked folders,
symbolic links, and operations on files outside the recorded root, which the recorder leaves out.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from crashlab.recording.write_log import Kind, Operation

WRITE_IS_ITS_OWN_SYNC = 1
SYNC_OF_A_FOLDER = 2
FALLOC_KEEP_SIZE = 1

SYNCS = frozenset({Kind.FSYNC, Kind.FDATASYNC})
SYNCS_OF_EVERYTHING = frozenset({Kind.SYNCFS})
NAME_CHANGES = frozenset({Kind.CREATE, Kind.RENAME, Kind.LINK, Kind.UNLINK, Kind.MKDIR, Kind.RMDIR})
CONTENT_CHANGES = frozenset({Kind.WRITE, Kind.TRUNCATE, Kind.FALLOCATE})
WRITE_BACK_ERRORS = frozenset({errno.EIO, errno.ENOSPC, errno.EDQUOT})
"""By which a sync says that something could not be written (fsync(2)); by others that it was not tried."""


@dataclass(frozen=True)
class BaseFile:
    """A file of the base: its path below the root, its inode in the live folder, where its bytes are kept,
    and how many they are."""

    path: str
    inode: int
    content: Path
    size: int

    @staticmethod
    def kept(path: str, inode: int, content: Path) -> BaseFile:
        """One whose bytes are kept in this file, which is asked for its size here, once."""
        return BaseFile(path, inode, content, content.stat().st_size)


@dataclass(eq=False)
class File:
    """One file's life: its base content and the operations on it, in order of their begin.

    ``grew`` holds the operations that made the file or changed its size or allocation: what an
    fdatasync after them has metadata to commit for. ``resizing_truncations`` holds
    the begins of the truncations among them, which the file system journals with its names. ``failed_syncs``
    are those whose write-back failed (lost.py); they are not among ``syncs``.
    """

    number: int
    inode: int
    base: BaseFile | None
    changes: list[Operation] = field(default_factory=list)
    syncs: list[Operation] = field(default_factory=list)
    failed_syncs: list[Operation] = field(default_factory=list)
    grew: list[Operation] = field(default_factory=list)
    resizing_truncations: set[int] = field(default_factory=set)
    live_size: int = 0

    def base_bytes(self) -> bytes:
        return self.base.content.read_bytes() if self.base else b""


@dataclass(frozen=True)
class NameChange:
    """One change of the namespace, and the file it is about (None for folders)."""

    operation: Operation
    file: File | None


class Disk:
    """The base and the log, resolved into files and names.

    ``names_at_start`` maps paths to files; ``name_changes`` is every change of the namespace in
    order; ``syncs`` every completed sync of any kind in order of its begin; ``folder_syncs`` those of each
    folder, by its path ("": the recorded root).
    """

    def __init__(
        self,
        base: Iterable[BaseFile],
        folders: Mapping[str, int],
        operations: Sequence[Operation],
        role: Callable[[str], str] = lambda _: "",
    ) -> None:
        """``folders`` are the base's, with their inodes in the live folder; ``role`` says what a file is
        for, by its path."""
        self.files: list[File] = []
        self.names_at_start: dict[str, File] = {}
        self.folders_at_start = frozenset(folders) - {""}
        self.name_changes: list[NameChange] = []
        self.syncs: list[Operation] = []
        self.folder_syncs: dict[str, list[Operation]] = {}
        self.operations = operations
        self._role = role
        self._current: dict[int, File] = {}
        self._owner: dict[int, File] = {}
        self._folders = {inode: path for path, inode in folders.items()}
        for entry in base:
            file = self._new_file(entry.inode, entry)
            file.live_size = entry.size
            self.names_at_start[entry.path] = file
        for operation in operations:
            self._take_in(operation)

    @property
    def last_position(self) -> int:
        """The largest position that the log holds."""
        return max((max(o.begin, o.end or 0) for o in self.operations), default=0)

    def file_of(self, operation: Operation) -> File | None:
        """The file that a content change or sync was about, a failed one too."""
        return self._owner.get(operation.begin)

    @cached_property
    def paths(self) -> dict[int, str]:
        """The last path of every file that ever had one, by its number."""
        paths = {file.number: path for path, file in self.names_at_start.items()}
        for change in self.name_changes:
            if change.file is not None:
                paths[change.file.number] = change.operation.new_path or change.operation.path
        return paths

    def class_of(self, file: File) -> str:
        """What the file is for, under the last name that it had; "" for one that nobody knows."""
        return self._classes.get(file.number, "")

    @cached_property
    def _classes(self) -> dict[int, str]:
        return {number: self._role(path) for number, path in self.paths.items()}

    def _new_file(self, inode: int, base: BaseFile | None) -> File:
        file = File(len(self.files), inode, base)
        self.files.append(file)
        self._current[inode] = file
        return file

    def _take_in(self, operation: Operation) -> None:
        if failed(operation):
            self._take_failure(operation)
            return
        kind = operation.kind
        if kind in NAME_CHANGES:
            self._take_name_change(operation)
        elif kind in CONTENT_CHANGES:
            self._take_content_change(operation)
        elif kind in SYNCS or kind in SYNCS_OF_EVERYTHING or kind is Kind.MSYNC:
            if operation.end is not None:
                self.syncs.append(operation)
            file = self._current.get(operation.inode)
            if file is not None and kind in SYNCS and not operation.flags & SYNC_OF_A_FOLDER:
                file.syncs.append(operation)
                self._owner[operation.begin] = file
            folder = self._folders.get(operation.inode)
            if folder is not None and operation.flags & SYNC_OF_A_FOLDER and operation.end is not None:
                self.folder_syncs.setdefault(folder, []).append(operation)

    def _take_failure(self, operation: Operation) -> None:
        file = self._current.get(operation.inode)
        if file is None or operation.flags & SYNC_OF_A_FOLDER or operation.kind not in SYNCS | {Kind.WRITE}:
            return
        self._owner[operation.begin] = file
        if operation.kind in SYNCS and -(operation.result or 0) in WRITE_BACK_ERRORS:
            file.failed_syncs.append(operation)

    def _take_name_change(self, operation: Operation) -> None:
        if operation.kind is Kind.CREATE:
            file: File | None = self._new_file(operation.inode, None)
            self.files[-1].grew.append(operation)
        else:
            file = self._current.get(operation.inode)
        self.name_changes.append(NameChange(operation, file))
        if operation.kind is Kind.MKDIR:
            self._folders[operation.inode] = operation.path
        elif operation.kind is Kind.RENAME and operation.inode in self._folders:
            old, new = operation.path, operation.new_path
            self._folders = {
                inode: new + path[len(old) :] if f"{path}/".startswith(f"{old}/") else path
                for inode, path in self._folders.items()
            }

    def _take_content_change(self, operation: Operation) -> None:
        file = self._current.get(operation.inode) or self._new_file(operation.inode, None)
        file.changes.append(operation)
        self._owner[operation.begin] = file
        size = size_after(file.live_size, operation)
        if size != file.live_size or operation.kind is Kind.FALLOCATE:
            file.grew.append(operation)
        if size != file.live_size and operation.kind is Kind.TRUNCATE:
            file.resizing_truncations.add(operation.begin)
        file.live_size = size


def is_its_own_sync(operation: Operation) -> bool:
    """Whether a write was durable when it ended (O_SYNC, O_DSYNC); in other kinds the flag is another."""
    return operation.kind is Kind.WRITE and bool(operation.flags & WRITE_IS_ITS_OWN_SYNC)


def failed(operation: Operation) -> bool:
    """Whether the call returned an error, so that it changed nothing (what a failed sync loses: lost.py)."""
    return operation.result is not None and operation.result < 0


def size_after(size: int, operation: Operation) -> int:
    """A file's size after one more content change."""
    if operation.kind is Kind.WRITE:
        return max(size, operation.a + written_bytes(operation))
    if operation.kind is Kind.TRUNCATE:
        return operation.a
    if operation.kind is Kind.FALLOCATE and not operation.flags & FALLOC_KEEP_SIZE:
        return max(size, operation.a + operation.b)
    return size


def written_bytes(operation: Operation) -> int:
    """How many bytes a write wrote; all it was given while its result is not known."""
    return len(operation.data) if operation.result is None else int(operation.result)


@dataclass(frozen=True)
class Surviving:
    """One content change that survives: wholly, or of a write only some ranges of the file.

    A range has a begin and an end, as offsets in the file.
    """

    operation: Operation
    ranges: tuple[tuple[int, int], ...] | None = None


def written_ranges(survivor: Surviving) -> tuple[tuple[int, int], ...]:
    """Which ranges of the file a surviving write wrote."""
    operation = survivor.operation
    whole = ((operation.a, operation.a + written_bytes(operation)),)
    return whole if survivor.ranges is None else survivor.ranges


@dataclass(frozen=True)
class FileImage:
    """What one file holds after a crash: which changes survive, applied in order to its base.

    ``size``, where it is not what the survivors give: growth that was not committed is cut off, or its bytes
    are lost and zeros stand there.
    """

    file: File
    survivors: tuple[Surviving, ...]
    size: int | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for equal content: the same changes to the same file."""
        return (self.file.number, self.size, *((s.operation.begin, s.ranges) for s in self.survivors))

    @property
    def untouched(self) -> bool:
        """Whether the content is the base's own."""
        return self.file.base is not None and not self.survivors and self.size is None

    def content(self) -> bytes:
        content = apply(self.file.base_bytes(), self.survivors)
        return content if self.size is None else content[: self.size].ljust(self.size, b"\0")

    def write_to(self, path: Path) -> None:
        """Make ``path`` a file with this content, which may be there already as a copy of the base's."""
        if self.file.base is not None and not path.exists():
            shutil.copyfile(self.file.base.content, path)
        size = self.file.base.size if self.file.base is not None else 0
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for survivor in self.survivors:
                operation = survivor.operation
                if operation.kind is Kind.WRITE:
                    for begin, end in written_ranges(survivor):
                        _write_whole(
                            descriptor, operation.data[begin - operation.a : end - operation.a], begin
                        )
                        size = max(size, end)
                else:
                    size = size_after(size, operation)
                    os.truncate(descriptor, size)
            if self.size is not None:
                os.truncate(descriptor, self.size)
        finally:
            os.close(descriptor)


@dataclass(frozen=True)
class Image:
    """One content of the disk: folders, and files by path."""

    folders: frozenset[str]
    files: dict[str, FileImage]

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for equal content, so that one content is judged once."""
        return (
            tuple(sorted(self.folders)),
            tuple(sorted((path, image.identity) for path, image in self.files.items())),
        )


def build_image(
    disk: Disk,
    keeps_name: Callable[[NameChange], bool],
    survivors: Callable[[File], tuple[Surviving, ...]],
    size: Callable[[File, tuple[Surviving, ...]], int | None] = lambda *_: None,
) -> Image:
    """The image in which the chosen changes of names and contents survive, of the size where one is given.

    What lies in a folder that did not survive is gone with it.
    """
    names = dict(disk.names_at_start)
    folders = set(disk.folders_at_start)
    for change in disk.name_changes:
        if keeps_name(change):
            _rename_in(names, folders, change)
    folders = {folder for folder in folders if _parents(folder) <= folders}
    names = {path: file for path, file in names.items() if _parents(path) <= folders}
    images: dict[int, FileImage] = {}
    for file in names.values():
        if file.number not in images:
            surviving = survivors(file)
            images[file.number] = FileImage(file, surviving, size(file, surviving))
    return Image(frozenset(folders), {path: images[file.number] for path, file in names.items()})


def _parents(path: str) -> set[str]:
    return {parent.as_posix() for parent in PurePosixPath(path).parents} - {"."}


def _rename_in(names: dict[str, File], folders: set[str], change: NameChange) -> None:
    operation = change.operation
    if operation.kind is Kind.MKDIR:
        folders.add(operation.path)
    elif operation.kind is Kind.RMDIR:
        folders.discard(operation.path)
    elif operation.kind is Kind.UNLINK:
        names.pop(operation.path, None)
    elif operation.kind is Kind.RENAME and operation.path in folders:
        _rename_folder(names, folders, operation)
    elif operation.kind is Kind.RENAME and operation.a and operation.a == operation.inode:
        return  # rename(2): two names of one file stay as they are
    elif operation.kind is Kind.RENAME:
        moved = names.pop(operation.path, change.file)
        if moved is not None:
            names[operation.new_path] = moved
    elif change.file is not None:
        names[operation.new_path or operation.path] = change.file


def _rename_folder(names: dict[str, File], folders: set[str], operation: Operation) -> None:
    old, new = operation.path + "/", operation.new_path + "/"
    for path in [path for path in names if path.startswith(old)]:
        names[new + path[len(old) :]] = names.pop(path)
    for path in [path for path in folders if (path + "/").startswith(old)]:
        folders.discard(path)
        folders.add((new + path[len(old) :]).rstrip("/"))


def apply(base: bytes, survivors: Sequence[Surviving]) -> bytes:
    """The content that surviving changes make of a base, applied in order."""
    if not survivors:
        return base
    content = bytearray(base)
    for survivor in survivors:
        operation = survivor.operation
        if operation.kind is Kind.WRITE:
            for begin, end in written_ranges(survivor):
                content.extend(bytes(max(0, begin - len(content))))
                content[begin:end] = operation.data[begin - operation.a : end - operation.a]
        elif operation.kind is Kind.TRUNCATE:
            _resize(content, operation.a)
        else:
            _resize(content, size_after(len(content), operation))
    return bytes(content)


def _write_whole(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """All of it: pwrite(2) may stop short, such as before the end of a disk that is full."""
    while len(data):
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
