"""Where the native programs and libraries of this installation are.

They are built by CMake and installed beside the Python packages, in ``duratune_native/``. An editable
install keeps them in site-packages while the sources stay in the checkout, so neither ``__file__`` nor
importlib.resources finds them; the distribution's own list of files does.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from knobs.errors import MachineLacks

FOLDER_VARIABLE = "DURATUNE_NATIVE_DIR"


@dataclass(frozen=True)
class NativePart:
    """One built file: what it is for, and the Debian packages without which it is not built."""

    name: str
    purpose: str
    packages: tuple[str, ...]


_BUILD = ("g++", "cmake", "make", "pkg-config")

PARTS = {
    part.name: part
    for part in (
        NativePart("duratune-ycsb", "drives RocksDB", (*_BUILD, "librocksdb-dev", "libxxhash-dev")),
        NativePart("duratune-rocksdb-options", "reads the options of RocksDB", (*_BUILD, "librocksdb-dev")),
        NativePart("libduratune_record.so", "records writes and syncs", ("gcc", "cmake", "make")),
        NativePart("duratune-canary", "checks the recorder", ("gcc", "cmake", "make")),
    )
}


def find(name: str) -> Path:
    """The built file ``name``: from the folder in DURATUNE_NATIVE_DIR if that is set, else from this
    installation.

    Raises MachineLacks: where the variable is set and the folder does not hold the file, since another
    build than the named one would be a silent stand-in; else, with the Debian packages that building it
    needs, where it was not installed.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        return _from_folder(Path(folder), name)
    installed = _installed().get(name)
    if installed is not None and installed.is_file():
        return installed
    raise _lacks(name)


def _from_folder(folder: Path, name: str) -> Path:
    if (folder / name).is_file():
        return (folder / name).resolve()
    raise MachineLacks(
        f"the folder does not hold {name}" if folder.is_dir() else "there is no such folder",
        where=f"{FOLDER_VARIABLE}={folder}",
        hint=f"name the folder that holds the built native parts, or unset {FOLDER_VARIABLE}",
    )


def missing() -> list[NativePart]:
    """The known parts that `find` does not find."""
    absent = []
    for name, part in PARTS.items():
        try:
            find(name)
        except MachineLacks:
            absent.append(part)
    return absent


@functools.cache
def _installed() -> dict[str, Path]:
    try:
        files = importlib.metadata.files("duratune") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    return {file.name: Path(str(file.locate())) for file in files if "duratune_native" in file.parts}


def _lacks(name: str) -> MachineLacks:
    part = PARTS.get(name)
    packages = " ".join(part.packages) if part else "g++ cmake make pkg-config"
    purpose = f", which {part.purpose}," if part else ""
    return MachineLacks(
        f"{name}{purpose} was not built with this installation",
        where="duratune_native",
        hint=f"apt-get install {packages}, then install duratune again (in a checkout: make)",
    )


def main() -> int:
    """List the parts that are missing; exit code 3 if there are any. Used by the Makefile."""
    absent = missing()
    for part in absent:
        sys.stderr.write(f"missing: {part.name} ({part.purpose}; needs {' '.join(part.packages)})\n")
    return MachineLacks.exit_code if absent else 0


if __name__ == "__main__":
    sys.exit(main())
