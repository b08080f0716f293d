"""The lab's controls as one of doctor's checks: does the lab catch what it must, on this machine?"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from crashlab.controls import run_controls
from crashlab.preload.recorder import PreloadRecorder
from crashlab.states.double import DOUBLE
from crashlab.subject import Subject
from engines.scratch import Scratch
from engines.supervisor import Supervisor
from knobs import native
from knobs.errors import DuratuneError, MachineLacks
from tuner.checks import Check, Look, address_space, file_size, shared_memory
from tuner.kinds.kind import Kind
from tuner.kinds.registry import KINDS, kind
from tuner.options import Asked
from tuner.request import data_folder
from workloads import registry

CONTROL_SEED = 1
NEEDED = (shared_memory, file_size, address_space)
"""What every run is refused without: the controls would die of it, or hang."""


def controls(look: Look) -> Iterable[Check]:
    """One lossy and one honest run for the kill and for each crash model, as every study runs them."""
    if native.missing():
        yield Check("controls", "warning", "not run: native parts are missing", "see the lines above")
        return
    lacking = [check.name for needed in NEEDED for check in needed(look) if check.state == "lacks"]
    if lacking:
        yield Check(
            "controls", "warning", f"not run: no run fits {', '.join(lacking)}", "see the lines above"
        )
        return
    for name in KINDS:
        yield from _of_engine(kind(name), look)


def _of_engine(engine_kind: Kind, look: Look) -> Iterable[Check]:
    label = engine_kind.label
    try:
        chosen = engine_kind.choose(Asked(engine_kind.name))
    except MachineLacks as error:
        yield Check(f"{label}controls", "warning", f"not run: {error}", error.hint)
        return
    try:
        with Supervisor() as supervisor, Scratch() as scratch:
            folder = data_folder(chosen.engine, _existing(look.folder), scratch, lambda _: None)
            engine = chosen.engine.bound(scratch, supervisor, folder)
            subject = Subject(engine, registry.find(engine.control_workload, supervisor))
            found = run_controls(
                subject, PreloadRecorder(), [*engine.controls, DOUBLE], scratch, folder, CONTROL_SEED
            )
    except DuratuneError as error:
        yield Check(f"{label}controls", "lacks", str(error), error.hint)
        return
    for control in found:
        said = f"{control.got.value}, as it must be"
        if control.right:
            yield Check(f"control {label}{control.name}", "ok", said)
        else:
            said = f"{control.got.value}, must be {control.wanted.value}: {control.why}"
            yield Check(
                f"control {label}{control.name}", "wrong", said, "no verdict of this machine can be trusted"
            )


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    found = folder.absolute()
    while not found.exists():
        found = found.parent
    return found
