"""How far a study's trials are: a bar on a terminal, elsewhere one line for each trial, and why they end."""

from __future__ import annotations

from types import TracebackType

from tuner.output import Output, PlainProgress

WHAT = "trials"


class TrialProgress:
    """Counts finished trials, those of an earlier command included; a context, so that an end that nobody
    has given a reason for is told as what it is: stopped."""

    def __init__(self, output: Output, finished: int, expected: int) -> None:
        self._output = output
        found = output.progress()
        # Lines every few seconds would leave out trials; each has its own line here.
        self._bar = None if isinstance(found, PlainProgress) else found
        self._finished, self._expected = finished, max(expected, finished)
        self._has_ended = False

    def __enter__(self) -> TrialProgress:
        if self._bar is None:
            self._line("")
        else:
            self._bar.start(self._expected, WHAT)
            self._bar.advance(self._finished)
        return self

    def one_more(self, note: str, expected: int) -> None:
        """One more trial is finished; of how many, as far as can be said now."""
        self._finished += 1
        self._expected = max(expected, self._finished)
        if self._bar is None:
            self._line(note)
        else:
            self._bar.advance(note=note)

    def end(self, why: str) -> None:
        """There are no more trials, and nothing is wrong."""
        self._has_ended = True
        if self._bar is not None:
            self._bar.close()
        self._output.note(f"{WHAT} {self._finished} finished: {why}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._has_ended:
            return
        if self._bar is None:
            self._line("stopped")
        else:
            self._bar.close()

    def _line(self, note: str) -> None:
        self._output.note(f"{WHAT} {self._finished}/{self._expected}{f': {note}' if note else ''}")
