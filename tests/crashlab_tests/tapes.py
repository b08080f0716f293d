"""Write logs made by hand: operations with positions given in the order in which they are told."""

from __future__ import annotations

from crashlab.recording.write_log import Kind, Operation
from crashlab.states.disk import SYNC_OF_A_FOLDER, WRITE_IS_ITS_OWN_SYNC, BaseFile, Disk

MILLISECOND = 1_000_000
FOLDERS_FROM = 5_000
"""The inode of the first folder of a base; the others follow."""


class Tape:
    """Collects operations. Each takes two positions, its begin and its end; position p is at p ms."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.position = 0

    def disk(self, *base: BaseFile, folders: tuple[str, ...] = ("db",)) -> Disk:
        inodes = {path: FOLDERS_FROM + number for number, path in enumerate(folders)}
        return Disk(base, inodes, sorted(self.operations, key=lambda operation: operation.begin))

    def begin(self) -> int:
        self.position += 1
        return self.position

    def add(
        self,
        kind: Kind,
        inode: int = 0,
        *,
        at: tuple[int, int | None] | None = None,
        answered: bool = True,
        result: int | None = None,
        a: int = 0,
        b: int = 0,
        flags: int = 0,
        data: bytes = b"",
        path: str = "",
        new_path: str = "",
    ) -> Operation:
        """One operation; ``at`` gives its begin and end where it overlaps others."""
        if at is None:
            first = self.begin()
            at = (first, self.begin() if answered else None)
        begin, end = at
        if end is not None and result is None:
            result = len(data) if kind is Kind.WRITE else 0
        operation = Operation(
            begin=begin,
            end=end,
            begin_ns=begin * MILLISECOND,
            end_ns=None if end is None else end * MILLISECOND,
            pid=1,
            tid=1,
            kind=kind,
            inode=inode,
            a=a,
            b=b,
            flags=flags,
            result=result if end is not None else None,
            data=data,
            path=path,
            new_path=new_path,
        )
        self.operations.append(operation)
        self.position = max(self.position, begin, end or 0)
        return operation

    def create(self, path: str, inode: int) -> Operation:
        return self.add(Kind.CREATE, inode, path=path)

    def write(self, inode: int, offset: int, data: bytes, *, own_sync: bool = False) -> Operation:
        return self.add(
            Kind.WRITE, inode, a=offset, data=data, flags=WRITE_IS_ITS_OWN_SYNC if own_sync else 0
        )

    def truncate(self, inode: int, size: int) -> Operation:
        return self.add(Kind.TRUNCATE, inode, a=size)

    def rename(self, path: str, new_path: str, inode: int) -> Operation:
        return self.add(Kind.RENAME, inode, path=path, new_path=new_path)

    def unlink(self, path: str, inode: int) -> Operation:
        return self.add(Kind.UNLINK, inode, path=path)

    def fsync(self, inode: int) -> Operation:
        return self.add(Kind.FSYNC, inode)

    def fdatasync(self, inode: int) -> Operation:
        return self.add(Kind.FDATASYNC, inode)

    def fsync_folder(self, inode: int = 999) -> Operation:
        return self.add(Kind.FSYNC, inode, flags=SYNC_OF_A_FOLDER)
