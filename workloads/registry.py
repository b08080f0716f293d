"""The workloads by name: ``ycsb:a`` to ``ycsb:f``, ``ycsb:FILE``, ``pgbench:tpcb-like`` and other scripts.

A new workload is a folder and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engines.process import Watcher
from knobs.errors import InvalidInput
from workloads.pgbench.options import BUILTINS, PgbenchOptions
from workloads.pgbench.workload import PgbenchWorkload
from workloads.workload import Workload
from workloads.ycsb import properties
from workloads.ycsb.workload import YcsbWorkload

Factory = Callable[[str, "Watcher | None"], "Workload[Any]"]


def find(name: str, watcher: Watcher | None = None) -> Workload[Any]:
    """The workload of this name. Raises InvalidInput for an unknown one, and with every fault of a file."""
    family, colon, rest = name.partition(":")
    if not colon or not rest or family not in FAMILIES:
        raise InvalidInput(
            f"'{name}' is no workload",
            where="--workload",
            hint="use ycsb:a to ycsb:f, ycsb:FILE with a properties file, pgbench:tpcb-like, "
            "pgbench:simple-update, pgbench:select-only, or pgbench:FILE.sql",
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


def _pgbench(rest: str, watcher: Watcher | None) -> Workload[Any]:
    if rest in BUILTINS:
        return PgbenchWorkload(f"pgbench:{rest}", PgbenchOptions(), watcher)
    path = Path(rest)
    try:
        script = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidInput(
            f"pgbench has no script '{rest}', and there is no such file",
            where="--workload",
            hint=f"pgbench's own are {', '.join(BUILTINS)}",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the script cannot be read: {error}", where=str(path)) from error
    if not script.strip():
        raise InvalidInput("the script is empty", where=str(path), hint="it needs SQL commands")
    return PgbenchWorkload(f"pgbench:{rest}", PgbenchOptions(script=script), watcher)


FAMILIES: Mapping[str, Factory] = {"ycsb": _ycsb, "pgbench": _pgbench}
