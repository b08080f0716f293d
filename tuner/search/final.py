"""Who wins: the fastest candidate that is proven faster and holds on a fresh run, else the reference.

The search measures each candidate once, so the best of many is partly the luckiest. A play-off chooses
among the best few; paired rounds that nothing was chosen by then say whether the chosen one is faster. A
candidate that they do not show to be faster is no reason to leave the reference. Whoever is left is crashed
once more, on a fresh run with fresh seeds, under the deepest plan.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crashlab.judging.evidence import CrashVerdict
from crashlab.judging.verdict import Verdict
from crashlab.kill import MeasurePlan
from crashlab.limits import EngineLimits
from crashlab.recording.record import RecordPlan
from crashlab.states.double import double_share
from crashlab.validate import CrashPlan, Lab, validate
from tuner.output import Output
from tuner.request import Request
from tuner.search.confirmation import PairedRound, interval_of, paired_rounds, play_off
from tuner.search.interval import RatioInterval
from tuner.search.study import StudyFolder
from tuner.search.study_plan import StudyPlan
from tuner.search.trial import REJECTED, TrialResult

WINNER_SEED_STEP = 1_000_003
SEEDS = 2**62
"""`crash --seed` takes no more, and the winner's run is repeated by it."""


@dataclass(frozen=True)
class Winner:
    """Who won, and its verdict on a fresh run with this seed and plan."""

    trial: TrialResult
    verdict: CrashVerdict
    seed: int
    plan: CrashPlan
    asked_states: int
    """As `crash --states` takes it, which shares it out among the models."""


@dataclass(frozen=True)
class Claim:
    """A candidate's paired rounds against the reference, and what they show."""

    trial: TrialResult
    rounds: Sequence[PairedRound]
    interval: RatioInterval


@dataclass(frozen=True)
class Decision:
    """Who won; the last claim that was tested, the winner's or the one that was not proven; and who held as a
    trial and not on the fresh run, with the verdict of that run."""

    winner: Winner | None = None
    claim: Claim | None = None
    refused: Sequence[TrialResult] = ()


class Final:
    """What comes after the last trial of one study."""

    def __init__(
        self,
        request: Request,
        plan: StudyPlan,
        folder: StudyFolder,
        lab: Lab,
        output: Output,
        reference: Mapping[str, str],
    ) -> None:
        self._request = request
        self._plan = plan
        self._folder = folder
        self._lab = lab
        self._output = output
        self._reference = reference

    def decide(self, results: Sequence[TrialResult]) -> Decision:
        """The winner that the confirmation supports.

        Where the reference itself was refuted, a candidate wins by holding, however fast it is.
        """
        reference = next((result for result in results if result.number == 0), None)
        is_refuted = reference is not None and (reference.broken or reference.verdict == REJECTED)
        refused: list[TrialResult] = []
        unproven = None
        for candidate in self.ranked(results, 0.0 if is_refuted else 1.0):
            # What is not proven faster needs no deepest plan, which then is the reference's.
            claim = None if is_refuted else self.confirm(candidate)
            if claim is not None and not claim.interval.better:
                unproven = claim
                break
            winner = self._crowned(candidate, refused)
            if winner is not None:
                return Decision(winner, claim or self.confirm(candidate), refused)
        winner = self._crowned(reference, refused) if reference is not None and reference.held else None
        if winner is None and unproven is not None and any(one.number == 0 and one.broken for one in refused):
            winner = self._crowned(unproven.trial, refused)
        return Decision(winner, unproven, refused)

    def ranked(self, results: Sequence[TrialResult], above: float) -> list[TrialResult]:
        """The candidates that held and whose ratio is above this one, best first.

        The best few are measured again in a play-off, since each was measured only once.
        """
        held = [result for result in results if result.held and result.number > 0 and result.ratio > above]
        ranked = sorted(held, key=lambda result: -result.ratio)
        finalists = ranked[: self._plan.finalists]
        if len(finalists) < 2:
            return ranked
        self._output.note(f"play-off of trials {', '.join(str(trial.number) for trial in finalists)}")
        ratios = play_off(
            self._lab,
            [self._request.subject(trial.settings) for trial in finalists],
            self._request.subject(self._reference),
            self._plan.trial.measure,
            self._plan.play_off_rounds,
            self._request.seed,
        )
        order = sorted(range(len(finalists)), key=lambda place: -ratios[place])
        return [*(finalists[place] for place in order), *ranked[len(finalists) :]]

    def confirm(self, trial: TrialResult) -> Claim:
        """The trial against the reference, paired and interleaved. Raises what `paired_rounds` does."""
        count = self._plan.confirmation_rounds
        self._output.note(f"confirming trial {trial.number} against the reference in {count} paired rounds")
        rounds = paired_rounds(
            self._lab,
            self._request.subject(trial.settings),
            self._request.subject(self._reference),
            self._plan.trial.measure,
            count,
            self._request.seed,
        )
        return Claim(trial, rounds, interval_of(rounds, self._request.seed))

    def _crowned(self, trial: TrialResult, refused: list[TrialResult]) -> Winner | None:
        """The trial as winner if it still holds on its fresh run, else it is added to ``refused``."""
        winner = self._judge_once_more(trial)
        verdict = winner.verdict
        if verdict.verdict is Verdict.HELD:
            return winner
        why = verdict.process_crash.unknown_why or verdict.power_cut.unknown_why
        refused.append(
            replace(trial, verdict=verdict.verdict.value, reasons=verdict.reasons, why=why),
        )
        return None

    def _judge_once_more(self, trial: TrialResult) -> Winner:
        seed = (self._request.seed + WINNER_SEED_STEP * (trial.number + 1)) % SEEDS
        self._output.note(f"crashing trial {trial.number} once more, on a fresh run with seed {seed}")
        folder = self._lab.scratch.folder(self._folder.folder, "winner")
        double = double_share(self._plan.winner_states)
        plan = CrashPlan(
            self._request.states(self._plan.winner_states - double),
            # The warm-up is that of `duratune crash`, by which the run can be repeated.
            MeasurePlan(measure_s=self._plan.trial.measure.measure_s),
            RecordPlan(),
            double,
        )
        subject = self._request.subject(trial.settings)
        evidence = validate(subject, self._request.contract, plan, self._lab, folder, seed)
        verdict = EngineLimits(self._lab, self._request.terms, plan.record, seed).under(evidence, subject)
        _replace_folder(folder / "recording", self._folder.folder / f"winner-{trial.number:04d}")
        self._lab.scratch.remove(folder)
        return Winner(trial, verdict, seed, plan, self._plan.winner_states)


def _replace_folder(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    source.replace(target)
