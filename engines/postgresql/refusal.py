"""Why there is no running server: it refuses to start, or something has ended it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engines.postgresql.server_log import Cause
from knobs.errors import InvalidInput, Undecided

_HINTS: Mapping[Cause, str] = {
    "settings": "change the setting that the server names",
    "memory": "lower shared_buffers or what else is named, or give the machine more memory",
    "in-use": "stop the other server",
    "data": "the server cannot read what is in its data folder",
    "killed": "something outside ended it",
}


class StartRefused(InvalidInput):
    """The server does not start: ``cause`` is the kind of reason, ``lines`` tell it (its log's, mostly)."""

    def __init__(self, cause: Cause, lines: Sequence[str], where: str, hint: str = "") -> None:
        said = "; ".join(lines) or "its log says nothing"
        super().__init__(f"the server does not start: {said}", where=where, hint=hint or _HINTS[cause])
        self.cause = cause
        self.lines = tuple(lines)


class ServerDied(Undecided):
    """The server, or one of its processes, was ended by something else than duratune."""
