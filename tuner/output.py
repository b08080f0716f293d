"""What a command prints: results on stdout, everything else on stderr.

With --json the machine's document is the only thing on stdout; the human lines move to stderr.
With --quiet only results and errors are printed.
"""

from __future__ import annotations

import errno
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from knobs.errors import MachineLacks

PLAIN_LINE_INTERVAL_S = 5.0

NO_SPACE = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there",
    errno.EFBIG: "a limit on the size of files is in force: ulimit -f unlimited",
}
"""What a full disk, a quota and RLIMIT_FSIZE say to a write, and what the user can do (write(2))."""


def unwritable(stream: TextIO, error: OSError) -> MachineLacks:
    """The error of a standard stream that takes no more."""
    name = "stderr" if stream is sys.stderr else "stdout"
    hint = f"{NO_SPACE.get(error.errno or 0, 'see where it goes')}, or send {name} elsewhere"
    return MachineLacks(f"{name} could not be written: {error.strerror}", where=name, hint=hint)


@contextmanager
def writing_to(stream: TextIO) -> Iterator[None]:
    """Raises MachineLacks where the stream cannot be written; a pipe without a reader: BrokenPipeError."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(stream, error) from error


def _print(text: str, stream: TextIO) -> None:
    with writing_to(stream):
        print(text, file=stream, flush=True)


class Progress(Protocol):
    """How far some long work is."""

    def start(self, total: int | None, what: str) -> None:
        """Begin to count ``total`` steps of the work named ``what``; None where nobody knows how many."""

    def advance(self, n: int = 1, note: str = "") -> None:
        """``n`` more steps are done; ``note`` says what is going on now."""

    def close(self) -> None:
        """The work has ended, finished or not. May be called twice."""


class Output:
    """Where one command's words go, decided once by --json and --quiet."""

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json = json
        self.quiet = quiet

    def result(self, text: str) -> None:
        """A line of the human result: on stdout, with --json on stderr (not at all if also --quiet)."""
        if not self.json:
            _print(text, sys.stdout)
        elif not self.quiet:
            _print(text, sys.stderr)

    def note(self, text: str) -> None:
        """A line about the work itself: on stderr, not at all with --quiet."""
        if not self.quiet:
            _print(text, sys.stderr)

    def document(self, document: Mapping[str, Any]) -> None:
        """The machine's result: with --json on stdout, as one JSON document; otherwise nothing.

        Raises ValueError for NaN and infinities, which are not JSON.
        """
        if self.json:
            _print(json.dumps(document, allow_nan=False, indent=2), sys.stdout)

    def progress(self) -> Progress:
        """A bar where stderr is a terminal, plain lines elsewhere, nothing with --quiet."""
        if self.quiet:
            return SilentProgress()
        return BarProgress() if sys.stderr.isatty() else PlainProgress(sys.stderr)


class SilentProgress:
    """A Progress that says nothing."""

    def start(self, total: int | None, what: str) -> None: ...

    def advance(self, n: int = 1, note: str = "") -> None: ...

    def close(self) -> None: ...


class PlainProgress:
    """A Progress of lines for logs: the first, the last, and one every few seconds between."""

    def __init__(
        self,
        stream: TextIO,
        *,
        interval_s: float = PLAIN_LINE_INTERVAL_S,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._interval_s = interval_s
        self._clock_s = clock_s
        self._what = ""
        self._total: int | None = 0
        self._done = 0
        self._printed_at_s = 0.0

    def start(self, total: int | None, what: str) -> None:
        self._what, self._total, self._done = what, total, 0
        self._line("")

    def advance(self, n: int = 1, note: str = "") -> None:
        self._done += n
        is_last = self._total is not None and self._done >= self._total
        if is_last or self._clock_s() - self._printed_at_s >= self._interval_s:
            self._line(note)

    def close(self) -> None:
        if self._what and self._total is None:
            self._line("")
        elif self._what and self._done < (self._total or 0):
            self._line("stopped")
        self._what = ""

    def _line(self, note: str) -> None:
        self._printed_at_s = self._clock_s()
        tail = f": {note}" if note else ""
        of = "" if self._total is None else f"/{self._total}"
        _print(f"{self._what} {self._done}{of}{tail}", self._stream)


class BarProgress:
    """A Progress bar on the terminal behind stderr."""

    def __init__(self) -> None:
        # rich is slow to import, and most output is not a terminal.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self._rich = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=Console(stderr=True),
        )
        self._task = self._rich.add_task("", total=None, note="", visible=False)

    def start(self, total: int | None, what: str) -> None:
        self._rich.start()
        self._rich.reset(self._task, total=total, description=what, note="", visible=True)

    def advance(self, n: int = 1, note: str = "") -> None:
        self._rich.update(self._task, advance=n, note=note)

    def close(self) -> None:
        self._rich.stop()
