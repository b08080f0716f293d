"""A replay of the write log by other rules than the product's: apply what ended, in order, and look."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crashlab.recording.write_log import Kind, Operation

KEEP_SIZE = 1


@dataclass(frozen=True)
class Base:
    """What lay below the root before the run: names and contents by inode, and the folders."""

    names: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[int, bytes] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()

    @staticmethod
    def of(root: Path) -> Base:
        paths = [path for path in root.rglob("*") if not path.is_symlink()]
        files = {path: path.stat().st_ino for path in paths if path.is_file()}
        return Base(
            {path.relative_to(root).as_posix(): inode for path, inode in files.items()},
            {inode: path.read_bytes() for path, inode in files.items()},
            frozenset(path.relative_to(root).as_posix() for path in paths if path.is_dir()),
        )


class Replay:
    """Files by name after the operations; those with an operation open at the kill are `unsettled`."""

    def __init__(self, operations: Iterable[Operation], base: Base | None = None) -> None:
        base = base or Base()
        self._files = {inode: bytearray(content) for inode, content in base.files.items()}
        self.names = {name: self._files[inode] for name, inode in base.names.items()}
        self.folders = set(base.folders)
        self.unsettled: list[Operation] = []
        for operation in operations:
            if operation.result is None:
                self.unsettled.append(operation)
            elif operation.result >= 0:
                self._apply(operation)

    def _apply(self, o: Operation) -> None:
        kind = o.kind
        if kind is Kind.CREATE:
            self._files[o.inode] = self.names[o.path] = bytearray()
        elif kind is Kind.LINK:
            self.names[o.new_path] = self.names[o.path]
        elif kind is Kind.UNLINK:
            del self.names[o.path]
        elif kind is Kind.MKDIR:
            self.folders.add(o.path)
        elif kind is Kind.RMDIR:
            self.folders.remove(o.path)
        elif kind is Kind.RENAME:
            self._rename(o)
        elif kind in (Kind.WRITE, Kind.TRUNCATE, Kind.FALLOCATE):
            self._change(self._files[o.inode], o)

    def _rename(self, o: Operation) -> None:
        if o.path in self.folders:
            for folder in [f for f in self.folders if (f + "/").startswith(o.path + "/")]:
                self.folders.remove(folder)
                self.folders.add(o.new_path + folder[len(o.path) :])
            for name in [n for n in self.names if n.startswith(o.path + "/")]:
                self.names[o.new_path + name[len(o.path) :]] = self.names.pop(name)
        elif o.a != o.inode:  # rename(2): two names of one file stay as they are
            self.names[o.new_path] = self.names.pop(o.path)

    def _change(self, content: bytearray, o: Operation) -> None:
        size = len(content)
        if o.kind is Kind.WRITE:
            assert o.result is not None
            content.extend(bytes(max(0, o.a - size)) if o.result else b"")
            content[o.a : o.a + o.result] = o.data[: o.result]
        elif o.kind is Kind.TRUNCATE:
            del content[o.a :]
            content.extend(bytes(max(0, o.a - size)))
        elif not o.flags & KEEP_SIZE:
            content.extend(bytes(max(0, o.a + o.b - size)))

    def differences(self, root: Path, leave_out: Callable[[str], bool] = lambda _: False) -> list[str]:
        """Where the live folder is not what the replay says and no open operation explains it."""
        live = {
            path.relative_to(root).as_posix(): path
            for path in root.rglob("*")
            if path.is_file() and not path.is_symlink()
        }
        folders = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_dir()}
        folders -= {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_symlink()}
        open_names = {name for o in self.unsettled for name in (o.path, o.new_path)}
        open_inodes = {o.inode for o in self.unsettled}
        found = [f"folder {name}" for name in (folders ^ self.folders) - open_names]
        for name in sorted((set(live) | set(self.names)) - open_names):
            if leave_out(name):
                continue
            if name not in live or name not in self.names:
                found.append(f"{name}: only {'in the log' if name in self.names else 'live'}")
            elif live[name].read_bytes() != self.names[name]:
                if live[name].stat().st_ino in open_inodes and self._explained(live[name]):
                    continue
                found.append(f"{name}: content")
        return found

    def _explained(self, path: Path) -> bool:
        """Whether the open operations on this file, applied, make the live content."""
        inode = path.stat().st_ino
        content = bytearray(self._files[inode])
        for o in self.unsettled:
            if o.inode == inode and o.kind is Kind.WRITE:
                content.extend(bytes(max(0, o.a - len(content))))
                content[o.a : o.a + len(o.data)] = o.data
            elif o.inode == inode:
                self._change(content, o)
        live = path.read_bytes()
        # A kill between two pages leaves a write half done: a prefix of it.
        return live == content or bytes(content).startswith(live)
