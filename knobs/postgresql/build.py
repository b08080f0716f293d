"""What an installed server was built with.

Some choices of a setting exist only in servers that were configured with a library (manual, "Installation
from Source Code": --with-lz4, --with-zstd, --with-liburing). The shipped catalogue has them all, because a
configuration may be meant for another server; what is run here is asked whether it takes them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from knobs.postgresql import server
from knobs.postgresql.catalogue import PostgresqlCatalogue, load

BY_BUILD: Mapping[str, tuple[str, ...]] = {
    "wal_compression": ("lz4", "zstd"),
    "default_toast_compression": ("lz4",),
    "io_method": ("io_uring",),
}
_REFUSED = "invalid value for parameter"


@functools.cache
def installed(bindir: Path, version: str) -> PostgresqlCatalogue:
    """The catalogue of ``version``, without the choices that the server in ``bindir`` was not built with."""
    whole = load(version)
    lacking: dict[str, tuple[str, ...]] = {}
    for name, words in BY_BUILD.items():
        known = whole.knob(name).choices if whole.has(name) else ()
        refused = tuple(word for word in words if word in known and _refuses(bindir, name, word))
        lacking |= {name: refused} if refused else {}
    return whole.without(lacking)


def _refuses(bindir: Path, name: str, word: str) -> bool:
    """Whether it knows no such choice; a server that fails otherwise says why when it is started."""
    answer = server.ask(bindir, {name: word}, name)
    return answer.value is None and _REFUSED in answer.error
