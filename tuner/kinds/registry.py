"""Engines and workload families by name; an engine's module is loaded only when it is chosen."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import cast

from knobs.errors import InvalidInput
from tuner.kinds.family import Family
from tuner.kinds.kind import Kind
from workloads import registry

KINDS: Mapping[str, str] = {"rocksdb": "tuner.kinds.rocksdb", "postgresql": "tuner.kinds.postgresql"}
"""Engine -> module with ``KIND``."""
FAMILIES: Mapping[str, str] = {"ycsb": "tuner.kinds.ycsb", "pgbench": "tuner.kinds.pgbench"}
"""Word before a workload's colon -> module that is a Family."""


def kind(engine: str) -> Kind:
    """The engine of this name. Raises InvalidInput for any other."""
    if engine not in KINDS:
        raise InvalidInput(f"'{engine}' is no engine", where="ENGINE", hint=f"use {' or '.join(KINDS)}")
    found: Kind = importlib.import_module(KINDS[engine]).KIND
    return found


def family(workload: str) -> Family:
    """The family of a workload's name, which is known."""
    return cast("Family", importlib.import_module(FAMILIES[family_word(workload)]))


def family_word(workload: str) -> str:
    """The word before the colon. Raises InvalidInput where it is none that is known."""
    word = workload.partition(":")[0]
    if word not in FAMILIES:
        registry.find(workload)  # says what there is
    return word
