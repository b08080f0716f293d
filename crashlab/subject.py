"""What is crashed: one engine with one configuration, driven by one workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from engines.rocksdb.engine import RocksdbEngine
from engines.rocksdb.launch import RocksdbLaunch
from knobs.rocksdb.options_file import OptionsFile
from workloads.ycsb.workload import YcsbWorkload


@dataclass(frozen=True)
class Subject:
    """One configuration under one workload.

    ``base`` is the user's OPTIONS file or the engine's defaults, ``settings`` lie over it under full
    names. ``threads`` are the clients of the load.
    """

    engine: RocksdbEngine
    workload: YcsbWorkload
    base: OptionsFile
    settings: Mapping[str, str] = field(default_factory=dict)
    column_family: str = "default"
    threads: int = 16

    def launch(self, folder: Path) -> RocksdbLaunch:
        """Write the configuration into an existing folder; the database will be in ``folder/db``."""
        return self.engine.launch(self.base, self.settings, folder, self.column_family)

    def with_settings(self, settings: Mapping[str, str]) -> Subject:
        """The same subject with other settings over its base."""
        return replace(self, settings=dict(settings))
