"""What is crashed: one engine with one configuration, driven by one workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engines.engine import Engine
from workloads.workload import Workload


@dataclass(frozen=True)
class Subject:
    """One configuration under one workload, which must know the engine's launches.

    ``settings`` lie over what the engine's own files state, under full names. ``threads`` are the clients
    of the load.
    """

    engine: Engine
    workload: Workload[Any]
    settings: Mapping[str, str] = field(default_factory=dict)
    threads: int = 16

    def launch(self, folder: Path) -> Any:
        """Write the configuration into an existing folder; the database will be in ``folder/db``."""
        return self.engine.launch(self.settings, folder)

    def with_settings(self, settings: Mapping[str, str]) -> Subject:
        """The same subject with other settings."""
        return replace(self, settings=dict(settings))
