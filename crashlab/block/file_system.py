"""The file systems that a virtual disk may have, and how one is made and mounted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engines.mounting import run
from knobs.errors import MachineLacks, Undecided


@dataclass(frozen=True)
class FileSystemKind:
    """One kind: the program that makes it, with options that leave nothing for a later time, the package that
    has the program, and the least size (mkfs.ext4(8), mkfs.xfs(8), mkfs.btrfs(8)).

    ``copied`` is the mount option without which two copies of one cannot be mounted at a time (xfs(5));
    ``kernel_min`` the oldest kernel on which they can be.
    """

    name: str
    command: Sequence[str]
    package: str
    bytes_min: int
    copied: str = ""
    kernel_min: tuple[int, int] = (0, 0)

    def mount_options(self, wanted: str) -> str:
        """The options that the user wants, and what a copy needs."""
        return ",".join(filter(None, (wanted, self.copied)))

    def make(self, file: Path, size: int) -> None:
        """Make an empty one in a new sparse file. Raises MachineLacks where its program is not there."""
        with file.open("xb") as made:
            made.truncate(max(size, self.bytes_min))
        said = run([*self.command, str(file)])
        if said is not None:
            raise Undecided(f"no {self.name} can be made: {said}", where=str(file))

    @property
    def lacking_program(self) -> MachineLacks | None:
        """That its program is not there; None where it is."""
        if shutil.which(self.command[0]) is not None:
            return None
        return MachineLacks(
            f"{self.command[0]} is not installed",
            where=f"--file-system {self.name}",
            hint=f"apt-get install {self.package}",
        )

    @property
    def is_known_to_kernel(self) -> bool:
        """Whether the running kernel has it, or can load it (filesystems(5))."""
        known = Path("/proc/filesystems").read_text(encoding="ascii").split()
        return self.name in known or any(_modules().glob(f"kernel/fs/{self.name}/*"))


def _modules() -> Path:
    return Path("/lib/modules") / os.uname().release


_JOURNAL_MIB = 64

FILE_SYSTEMS: Mapping[str, FileSystemKind] = {
    kind.name: kind
    for kind in (
        FileSystemKind(
            "ext4",
            [
                "mkfs.ext4", "-q", "-F", "-J", f"size={_JOURNAL_MIB}",
                "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
            ],
            "e2fsprogs",
            256 << 20,
        ),
        FileSystemKind("xfs", ["mkfs.xfs", "-q", "-f", "-K"], "xfsprogs", 512 << 20, copied="nouuid"),
        # Older ones take two copies of a file system for two devices of one (btrfs: temp-fsid).
        FileSystemKind(
            "btrfs", ["mkfs.btrfs", "-q", "-f", "-K"], "btrfs-progs", 512 << 20, kernel_min=(6, 7)
        ),
    )
}  # fmt: skip
