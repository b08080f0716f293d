"""The catalogue of the RocksDB that is installed here, shipped or not."""

from __future__ import annotations

import functools

from knobs.rocksdb import library, snapshot
from knobs.rocksdb.catalogue import RocksdbCatalogue, load, versions


@functools.cache
def load_installed() -> RocksdbCatalogue:
    """The shipped catalogue of the installed version; where none ships, one made from library and headers.

    Making one takes some seconds. Raises MachineLacks where the native tool or the headers are missing,
    Undecided if library and headers disagree.
    """
    version: str = library.options()["version"]
    if version in versions():
        return load(version)
    return RocksdbCatalogue(snapshot.generate())
