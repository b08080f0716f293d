"""A recording opened again: the request whose crash states are recovered, from its own folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crashlab.controls import Control
from crashlab.judging.evidence import EngineLimit
from crashlab.judging.verdict import LostWrite
from crashlab.recording.recorded import Recording
from crashlab.validate import Lab
from engines.scratch import Scratch
from engines.supervisor import Supervisor
from knobs.contract import Contract
from knobs.errors import InvalidInput
from knobs.finding import Finding
from tuner.kinds import registry
from tuner.options import Asked
from tuner.recorders import RecorderChoice
from tuner.request import Request, data_folder


@dataclass(frozen=True)
class Reopened:
    """A lab, the recording of a run, that run as a request with the contract to judge by, the controls of its
    session, what was found of its settings, and of the engine's limits."""

    lab: Lab
    recording: Recording
    request: Request
    controls: tuple[Control, ...]
    findings: tuple[Finding, ...]
    limits: tuple[EngineLimit, ...]

    @property
    def other_version(self) -> str:
        """The engine's version that was recorded, "" where it is the one that recovers."""
        recorded = self.recording.facts.engine_version
        return "" if recorded == self.request.engine.version() else recorded

    def name_of(self, lost: LostWrite) -> str:
        """What a user calls a write of the recorded workload."""
        return self.request.name_of(lost)


@contextmanager
def bound_to_recording(
    folder: Path, asked: Asked, say: Callable[[str], None] = lambda _: None
) -> Iterator[Reopened]:
    """The run that `duratune crash` left in ``folder``, opened again; ``asked`` may name another contract,
    and where the engine's programs lie.

    Raises InvalidInput where the folder holds none, or one of another engine.
    """
    try:
        document = json.loads((folder / "crash.json").read_text(encoding="utf-8"))
        contract, kind = str(document["contract"]), registry.kind(document["engine"])
        findings = tuple(Finding(**finding) for finding in document["findings"])
        controls = tuple(Control.parse(name, control) for name, control in document["controls"].items())
        limits = tuple(
            EngineLimit(**{**limit, "reasons": tuple(limit["reasons"])})
            for limit in document["engine_limits"]
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InvalidInput) as error:
        raise InvalidInput(
            f"no finished run of duratune crash: {error}",
            where=str(folder),
            hint="name its folder with --study",
        ) from error
    if asked.engine != kind.name:
        raise InvalidInput(
            f"the recording is of {kind.name}", where=str(folder), hint=f"duratune crash {kind.name} --replay"
        )
    with Supervisor() as supervisor, Scratch() as scratch:
        recording = Recording(folder / "recording", kind.log_reader)
        facts = recording.facts
        family = registry.family(facts.workload)
        chosen = kind.again(recording.folder, facts, asked)
        data = data_folder(chosen.engine, folder, scratch, say)
        request = Request(
            kind=kind,
            engine=chosen.engine.bound(scratch, supervisor, data),
            catalogue=chosen.catalogue,
            settings=chosen.settings,
            workload=family.again(facts.workload, facts.workload_parameters, str(folder), supervisor),
            contract=Contract.parse(asked.contract or contract),
            seed=facts.seed,
            clients=facts.threads,
            recorder=RecorderChoice.recorded(facts.recorder, facts.file_system),
        )
        lab = Lab(request.recorder.made(supervisor), scratch, data)
        yield Reopened(lab, recording, request, controls, findings, limits)
