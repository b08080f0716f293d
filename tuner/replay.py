"""A recording opened again: the subject that its crash states are recovered with, from its own folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crashlab.recording.recorded import Recording
from crashlab.subject import Subject
from crashlab.validate import Lab
from engines.scratch import Scratch
from engines.supervisor import Supervisor
from knobs.errors import InvalidInput
from tuner.request import ENGINES, RECORDERS
from workloads.ycsb.properties import Properties
from workloads.ycsb.workload import YcsbWorkload


@contextmanager
def bound_to_recording(folder: Path) -> Iterator[tuple[Lab, Recording, Subject, str]]:
    """A lab, the recording in ``folder/recording``, its subject, and the contract that it was judged under.

    Raises InvalidInput where the folder holds no run of `duratune crash`.
    """
    try:
        document = json.loads((folder / "crash.json").read_text(encoding="utf-8"))
        contract, kind = str(document["contract"]), ENGINES[document["engine"]]
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(
            f"no finished run of duratune crash: {error}",
            where=str(folder),
            hint="name its folder with --study",
        ) from error
    with Supervisor() as supervisor, Scratch() as scratch:
        recording = Recording(folder / "recording", kind.log_reader)
        facts = recording.facts
        workload = YcsbWorkload(
            facts.workload, Properties(facts.workload_parameters, str(folder)), supervisor
        )
        engine = kind.of_recording(recording.folder, facts.engine_parameters)
        subject = Subject(engine, workload, facts.settings, facts.threads)
        yield (
            Lab(RECORDERS["preload"](), scratch, scratch.folder(folder, "data")),
            recording,
            subject,
            contract,
        )
