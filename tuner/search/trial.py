"""One trial: validate, measure beside the reference, kill, recover, crash, judge.

What a trial costs follows what depends on it. Every trial gets the kill and a few crash states; a
verdict that breaks ends it there; one that would become the best gets the full plan before it does.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from crashlab.controls import Control
from crashlab.judging.evidence import CrashEvidence, CrashVerdict
from crashlab.judging.verdict import Judgement, Verdict
from crashlab.kill import KilledRun, MeasurePlan
from crashlab.limits import EngineLimits
from crashlab.recording.record import RecordPlan
from crashlab.subject import Subject
from crashlab.validate import Lab, plan_all
from knobs.errors import InvalidInput, Undecided
from tuner import static_check
from tuner.request import Request, host_limits

MEMORY_SHARE_MAX = 0.7
REJECTED = "REJECTED"
"""The engine, or a rule of the catalogue, does not take the settings: nothing was run."""


@dataclass(frozen=True)
class TrialPlan:
    """What one trial measures and how deep it looks: few states for every trial, more for a best one."""

    measure: MeasurePlan = field(default_factory=lambda: MeasurePlan(warmup_s=0.5, measure_s=2.0))
    record: RecordPlan = field(default_factory=RecordPlan)
    few: Mapping[str, int] = field(default_factory=lambda: {"cache": 2, "synced": 4})
    full: Mapping[str, int] = field(default_factory=lambda: {"cache": 8, "synced": 16})


@dataclass(frozen=True)
class TrialResult:
    """What is kept of a trial. ``verdict`` is HELD, UNKNOWN, BROKEN or REJECTED; ``ratio`` to the
    reference runs next to it, 0 where nothing was measured."""

    number: int
    proposer: str
    settings: Mapping[str, str]
    verdict: str
    reasons: tuple[str, ...] = ()
    ratio: float = 0.0
    throughput_per_s: float = 0.0
    p99_us: Mapping[str, float] = field(default_factory=dict)
    reference_per_s: tuple[float, ...] = ()
    why: str = ""
    reason: str = ""
    source: str = ""
    effective: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Mapping[str, str], ...] = ()
    crash: Mapping[str, Any] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        return self.verdict == Verdict.HELD.value

    @property
    def broken(self) -> bool:
        return self.verdict == Verdict.BROKEN.value

    def save(self, folder: Path) -> None:
        """Write it whole or not at all."""
        part = folder / "result.json.part"
        part.write_text(json.dumps({"schema": 1, **vars(self)}, indent=1, allow_nan=False), encoding="utf-8")
        part.replace(folder / "result.json")

    @staticmethod
    def load(folder: Path) -> TrialResult | None:
        """The result kept in a trial's folder; None where the trial did not get that far.

        Raises InvalidInput for one that is damaged or of another version.
        """
        path = folder / "result.json"
        if not path.exists():
            return None
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            stored.pop("schema")
            for name in ("reasons", "reference_per_s", "findings"):
                stored[name] = tuple(stored[name])
            return TrialResult(**stored)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(
                f"a trial's result cannot be read: {error}",
                where=str(path),
                hint="it is damaged or of another version of duratune; name another folder with --study",
            ) from error


class Reference:
    """The reference, measured next to every candidate; its loaded data is cloned for each run."""

    def __init__(self, lab: Lab, subject: Subject, plan: MeasurePlan, seed: int) -> None:
        self._lab = lab
        self.subject = subject
        self._plan = plan
        self._seed = seed
        self._base = lab.scratch.folder(lab.data, "reference")
        subject.workload.load(subject.launch(self._base), self._base, seed)
        started_s = time.monotonic()
        self.latest_per_s = self.measure()
        self.seconds_per_run = time.monotonic() - started_s

    def measure(self) -> float:
        """One more run of the reference: operations per second. Raises Undecided where it did nothing."""
        run = self._lab.measure(self.subject, self._plan, self._seed, recover=False, base=self._base / "db")
        if run.throughput <= 0:
            raise Undecided(
                f"the reference did no operation in {self._plan.measure_s:g} s",
                where="reference",
                hint="measure longer: --measure 5",
            )
        self.latest_per_s = run.throughput
        return self.latest_per_s

    def around(self, run: KilledRun) -> tuple[float, float, float]:
        """The ratio of a run to the reference runs before and after it, and those two."""
        before = self.latest_per_s
        after = self.measure()
        return run.throughput / math.sqrt(before * after), before, after


@dataclass(frozen=True)
class TrialRunner:
    """Runs trials of one study."""

    lab: Lab
    request: Request
    plan: TrialPlan
    reference: Reference
    controls: Sequence[Control]

    @cached_property
    def _limits(self) -> EngineLimits:
        return EngineLimits(self.lab, self.request.terms, self.plan.record, self.request.seed)

    def run(
        self, number: int, folder: Path, settings: Mapping[str, str], proposer: str, best_ratio: float
    ) -> TrialResult:
        """Run one trial into its folder. UNKNOWN results say why; nothing raises for the candidate's sake.

        Raises MachineLacks where the machine would fail every candidate, as with a full disk.
        """
        seed = self.request.seed + number
        result = TrialResult(number, proposer, dict(settings), Verdict.UNKNOWN.value)
        try:
            self.request.catalogue.validate(settings)
            self._check_memory(settings)
            subject = self.request.subject(settings)
            killed = self.lab.measure(subject, self.plan.measure, seed)
        except InvalidInput as error:
            return replace(result, verdict=REJECTED, why=str(error))
        except Undecided as error:
            return replace(result, why=str(error))
        ratio, *references = self.reference.around(killed)
        effective = self.request.engine.in_force(killed.effective)
        (folder / self.request.kind.effective_name).write_text(killed.effective, encoding="utf-8")
        (folder / "measured.json").write_text(json.dumps(killed.measured, indent=1), encoding="utf-8")
        result = replace(
            result,
            ratio=ratio,
            throughput_per_s=killed.throughput,
            p99_us={name: figures["p99_us"] for name, figures in killed.measured["per_operation"].items()},
            reference_per_s=tuple(references),
            effective=effective,
            findings=tuple(
                finding.as_dict()
                for finding in static_check.differences(self.request, settings, killed.effective)
            ),
        )
        try:
            return self._crash(result, subject, killed, folder, seed, ratio > best_ratio)
        except (InvalidInput, Undecided) as error:
            return replace(result, why=str(error))

    def _check_memory(self, settings: Mapping[str, str]) -> None:
        """Raises InvalidInput where what the settings may hold is too much for this host, with the sum."""
        limit = int(host_limits().memory_bytes * MEMORY_SHARE_MAX)
        stated = self.request.engine.stated(settings)
        need = self.request.kind.rules.memory(self.request.catalogue, stated, self.request.clients)
        if need.wanted_bytes > limit:
            raise InvalidInput(
                f"{need.who} may hold {need.wanted_bytes >> 20} MiB, more than {limit >> 20} MiB, "
                f"{MEMORY_SHARE_MAX:.0%} of this host's memory{''.join(f'; {term}' for term in need.terms)}",
                where="memory",
            )

    def _crash(
        self,
        result: TrialResult,
        subject: Subject,
        killed: KilledRun,
        folder: Path,
        seed: int,
        would_be_best: bool,
    ) -> TrialResult:
        contract = self.request.contract
        kill = killed.judge(contract)
        if kill.verdict is Verdict.BROKEN:
            # The kill alone refuses it: no recorded run is spent on it.
            crash = {"kill": _judgement(kill), "states": []}
            return replace(result, verdict=kill.verdict.value, reasons=kill.reasons, crash=crash)
        recording = self.lab.record(subject, contract, self.plan.record, folder / "recording", seed)
        planned = plan_all(recording, dict(self.plan.few), seed)
        states = self.lab.recover(recording, subject, planned)
        evidence = CrashEvidence(killed, recording, states, self.controls)
        verdict = self._limits.under(evidence, subject)
        if verdict.verdict is Verdict.HELD and would_be_best:
            done = {state.id for state in planned}
            more = [
                state for state in plan_all(recording, dict(self.plan.full), seed) if state.id not in done
            ]
            states = [*states, *self.lab.recover(recording, subject, more)]
            verdict = self._limits.under(replace(evidence, states=states), subject)
        if verdict.verdict is Verdict.HELD and not would_be_best:
            # Its figures and seed are kept; the recording itself is made again by the same command.
            shutil.rmtree(recording.folder)
        why = next((s.unknown_why for s in (verdict.process_crash, verdict.power_cut) if s.unknown_why), "")
        return replace(
            result,
            verdict=verdict.verdict.value,
            reasons=verdict.reasons,
            why=why,
            crash=_crash_json(verdict),
        )


def _crash_json(verdict: CrashVerdict) -> dict[str, Any]:
    return {
        "kill": _judgement(verdict.kill) if verdict.kill else {},
        "states": [
            {"id": state.planned.id, "why": state.planned.why, **_judgement(state.judgement)}
            for state in verdict.states
        ],
        "recovery_s_max": verdict.recovery_s_max,
    }


def _judgement(judgement: Judgement) -> dict[str, Any]:
    return {
        "verdict": judgement.verdict.value,
        "reasons": list(judgement.reasons),
        "acks": judgement.acks,
        "decidable": judgement.decidable,
        "lost": judgement.lost,
        "loss_ms": judgement.loss_ms,
        "evidence": list(judgement.evidence),
        "unknown_why": judgement.unknown_why,
    }
