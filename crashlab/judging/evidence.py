"""What a crash validation found, as evidence that may be judged under any contract.

The process-crash verdict is the real SIGKILL of the measured run plus `cache` states; either can
break it. The power-cut verdict comes from the other models. A wrong control makes everything drawn
from the write log UNKNOWN; the kill needs no log and stands by itself, unless a control of the kill
is wrong. A run without a single acknowledged write decides nothing and is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from crashlab.controls import Control, unknown_because
from crashlab.judging.judge import Aside, JudgedState, RecoveredState, judge_states
from crashlab.judging.verdict import CrashKind, Judgement, LostWrite, Reason, Verdict, worst
from crashlab.kill import KilledRun
from crashlab.models import MODELS
from crashlab.models.names import Metadata
from crashlab.recording.recorded import Recording
from crashlab.states.coverage import Coverage, coverage
from crashlab.states.double import DOUBLE
from knobs.contract import Contract

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Terms:
    """By what a run is judged: the contract; which names a power cut must keep; and whether what the engine's
    safest settings do not survive either is laid to the candidate."""

    contract: Contract
    metadata: Metadata = "ordered"
    strict_model: bool = False


@dataclass(frozen=True)
class EngineLimit:
    """What states of one model do to the engine's own safest settings for a contract.

    ``reasons`` are why ``broken`` of ``states`` of them break it; ``state`` is one of these, and ``evidence``
    its evidence.
    """

    model: str
    contract: str
    reasons: tuple[Reason, ...]
    states: int
    broken: int
    state: str
    evidence: str

    def covers(self, state: JudgedState, contract: Contract) -> bool:
        """Whether the state breaks the contract for no other reason; models that draw survivors are of one
        class."""
        return (
            self.contract == str(contract)
            and (self.model == DOUBLE or MODELS[self.model].draws)
            and state.planned.draws
            and state.judgement.verdict is Verdict.BROKEN
            and set(state.judgement.reasons) <= set(self.reasons)
        )


@dataclass(frozen=True)
class CrashEvidence:
    """One killed run, one recorded run, its recovered states, and the controls of this session.

    ``killed`` is None where only the recorded run was made. ``limits`` are the engine's own that were found
    (crashlab/limits.py).
    """

    killed: KilledRun | None
    recording: Recording
    states: Sequence[RecoveredState]
    controls: Sequence[Control]
    limits: Sequence[EngineLimit] = ()

    def under(self, terms: Terms | Contract) -> CrashVerdict:
        """The verdict of this evidence under a contract, or under one with more than the usual terms; nothing
        is run.

        States that only the other metadata rule allows do not count, nor do limits of the engine, unless they
        are laid to the candidate; both are told.
        """
        if isinstance(terms, Contract):
            terms = Terms(terms)
        contract = terms.contract
        why = unknown_because(self.controls)
        judged = [
            _undecided(state, why) if why else state
            for state in judge_states(self.recording, self.states, contract)
        ]
        short = too_short(self.recording, contract)
        if short:
            judged = [_undecided(state, short) if _held(state) else state for state in judged]
        limits = () if terms.strict_model else self.limits
        judged = [replace(state, aside=_aside(state, terms, limits)) for state in judged]
        kill = self.killed.judge(contract) if self.killed else None
        distrusted = unknown_because([control for control in self.controls if control.of_the_kill])
        if kill is not None and distrusted:
            kill = Judgement.unknown(distrusted, kill.acks)
        kill_recovery_s = self.killed.recovered.recovery_s if self.killed and self.killed.recovered else 0.0
        used = [limit for limit in limits if limit.contract == str(contract)]
        return CrashVerdict(
            contract, kill, tuple(judged), kill_recovery_s, self.recording.disbelief, tuple(used)
        )

    @cached_property
    def coverage(self) -> Coverage | None:
        """Which operations and events of the run the states fell into; None where there are none."""
        if not self.states or not self.recording.believable:
            return None
        return coverage(self.recording.view, [state.planned.position for state in self.states])


@dataclass(frozen=True)
class CrashSummary:
    """One kind of crash over everything that was judged for it.

    ``acks`` and ``decidable`` are the most that any one judgement saw; ``lost``, ``loss_ms`` and
    ``first_lost`` are those of the judgement of this verdict that lost most. ``seen_in`` names it: "the
    kill" or a state's id. ``states`` counts the crash states.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...]
    acks: int
    decidable: int
    lost: int
    loss_ms: float
    first_lost: LostWrite | None
    states: int
    unknown_why: str = ""
    seen_in: str = ""


@dataclass(frozen=True)
class ModelSummary:
    """One crash model: its verdict, states, the most that one of them lost, and what a HELD bounds.

    ``aside`` of the states do not count; where none of them does, the verdict is theirs and counts nowhere.

    ``uniform_held`` of ``uniform`` states at moments drawn uniformly in time held the contract;
    if all did, ``broken_share_max`` is the 95 % upper bound of the share of moments that break it.
    """

    verdict: Verdict
    states: int
    lost: int
    uniform: int
    uniform_held: int
    broken_share_max: float | None
    aside: int = 0


@dataclass(frozen=True)
class CrashVerdict:
    """Every judgement under one contract, and what they add up to."""

    contract: Contract
    kill: Judgement | None
    states: tuple[JudgedState, ...]
    kill_recovery_s: float = 0.0
    disbelief: str = ""
    """Why the write log is not believed: then no states are built, and neither crash can be HELD."""
    limits: tuple[EngineLimit, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return worst([self.process_crash.verdict, self.power_cut.verdict])

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return tuple(dict.fromkeys([*self.process_crash.reasons, *self.power_cut.reasons]))

    @cached_property
    def process_crash(self) -> CrashSummary:
        return self._summary("process-crash", [self.kill] if self.kill is not None else [])

    @cached_property
    def power_cut(self) -> CrashSummary:
        return self._summary("power-cut", [])

    @property
    def recovery_s_max(self) -> float:
        """The slowest recovery that was seen, the killed run's included: the observed RTO."""
        return max([self.kill_recovery_s, *(state.recovery_s for state in self.states)])

    @property
    def models(self) -> dict[str, ModelSummary]:
        """The models that states were judged for; double states are one, whatever theirs are."""
        return {
            name: _model_summary(judged)
            for name in (*MODELS, DOUBLE)
            if (judged := [state for state in self.states if state.planned.group == name])
        }

    @property
    def worst_state(self) -> JudgedState | None:
        """The state to show first: the one that broke and lost most, else None."""
        broken = [state for state in self.counted if state.judgement.verdict is Verdict.BROKEN]
        return max(broken, key=lambda state: (state.judgement.lost, -state.planned.position), default=None)

    @property
    def aside(self) -> tuple[JudgedState, ...]:
        """The states that break the contract and do not count."""
        return tuple(
            state for state in self.states if state.aside and state.judgement.verdict is Verdict.BROKEN
        )

    @property
    def counted(self) -> list[JudgedState]:
        """The states that the verdict is made of."""
        return [state for state in self.states if not state.aside]

    def _summary(self, crash: CrashKind, others: Sequence[Judgement]) -> CrashSummary:
        states = [state.judgement for state in self.counted if state.crash == crash]
        judgements = [*others, *states]
        names = ["the kill"] * len(others) + [
            state.planned.id for state in self.counted if state.crash == crash
        ]
        if self.disbelief:
            judgements.append(Judgement.unknown(self.disbelief))
        verdict = worst(judgement.verdict for judgement in judgements)
        acks = max((judgement.acks for judgement in judgements), default=0)
        why = next((j.unknown_why for j in judgements if j.verdict is Verdict.UNKNOWN), "nothing was judged")
        if verdict is Verdict.HELD and acks == 0:
            verdict, why = Verdict.UNKNOWN, "the run acknowledged no write, so there is nothing to lose"
        # Where something broke, what is told is of what broke: another state may lose more and hold.
        shown = [judgement for judgement in judgements if judgement.verdict is verdict] or judgements
        most = max(shown, key=lambda j: (j.lost + j.lost_initial, j.loss_ms), default=Judgement.unknown(why))
        return CrashSummary(
            verdict=verdict,
            reasons=tuple(dict.fromkeys(reason for judgement in judgements for reason in judgement.reasons)),
            acks=acks,
            decidable=max((judgement.decidable for judgement in judgements), default=0),
            lost=most.lost,
            loss_ms=most.loss_ms,
            first_lost=most.first_lost,
            states=len(states),
            unknown_why=why if verdict is Verdict.UNKNOWN else "",
            seen_in=next((name for name, one in zip(names, judgements, strict=False) if one is most), ""),
        )


def _held(state: JudgedState) -> bool:
    return state.judgement.verdict is Verdict.HELD


def _aside(state: JudgedState, terms: Terms, limits: Sequence[EngineLimit]) -> Aside:
    if state.planned.metadata == "posix" and terms.metadata != "posix":
        return "posix"
    return "engine-limit" if any(limit.covers(state, terms.contract) for limit in limits) else ""


def _undecided(state: JudgedState, why: str) -> JudgedState:
    return replace(state, judgement=Judgement.unknown(why, state.judgement.acks))


def too_short(recording: Recording, contract: Contract) -> str:
    """A load shorter than the window cannot lose more than the window allows: its HELD says nothing.

    Nor does one in which something was provoked, and so made durable, less than a window before its end.
    """
    if contract.window_ms is None:
        return ""
    alone_from = max(recording.facts.first_position, recording.facts.provoked_until)
    first_ns = recording.timeline.ns_at(alone_from + 1)
    load_ms = (recording.timeline.span_ns[1] - first_ns) / 1e6
    if load_ms > contract.window_ms:
        return ""
    return (
        f"the recorded load lasted {load_ms:.0f} ms after what was provoked in it, less than the window of "
        f"{contract.window_ms:g} ms"
    )


def _model_summary(states: Sequence[JudgedState]) -> ModelSummary:
    counted = [state for state in states if not state.aside]
    uniform = [state for state in counted if state.planned.source == "uniform"]
    held = sum(1 for state in uniform if _held(state))
    bound = 1.0 - (1.0 - CONFIDENCE) ** (1.0 / len(uniform)) if uniform and held == len(uniform) else None
    return ModelSummary(
        verdict=worst(state.judgement.verdict for state in counted or states),
        states=len(states),
        lost=max((state.judgement.lost for state in states), default=0),
        uniform=len(uniform),
        uniform_held=held,
        broken_share_max=bound,
        aside=len(states) - len(counted),
    )
