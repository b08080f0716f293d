"""A study's budget: said before the first trial, kept by fewer trials, never by skipped controls."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

TRIAL_OVERHEAD_S = 2.5
"""A trial's load, recovery and few crash states, before the first one has been timed."""
WINNER_S = 12.0
"""The winner's fresh run with the deepest plan, its controls included."""
TRIALS_DEFAULT = 40


class Spending(Protocol):
    """What a budget must know of a plan."""

    @property
    def confirmation_rounds(self) -> int: ...

    @property
    def finalists(self) -> int: ...

    @property
    def play_off_rounds(self) -> int: ...

    @property
    def winner_states(self) -> int: ...


@dataclass
class Budget:
    """Seconds and trials of one study, ``started_s`` on the monotonic clock.

    With ``time_s`` a study makes as many trials as fit beside the confirmation and the winner's
    plan; with ``trials`` that many; with neither TRIALS_DEFAULT.
    """

    started_s: float
    time_s: float | None
    trials: int | None
    _run_s: float = 0.0
    _trial_s: float = 0.0
    _timed: int = 0
    _reserved_s: float = 0.0

    def plan(self, spending: Spending, seconds_per_run: float) -> None:
        """Reserve play-off, confirmation and the winner's plan, from what one reference run took."""
        self._run_s = seconds_per_run
        self._trial_s = 2 * seconds_per_run + TRIAL_OVERHEAD_S
        self._reserved_s = self._play_off_s(spending) + self._confirmation_s(spending) + WINNER_S

    @property
    def trials_expected(self) -> int:
        """How many trials there will be, as far as can be said now."""
        if self.trials is not None:
            return self.trials
        if self.time_s is None:
            return TRIALS_DEFAULT
        return max(1, self._timed + int(self._left_s / self._trial_s))

    def allows_trial(self, finished: int) -> bool:
        """Whether one more trial fits; the reference always does."""
        limit = self.trials if self.trials is not None else (TRIALS_DEFAULT if self.time_s is None else None)
        if limit is not None and finished >= limit:
            return False
        return finished == 0 or self.time_s is None or self._left_s >= self._trial_s

    def took(self, seconds: float) -> None:
        """One more trial was made."""
        self._timed += 1
        self._trial_s += (seconds - self._trial_s) / self._timed

    def in_words(self, spending: Spending) -> str:
        """The budget as one line."""
        spent_s = time.monotonic() - self.started_s
        total = spent_s + self.trials_expected * self._trial_s + self._reserved_s
        limit = f" of {self.time_s:.0f} s" if self.time_s is not None else ""
        return (
            f"budget         controls and first reference run {spent_s:.0f} s, "
            f"about {self.trials_expected} trials of {self._trial_s:.0f} s, "
            f"a play-off of {spending.finalists} {self._play_off_s(spending):.0f} s, "
            f"the winner's {spending.winner_states} states {WINNER_S:.0f} s, "
            f"{spending.confirmation_rounds} confirmation rounds {self._confirmation_s(spending):.0f} s: "
            f"about {total:.0f} s{limit}"
        )

    @property
    def _left_s(self) -> float:
        assert self.time_s is not None, "only a study with a time limit has time left"
        return self.time_s - (time.monotonic() - self.started_s) - self._reserved_s

    def _play_off_s(self, spending: Spending) -> float:
        return spending.play_off_rounds * (1 + spending.finalists) * self._run_s

    def _confirmation_s(self, spending: Spending) -> float:
        return spending.confirmation_rounds * 2 * self._run_s
