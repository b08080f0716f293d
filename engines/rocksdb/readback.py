"""What RocksDB has in force, read back from the open database."""

from __future__ import annotations

from knobs.catalogue import Settings
from knobs.rocksdb import options_file


def effective_settings(text: str, column_family: str) -> Settings:
    """The settings in force, read from the OPTIONS text that the open database printed."""
    return options_file.parse(text, "effective options").settings(column_family)
