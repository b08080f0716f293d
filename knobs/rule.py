"""A combination of settings that an engine refuses, or takes and cannot serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

# Every setting under its full name, normalised, defaults included.
InForce = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Rule:
    """A combination that fails at open (or at the server's start), at the first write, or later, when
    something needs it.

    ``hang``: the first write never returns.
    """

    id: str
    names: tuple[str, ...]
    is_broken: Callable[[InForce], bool]
    message: str
    source: str
    fails_at: Literal["open", "write", "hang", "later"] = "open"
