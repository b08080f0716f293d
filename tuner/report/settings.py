"""Settings on one line: what differs from the defaults, because a configuration file may state everything."""

from __future__ import annotations

from collections.abc import Mapping

from knobs.errors import InvalidInput
from tuner.request import Request

SHOWN_MAX = 16


def in_short(request: Request, settings: Mapping[str, str]) -> str:
    """The settings that differ from the defaults; how many more there are, and how many are defaults."""
    differing = [
        f"{name}={request.catalogue.spelled(name, value)}"
        for name, value in settings.items()
        if _differs(request, name, value)
    ]
    defaults = f"{request.kind.title}'s defaults"
    if not settings:
        return defaults
    shown = " ".join(differing[:SHOWN_MAX]) or defaults
    more = f" and {len(differing) - SHOWN_MAX} more" if len(differing) > SHOWN_MAX else ""
    stated = len(settings) - len(differing)
    others = (
        "1 other is stated and is a default"
        if stated == 1
        else f"{stated} others are stated and are defaults"
    )
    return shown + more + (f" ({others})" if stated else "")


def _differs(request: Request, name: str, value: str) -> bool:
    default = request.catalogue.knob(name).default
    try:
        return request.catalogue.normalise(name, value) != request.catalogue.normalise(name, default)
    except InvalidInput:
        # A default that the engine prints in a form which it does not read.
        return value != default
