"""What an engine's own safest settings do not survive: a limit of the engine, not laid to a candidate.

A model that draws survivors asks more of a log than some engines promise under a contract: RocksDB's defaults
leave a hole where an unsynced log is lost and a later one survives. So where a verdict hangs on states of
such models alone, such states are made of a run with the settings that are the engine's safest for the
contract. What breaks there for the same reasons is an engine limit; what does not is the candidate's own. The
fault that a run was asked to meet is left out of it: an engine whose safest settings lose by it is not
excused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crashlab.judging.evidence import CrashEvidence, CrashVerdict, EngineLimit, Terms
from crashlab.judging.judge import JudgedState, judge_states
from crashlab.judging.verdict import Verdict
from crashlab.models import MODELS
from crashlab.recording.record import PROVOKE, RecordPlan
from crashlab.states.double import DOUBLE
from crashlab.subject import Subject
from crashlab.validate import Lab, plan_all
from knobs.contract import Contract
from knobs.errors import Undecided

LOOKS_MAX = 3
"""A run in which each log happens to be synced as it is left shows nothing: RocksDB's hole was missed in 1 of
5."""
LIMIT_SEED_STEP = 7_919
"""The safest settings' run has another seed than the candidate's."""


class EngineLimits:
    """The limits of one engine under one contract, looked for in a few runs and kept."""

    def __init__(self, lab: Lab, terms: Terms, plan: RecordPlan, seed: int) -> None:
        self._lab = lab
        self._terms = terms
        self._contract = terms.contract
        self._plan = plan if plan.fault is None else replace(plan, fault=None, provoke=PROVOKE)
        self._seed = seed + LIMIT_SEED_STEP
        self._found: list[EngineLimit] = []
        self._looks = 0

    def under(self, evidence: CrashEvidence, subject: Subject) -> CrashVerdict:
        """The verdict of this evidence with the limits on which it hangs; nothing is run where it hangs on
        none, or where limits are laid to the candidate.

        Where the safest settings cannot be recorded no limit is known, and the verdict stands. Raises
        MachineLacks where there is no room.
        """
        verdict = evidence.under(self._terms)
        if self._terms.strict_model or not _hangs_on_draws(verdict):
            return verdict
        safest = _safest(subject, self._contract)
        if safest == subject and evidence.recording.struck is None:
            # What breaks it is such a limit by itself.
            return replace(evidence, limits=_limits(verdict.counted, self._contract)).under(self._terms)
        found = replace(evidence, limits=self._found).under(self._terms)
        while _hangs_on_draws(found) and self._looks < LOOKS_MAX:
            self._looks += 1
            try:
                self._found += self._look(safest, verdict, self._seed + self._looks)
            except Undecided as error:
                self._lab.say(f"limits of the engine are not known: {error}")
                return verdict
            found = replace(evidence, limits=self._found).under(self._terms)
        return found

    def _look(self, safest: Subject, verdict: CrashVerdict, seed: int) -> list[EngineLimit]:
        models = [name for name in verdict.models if name != DOUBLE and MODELS[name].draws]
        is_double = any(state.planned.group == DOUBLE for state in _broken(verdict))
        self._lab.say(f"looking whether the engine's safest settings survive {', '.join(models)}")
        quiet = replace(self._lab, advance=lambda: None)
        folder = quiet.scratch.folder(quiet.data, "limits")
        try:
            recording = quiet.record(safest, self._contract, self._plan, folder / "recording", seed)
            wanted = safest.engine.limit_states
            planned = plan_all(recording, dict.fromkeys(models, wanted), seed)
            recovered = quiet.recover(recording, safest, planned)
            if is_double:
                recovered += quiet.crash_again(recording, safest, self._contract, recovered, wanted, seed)
            return _limits(list(judge_states(recording, recovered, self._contract)), self._contract)
        finally:
            quiet.scratch.remove(folder)


def _hangs_on_draws(verdict: CrashVerdict) -> bool:
    """Whether the contract is broken by nothing but states whose survivors are drawn."""
    if verdict.kill is not None and verdict.kill.verdict is Verdict.BROKEN:
        return False
    broken = _broken(verdict)
    return bool(broken) and all(state.planned.draws for state in broken)


def _broken(verdict: CrashVerdict) -> list[JudgedState]:
    return [state for state in verdict.counted if state.judgement.verdict is Verdict.BROKEN]


def _safest(subject: Subject, contract: Contract) -> Subject:
    engine = subject.engine.plain()
    return replace(subject, engine=engine, settings=engine.reference_settings(contract))


def _limits(states: Sequence[JudgedState], contract: Contract) -> list[EngineLimit]:
    """What states of the safest settings say of each model that breaks."""
    found = []
    for model in dict.fromkeys(state.planned.group for state in states if state.planned.draws):
        judged = [state for state in states if state.planned.group == model and state.planned.draws]
        broken = [state for state in judged if state.judgement.verdict is Verdict.BROKEN]
        if broken:
            first = broken[0]
            reasons = dict.fromkeys(reason for state in broken for reason in state.judgement.reasons)
            evidence = next(iter(first.judgement.evidence), "")
            found.append(
                EngineLimit(
                    model, str(contract), tuple(reasons), len(judged), len(broken), first.planned.id, evidence
                )
            )
    return found
