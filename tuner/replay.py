"""A recording opened again: the subject that its crash states are recovered with, from its own folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crashlab.judging.verdict import LostWrite
from crashlab.recording.recorded import Recording
from crashlab.subject import Subject
from crashlab.validate import Lab
from engines.scratch import Scratch
from engines.supervisor import Supervisor
from knobs.errors import InvalidInput
from tuner.kinds import registry
from tuner.request import RECORDERS, data_folder


@dataclass(frozen=True)
class Reopened:
    """A lab, the recording of a run, its subject, and the contract that it was judged under."""

    lab: Lab
    recording: Recording
    subject: Subject
    contract: str

    def name_of(self, lost: LostWrite) -> str:
        """What a user calls a write of the recorded workload."""
        facts = self.recording.facts
        return registry.family(facts.workload).name_of(lost, facts.workload_parameters)


@contextmanager
def bound_to_recording(folder: Path, say: Callable[[str], None] = lambda _: None) -> Iterator[Reopened]:
    """The run that `duratune crash` left in ``folder``, opened again.

    Raises InvalidInput where the folder holds none.
    """
    try:
        document = json.loads((folder / "crash.json").read_text(encoding="utf-8"))
        contract, kind = str(document["contract"]), registry.kind(document["engine"])
    except (OSError, ValueError, KeyError, InvalidInput) as error:
        raise InvalidInput(
            f"no finished run of duratune crash: {error}",
            where=str(folder),
            hint="name its folder with --study",
        ) from error
    with Supervisor() as supervisor, Scratch() as scratch:
        recording = Recording(folder / "recording", kind.log_reader)
        facts = recording.facts
        family = registry.family(facts.workload)
        workload = family.again(facts.workload, facts.workload_parameters, str(folder), supervisor)
        engine = kind.again(recording.folder, facts.engine_parameters)
        data = data_folder(engine, folder, scratch, say)
        subject = Subject(engine.bound(scratch, supervisor, data), workload, facts.settings, facts.threads)
        yield Reopened(Lab(RECORDERS["preload"](), scratch, data), recording, subject, contract)
