"""Proposed against effective: what RocksDB made of the settings that it was given.

RocksDB changes some options when it opens a database and says nothing (recycle_log_file_num under
most WAL recovery modes, for one). A difference is a finding, never silent.
"""

from __future__ import annotations

from collections.abc import Mapping

from knobs.catalogue import Catalogue, Settings
from knobs.errors import InvalidInput
from knobs.finding import Finding
from knobs.rocksdb import options_file

_OUTSIDE_THE_FILE = ("WriteOptions.", "Application.")


def effective_settings(text: str, column_family: str) -> Settings:
    """The settings in force, read from the OPTIONS text that the open database printed."""
    return options_file.parse(text, "effective options").settings(column_family)


def differences(
    catalogue: Catalogue, proposed: Mapping[str, str], effective: Mapping[str, str]
) -> list[Finding]:
    """A finding for each proposed setting that is not in force as proposed.

    WriteOptions and the application's own calls are no part of an open database and are not compared.
    """
    return [
        Finding(
            rule="not-in-force",
            setting=name,
            value=value,
            failure="",
            loss="nothing",
            why=f"RocksDB has {effective.get(name, 'no value')} in force",
            source="read back from the open database",
        )
        for name, value in sorted(proposed.items())
        if not name.startswith(_OUTSIDE_THE_FILE) and not _same(catalogue, name, value, effective.get(name))
    ]


def _same(catalogue: Catalogue, name: str, proposed: str, effective: str | None) -> bool:
    if effective is None:
        return False
    try:
        return catalogue.normalise(name, proposed) == catalogue.normalise(name, effective)
    except InvalidInput:
        # An object that RocksDB prints in a form which it does not read back (a block cache, say).
        return proposed == effective
