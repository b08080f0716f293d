"""A study's budget: said before the first trial, kept by fewer trials, never by skipped controls."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Protocol

from knobs.errors import InvalidInput
from tuner.counting import counted

CONTROLS_S = 3.0
RUN_OVERHEAD_S = 0.3
"""What controls, and the load of one run, take at the least: for what must be said before either is timed."""
TRIALS_DEFAULT = 40
MARGIN = 1.2
"""A hint names more than the least, because no two runs take the same time."""
CLAIM_TRIALS = 2
"""The reference and one candidate: with fewer there is nothing to claim."""


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

    @property
    def rivals(self) -> int: ...

    @property
    def state_s(self) -> float: ...

    @property
    def trial_share(self) -> float: ...

    @property
    def audit_only(self) -> bool: ...


@dataclass
class Budget:
    """Seconds and trials of one study, ``started_s`` on the monotonic clock.

    With ``time_s`` a study makes as many trials as fit beside the confirmation and the winner's
    plan; with ``trials`` that many; with neither TRIALS_DEFAULT.
    """

    started_s: float
    time_s: float | None
    trials: int | None
    spending: Spending
    _controls_s: float = CONTROLS_S
    _run_s: float = 0.0
    _trial_s: float = 0.0
    _longest_s: float = 0.0
    _timed: int = 0

    def plan(self, controls_s: float, run_s: float) -> None:
        """What is known before the first trial: what the controls and one run of the reference took.

        A trial is two runs, and its recording and few states take a share of the time of the controls.
        """
        self._controls_s, self._run_s = controls_s, run_s
        self._trial_s = self._longest_s = 2 * run_s + self.spending.trial_share * controls_s

    def trials_expected(self, finished: int) -> int:
        """How many trials the study will have, as far as can be said now; ``finished`` it has already."""
        limit = self.trials if self.trials is not None else TRIALS_DEFAULT
        if self.time_s is None:
            return max(limit, finished)
        expected = max(1, finished)
        while self.trials is None or expected < limit:
            ahead_s = (expected + 1 - finished) * self._trial_s
            if self.spent_s + ahead_s + self._reserved_s(expected) > self.time_s:
                break
            expected += 1
        return expected

    def allows_trial(self, finished: int) -> bool:
        """Whether one more trial fits; the reference always does."""
        return not self.ends_because(finished)

    def ends_because(self, finished: int) -> str:
        """Why there are no more trials; empty while one more fits."""
        limit = self.trials if self.trials is not None else (TRIALS_DEFAULT if self.time_s is None else None)
        if limit is not None and finished >= limit:
            return f"the number of trials is reached ({limit})"
        if finished == 0 or self.time_s is None:
            return ""
        # One more makes as many candidates as there are trials now, the reference being none. The longest
        # trial counts, because one that would become the best is looked at more deeply.
        if self.spent_s + self._longest_s + self._reserved_s(finished) <= self.time_s:
            return ""
        return (
            f"the time is used: one more of up to {self._longest_s:.0f} s does not fit into "
            f"{self.time_s:g} s beside what comes after the last"
        )

    def took(self, seconds: float) -> None:
        """One more trial was made."""
        self._longest_s = seconds if self._timed == 0 else max(self._longest_s, seconds)
        self._timed += 1
        self._trial_s += (seconds - self._trial_s) / self._timed

    def refuse_too_short(self, finished: int) -> None:
        """Raises InvalidInput where the time cannot hold what a claim stands on, and says what that takes.

        That is the reference, one candidate, the winner's crash run and the confirmation; of a study that
        goes on ``finished`` trials are there. ``--trials 1`` asks for the reference alone.
        """
        trials = min(CLAIM_TRIALS, self.trials or CLAIM_TRIALS)
        missing = max(0, trials - finished)
        candidates = max(trials, finished) - 1
        least_s = self.spent_s + missing * self._trial_s + self._reserved_s(candidates)
        if self.time_s is None or least_s <= self.time_s:
            return
        parts = [f"controls and first reference run {self.spent_s:.0f} s"]
        parts += [f"{missing} trials {missing * self._trial_s:.0f} s"] if missing else []
        parts += self._reserved_in_words(candidates)
        raise InvalidInput(
            f"{self.time_s:g} s are too short for a claim, which takes about {math.ceil(least_s)} s here: "
            f"{', '.join(parts)}",
            where="--time",
            hint=f"--time {math.ceil(least_s * MARGIN)}s or more, or shorter runs: --measure",
        )

    def in_words(self, finished: int) -> str:
        """The budget as one line; ``finished`` trials are there already and cost nothing."""
        trials = self.trials_expected(finished)
        ahead = trials - finished
        total_s = self.spent_s + ahead * self._trial_s + self._reserved_s(trials - 1)
        limit = f" of {self.time_s:.0f} s" if self.time_s is not None else ""
        parts = [
            f"controls and first reference run {self.spent_s:.0f} s",
            f"about {ahead} {'more ' if finished else ''}trials of {self._trial_s:.0f} s",
            *self._reserved_in_words(trials - 1),
        ]
        return f"budget         {', '.join(parts)}: about {total_s:.0f} s{limit}"

    @property
    def spent_s(self) -> float:
        """Seconds since the study's command began."""
        return time.monotonic() - self.started_s

    def _reserved_s(self, candidates: int) -> float:
        """What comes after the last trial, where there are so many candidates."""
        ahead = (self._play_off_s(candidates), self._winner_s(), self._confirmation_s(candidates))
        return sum(ahead) + self._rivals_s()

    def _reserved_in_words(self, candidates: int) -> list[str]:
        plan = self.spending
        found = {
            f"a play-off of {min(plan.finalists, candidates)}": self._play_off_s(candidates),
            f"the winner's {plan.winner_states} states": self._winner_s(),
            f"{plan.confirmation_rounds} confirmation rounds": self._confirmation_s(candidates),
            f"as many against {counted(plan.rivals, 'rival')}": self._rivals_s(),
        }
        return [f"{what} {seconds:.0f} s" for what, seconds in found.items() if seconds > 0]

    def _play_off_s(self, candidates: int) -> float:
        """The best few against the reference; of one candidate or none there is none, nor in an audit."""
        finalists = min(self.spending.finalists, candidates)
        if finalists < 2 or self.spending.audit_only:
            return 0.0
        return self.spending.play_off_rounds * (1 + finalists) * self._run_s

    def _winner_s(self) -> float:
        """The winner's fresh run with controls of its own; an audit crowns no winner."""
        if self.spending.audit_only:
            return 0.0
        return self._controls_s + 2 * self._run_s + self.spending.winner_states * self.spending.state_s

    def _confirmation_s(self, candidates: int) -> float:
        return self.spending.confirmation_rounds * 2 * self._run_s if candidates > 0 else 0.0

    def _rivals_s(self) -> float:
        """The winner against what people already run; an audit crowns no winner."""
        if self.spending.audit_only:
            return 0.0
        return self.spending.rivals * self.spending.confirmation_rounds * 2 * self._run_s
