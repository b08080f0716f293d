"""The workloads by name: ``ycsb:a`` to ``ycsb:f``, ``ycsb:FILE``.

A new workload is a folder and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from engines.process import Watcher
from knobs.errors import InvalidInput
from workloads.ycsb import properties
from workloads.ycsb.workload import YcsbWorkload

Factory = Callable[[str, "Watcher | None"], YcsbWorkload]


def find(name: str, watcher: Watcher | None = None) -> YcsbWorkload:
    """The workload of this name. Raises InvalidInput for an unknown one, and with every fault of a file."""
    family, colon, rest = name.partition(":")
    if not colon or not rest or family not in FAMILIES:
        raise InvalidInput(
            f"'{name}' is no workload",
            where="--workload",
            hint="use ycsb:a to ycsb:f, or ycsb:FILE with a properties file",
        )
    return FAMILIES[family](rest, watcher)


def _ycsb(rest: str, watcher: Watcher | None) -> YcsbWorkload:
    if rest in properties.CORE:
        return YcsbWorkload(f"ycsb:{rest}", properties.core(rest), watcher)
    path = Path(rest)
    if not path.is_file():
        raise InvalidInput(
            f"there is neither a core workload nor a file '{rest}'",
            where="--workload",
            hint="the core ones are a to f",
        )
    return YcsbWorkload(f"ycsb:{rest}", properties.read_file(path), watcher)


FAMILIES: Mapping[str, Factory] = {"ycsb": _ycsb}
