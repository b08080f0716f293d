"""A study from its budget to its claim: propose, measure, crash, keep the best that holds.

The reference is always trial 0. A candidate counts only if its verdict is HELD, and wins only if paired
rounds prove it faster (tuner/search/final.py). "No better" is a result, and the reference then wins.
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from crashlab.controls import Control, unknown_because
from crashlab.judging.verdict import Verdict
from crashlab.validate import Lab
from knobs.errors import InvalidInput, Undecided
from knobs.knob import TuningRange
from tuner.output import Output
from tuner.proposers.proposal import HostLimits, Proposal
from tuner.request import Request, host_limits
from tuner.search.budget import CONTROLS_S, RUN_OVERHEAD_S, Budget
from tuner.search.final import Claim, Decision, Final, Winner
from tuner.search.inherited import inherited_break
from tuner.search.rivals import RivalClaim, measured_against, rivals_of
from tuner.search.search_space import SearchSpace, build_space
from tuner.search.study import OptunaStudy, StudyFolder
from tuner.search.study_plan import StudyPlan
from tuner.search.trial import Reference, TrialResult, TrialRunner
from tuner.search.trial_progress import TrialProgress

FAILS_IN_A_ROW_MAX = 3


@dataclass(frozen=True)
class StudyOutcome:
    """Everything that a study found out."""

    controls: Sequence[Control]
    results: Sequence[TrialResult]
    winner: Winner | None
    claim: Claim | None
    """The winner's, or that of the candidate that is not proven faster; in an audit the fastest's."""
    fastest: TrialResult | None
    """In an audit: what a search for speed alone would have shipped."""
    refused_at_last: Sequence[TrialResult] = ()
    """Who held as a trial and not on the winner's fresh run, with the verdict of that run."""
    rivals: Sequence[RivalClaim] = ()
    """The winner against what people already run."""
    cut_short: str = ""
    """Why the search ended although trials were left; empty where it did not."""

    @property
    def unproven(self) -> Claim | None:
        """The fastest candidate that held, where its claim does not make it the winner."""
        if self.claim is None or (self.winner is not None and self.winner.trial is self.claim.trial):
            return None
        return self.claim

    @property
    def reference_broke(self) -> bool:
        """Whether the reference broke the contract, as a trial or on its fresh run."""
        return any(one.number == 0 and one.broken for one in (*self.results, *self.refused_at_last))


def reference_settings(request: Request) -> dict[str, str]:
    """The user's settings, and of the fewest that make the defaults hold the contract those that the user
    does not state: what lives in the application, no configuration file can state."""
    return {**request.engine.reference_settings(request.contract), **request.settings}


def search_space(
    request: Request, plan: StudyPlan, reference: Mapping[str, str], limits: HostLimits | None = None
) -> SearchSpace:
    """The knobs that are searched, within this host's limits unless others are given.

    Raises InvalidInput where nothing is left.

    What weakens an acknowledged write is left out; an audit puts it back, and `bounded` what its window
    pays for.
    """
    limits = limits or host_limits()
    ranges = request.kind.search.ranges(
        request.catalogue, limits, request.contract.window_ms, plan.audit_only
    )
    _refuse_unmatched(request, (*plan.only, *plan.exclude))
    stated = {**_stated(request), **reference}
    chosen = {
        name: allowed
        for name, found in ranges.items()
        if _is_chosen(name, plan) and (allowed := _allowed(found, plan, stated))
    }
    if not chosen:
        raise InvalidInput(
            "no knob is left to search",
            where="--only/--exclude",
            hint=f"duratune knobs {request.engine.name} lists them",
        )
    points = [proposal.settings for proposal in proposals(request, plan, reference, limits)]
    return build_space(request.catalogue, chosen, stated, points)


def proposals(
    request: Request, plan: StudyPlan, reference: Mapping[str, str], limits: HostLimits | None = None
) -> list[Proposal]:
    """Every proposer's start points, in their order and normalised; an audit's for speed alone come first.

    They are for this host's limits unless others are given.
    """
    search, catalogue = request.kind.search, request.catalogue
    found = search.speed_alone(catalogue, reference) if plan.audit_only else []
    for proposer in search.proposers(catalogue):
        found += proposer.start_points(limits or host_limits())
    return [
        replace(
            proposal,
            settings={name: catalogue.normalise(name, value) for name, value in proposal.settings.items()},
        )
        for proposal in found
    ]


def refuse_too_short(plan: StudyPlan, finished: int) -> None:
    """Raises InvalidInput where the plan's time is hopeless whatever the machine, before anything runs."""
    run_s = plan.trial.measure.warmup_s + plan.trial.measure.measure_s + RUN_OVERHEAD_S
    foreseen = Budget(time.monotonic() - CONTROLS_S - run_s, plan.time_s, plan.trials, plan)
    foreseen.plan(CONTROLS_S, run_s)
    foreseen.refuse_too_short(finished)


def _stated(request: Request) -> dict[str, str]:
    """What the user's file states: a candidate lies over it, so it is the reference's value."""
    return request.engine.stated({})


def _refuse_unmatched(request: Request, patterns: Sequence[str]) -> None:
    """Raises InvalidInput for patterns that match no knob at all: a misspelt one would be ignored."""
    names = [knob.name for knob in request.catalogue.knobs()]
    unmatched = [pattern for pattern in patterns if not any(_matches(name, pattern) for name in names)]
    if unmatched:
        raise InvalidInput(
            f"no knob matches {', '.join(map(repr, unmatched))}",
            where="--only/--exclude",
            hint=f"duratune knobs {request.engine.name} lists them; a pattern is a name, or has * in it",
        )


def _is_chosen(name: str, plan: StudyPlan) -> bool:
    is_wanted = not plan.only or any(_matches(name, pattern) for pattern in plan.only)
    return is_wanted and not any(_matches(name, pattern) for pattern in plan.exclude)


def _allowed(found: TuningRange, plan: StudyPlan, stated: Mapping[str, str]) -> TuningRange | None:
    """The range without the choices that need another value of a setting which is excluded, or fixed; None
    where that leaves nothing to search."""
    barred = {
        choice
        for choice, other, wanted in found.needs
        if stated.get(other) != wanted and any(_matches(other, pattern) for pattern in plan.exclude)
    }
    kept = tuple(choice for choice in found.choices if choice not in barred)
    return None if barred and len(kept) < 2 else replace(found, choices=kept)


def _matches(name: str, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(word, pattern) for word in (name, name.partition(".")[2]))


class Tuning:
    """One study at work in its folder."""

    def __init__(
        self, request: Request, plan: StudyPlan, folder: StudyFolder, lab: Lab, output: Output
    ) -> None:
        self._request = request
        self._plan = plan
        self._folder = folder
        self._lab = lab
        self._output = output
        self._reference = reference_settings(request)
        self._space = search_space(request, plan, self._reference)
        self._budget = Budget(time.monotonic(), plan.time_s, plan.trials, plan)
        self._final = Final(request, plan, folder, lab, output, self._reference)

    def run(self) -> StudyOutcome:
        """The whole study.

        Raises InvalidInput where the reference does not start, Undecided where controls fail or the lab fails
        several times in a row.
        """
        # First, as in a crash: a reference that does not start is told by it at once.
        self._output.note(f"measuring the reference for {self._plan.trial.measure.measure_s:g} s")
        reference = Reference(
            self._lab, self._request.subject(self._reference), self._plan.trial.measure, self._request.seed
        )
        self._output.note("controls: one lossy and one honest run for the kill and for each crash model")
        before_s = self._budget.spent_s
        controls = self._lab.controls(self._request.subject({}), self._request.models, self._request.seed)
        wrong = unknown_because(controls)
        if wrong:
            raise Undecided(
                wrong, where="controls", hint="no verdict can be trusted on this machine; see duratune doctor"
            )
        self._budget.plan(self._budget.spent_s - before_s, reference.seconds_per_run)
        finished = len(self._folder.results())
        self._budget.refuse_too_short(finished)
        self._output.result(self._budget.in_words(finished))
        results = self._search(reference, controls)
        measured = [result for result in results if result.ratio > 0]
        fastest = max(measured, key=lambda result: result.ratio, default=None)
        if self._plan.audit_only:
            is_candidate = fastest is not None and fastest.number > 0
            decision = Decision(claim=self._final.confirm(fastest) if fastest and is_candidate else None)
        else:
            decision = self._final.decide(results)
        return StudyOutcome(
            controls,
            results,
            decision.winner,
            decision.claim,
            fastest,
            decision.refused,
            self._against_rivals(decision),
            self._inherited_break(results),
        )

    def _against_rivals(self, decision: Decision) -> list[RivalClaim]:
        if decision.winner is None or self._plan.rivals == 0:
            return []
        return measured_against(
            rivals_of(self._request),
            decision.winner.trial.settings,
            self._request,
            self._plan,
            self._lab,
            self._output,
        )

    def _search(self, reference: Reference, controls: Sequence[Control]) -> list[TrialResult]:
        results = {result.number: result for result in self._folder.results()}
        study = OptunaStudy(
            self._folder,
            self._folder.folder.name,
            self._space,
            # A resumed sampler must not draw again what it drew before it was stopped.
            self._request.seed + len(results),
            not self._plan.audit_only,
        )
        study.recover()
        if results:
            self._output.note(f"resuming: {len(results)} trials are finished and not repeated")
        runner = TrialRunner(self._lab, self._request, self._plan.trial, reference, controls)
        with TrialProgress(
            self._output, len(results), self._budget.trials_expected(len(results))
        ) as progress:
            fails = 0
            while not (why := self._ends_because(results)):
                started_s = time.monotonic()
                self._enqueue_next(study)
                result = self._one_trial(study, runner, list(results.values()))
                results[result.number] = result
                self._budget.took(time.monotonic() - started_s)
                progress.one_more(_note(result), self._budget.trials_expected(len(results)))
                fails = fails + 1 if result.verdict == Verdict.UNKNOWN.value else 0
                self._refuse_failing(fails, result)
            progress.end(why)
        study.close()
        return [results[number] for number in sorted(results)]

    def _ends_because(self, results: Mapping[int, TrialResult]) -> str:
        """Why there are no more trials; empty while one more is made."""
        return self._inherited_break(list(results.values())) or self._budget.ends_because(len(results))

    def _inherited_break(self, results: Sequence[TrialResult]) -> str:
        """Why no candidate can hold what trial 0 broke. An audit lets no verdict end it."""
        reference = next((result for result in results if result.number == 0), None)
        if reference is None or self._plan.audit_only:
            return ""
        return inherited_break(self._request, self._reference, self._space, reference)

    def _refuse_failing(self, fails: int, latest: TrialResult) -> None:
        """Raises Undecided where the lab failed several times in a row."""
        if fails >= FAILS_IN_A_ROW_MAX:
            raise Undecided(
                f"{fails} trials in a row could not be judged: {latest.why}",
                where=str(self._folder.folder),
                hint="see duratune doctor; the same command resumes the study",
            )

    def _one_trial(
        self, study: OptunaStudy, runner: TrialRunner, results: Sequence[TrialResult]
    ) -> TrialResult:
        number, over_reference, attributes = study.ask()
        settings = {**self._reference, **over_reference}
        folder = self._folder.trial(number)
        self._folder.write(f"{folder.name}/proposed.json", {"settings": settings, **attributes})
        # The reference's own ratio is 1 by what a ratio is; what trial 0 shows above or below is noise.
        best = max((result.ratio for result in results if result.held and result.number > 0), default=1.0)
        best = 0.0 if number == 0 else max(best, 1.0)
        result = runner.run(number, folder, settings, attributes["proposer"], best)
        result = replace(result, reason=attributes.get("reason", ""), source=attributes.get("source", ""))
        result.save(folder)
        study.tell(result)
        return result

    def _enqueue_next(self, study: OptunaStudy) -> None:
        """Queue the next start point, if there is one that the study does not know yet.

        One at a time, so that only what is going to run is ever queued: a study that ends early is then
        an ordinary finished one. A trial that a kill interrupted is queued already, and comes first.
        """
        if study.has_queued:
            return
        for point in self._start_points()[study.known_trials :][:1]:
            attributes = {"proposer": point.proposer, "reason": point.reason, "source": point.source}
            study.enqueue(point.settings, attributes)

    def _start_points(self) -> list[Proposal]:
        """The reference, and then the proposers' points, always in the same order.

        Of a point the values are left out that are not searched, or are none of a list of choices.
        """
        points = [Proposal("reference", {}, "what every ratio is to")]
        for proposal in proposals(self._request, self._plan, self._reference):
            searched = {
                name: value for name, value in proposal.settings.items() if self._space.takes(name, value)
            }
            if searched:
                points.append(replace(proposal, settings=searched))
        return points


def _note(result: TrialResult) -> str:
    verdict = " ".join([result.verdict, *result.reasons])
    if result.number == 0:
        return f"trial 0, the reference: {verdict}"
    ratio = f"{result.ratio:.2f} x reference" if result.ratio else "not measured"
    return f"trial {result.number} ({result.proposer}): {ratio}, {verdict}"
