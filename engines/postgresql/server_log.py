"""What the server says in its log, message by message, and why it did not start.

Every line is in English and begins with LINE_PREFIX, both set by duratune (configuration.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

LINE_PREFIX = "%m [%p] "

Cause = Literal["settings", "memory", "in-use", "data", "killed"]
"""Why a server did not start: its settings, memory that it cannot have, another server in its folder, what
it found in its data, or a signal from outside."""

LINES_MAX = 12
LOG_BYTES_MAX = 64 << 20

_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) \S+ \[(\d+)\] ([A-Z]+\d?):  (.*)")
_SEVERE = ("ERROR", "FATAL", "PANIC")
_BESIDE = ("DETAIL", "HINT")
_MEMORY = re.compile(
    r"shared memory|Cannot allocate memory|out of memory|huge page|semaphores", re.IGNORECASE
)
_IN_USE = re.compile(r"lock file .* already exists|shared memory block .* is still in use")
_SIGNALLED = re.compile(r"\((?:PID|pid) \d+\) was terminated by signal \d+")


@dataclass(frozen=True)
class Message:
    """One message. ``severity`` is PostgreSQL's, or "" for a line that came without one; ``at`` is when."""

    severity: str
    text: str
    pid: int = 0
    at: datetime | None = None

    def __str__(self) -> str:
        return f"{self.severity}:  {self.text}" if self.severity else self.text


def read(log: Path, offset: int = 0) -> list[Message]:
    """The messages behind byte ``offset``, at most 64 MiB of them. An absent log holds none."""
    try:
        with log.open("rb") as file:
            file.seek(offset)
            text = file.read(LOG_BYTES_MAX).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return parse(text)


def parse(text: str) -> list[Message]:
    """The messages in a log's text; an indented line continues the one before it."""
    found: list[Message] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match:
            found.append(Message(match[3], match[4], int(match[2]), datetime.fromisoformat(match[1])))
        elif line.startswith("\t") and found:
            last = found[-1]
            found[-1] = replace(last, text=f"{last.text}\n{line[1:]}")
        elif line.strip():
            found.append(Message("", line))
    return found


def faults(messages: Sequence[Message]) -> list[Message]:
    """The errors: ERROR, FATAL and PANIC, and what PostgreSQL or its loader printed without a prefix."""
    return [message for message in messages if message.severity in (*_SEVERE, "")]


def why(messages: Sequence[Message]) -> list[str]:
    """The lines that say why a server did not start, each with its DETAIL and HINT; the last 12.

    A wrong setting is told as LOG, and only then a FATAL says that there was one.
    """
    settings = any("contains errors" in message.text for message in messages)
    lines, beside = [], False
    for message in messages:
        beside = message.severity in (*_SEVERE, "") or (message.severity in _BESIDE and beside)
        if settings and message.severity == "LOG":
            beside = True
        if beside:
            lines.append(str(message))
    return lines[-LINES_MAX:]


def told_from(seen: str, lines: Sequence[str], folder: str = "") -> list[str]:
    """The lines with ``folder`` for the path by which the server saw its data.

    Without one its files are named as seen from there: whoever reads this did not choose the path of a
    private cluster, and it is gone by then.
    """
    if folder:
        return [line.replace(seen, folder) for line in lines]
    return [line.replace(f"{seen}/", "").replace(seen, "the data folder") for line in lines]


def cause(messages: Sequence[Message], exit_code: int) -> Cause:
    """Why the server ended that said this. Before it says "starting PostgreSQL" it has read no data."""
    last = [message.text for message in faults(messages)]
    # Damage may end a process by another signal, but SIGKILL comes from outside.
    if exit_code < 0 or any("signal 9" in text for text in signalled(messages)):
        return "killed"
    if any(_IN_USE.search(text) for text in last):
        return "in-use"
    if any(_MEMORY.search(text) for text in last):
        return "memory"
    started = any(message.text.startswith("starting PostgreSQL") for message in messages)
    return "data" if started else "settings"


def signalled(messages: Sequence[Message]) -> list[str]:
    """What the postmaster says of its processes that a signal has ended, such as the kernel's at the
    end of its memory."""
    return [message.text for message in messages if _SIGNALLED.search(message.text)]
