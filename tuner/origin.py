"""The provenance of a result: duratune and the machine, and which engine, workload and settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engines.provenance import provenance
from tuner.request import Request


def origin(
    request: Request, data_folder: Path, *, recorder: str | None = None, models: Sequence[str] = ()
) -> dict[str, Any]:
    """A result's ``provenance``, as JSON values; call it when the work starts, since it holds the time.

    ``recorder`` and ``models`` are what the command uses of the lab, None and empty where it records
    nothing. The settings are those that it runs with: what a private instance does not take over is in the
    findings, with what was asked for. Raises OSError where the data folder's file system cannot be asked.
    """
    return {
        **provenance(data_folder, seed=request.seed),
        "engine": {
            "name": request.engine.name,
            "version": request.engine.version(),
            "package": request.kind.package,
        },
        "workload": {
            "name": request.workload.name,
            "clients": request.clients,
            **request.workload.parameters,
        },
        "recorder": recorder,
        "models": list(models),
        "config": list(request.sources),
        "settings": request.engine.taken(request.settings),
    }
