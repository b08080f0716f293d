"""How many of something, in words."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """`1 state`, `2 states`."""
    return f"{count} {what}{'' if count == 1 else 's'}"
