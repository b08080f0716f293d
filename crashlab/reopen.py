"""The base before the run: reopened cleanly with the candidate's settings, and counted.

Settings that lose data at a clean reopen lose it before anything crashes; that is a finding of its
own, told apart from what a crash loses.
"""

from __future__ import annotations

from pathlib import Path

from crashlab.copying import clone_folder
from crashlab.judging.judge import RECOVERY_DEADLINE_S, place_for
from crashlab.subject import Subject
from engines.scratch import Scratch


def missing_after_reopen(subject: Subject, base: Path, scratch: Scratch, parent: Path) -> str:
    """What a clean reopen of the base does not show; "" where every record is there."""
    base_bytes = sum(path.stat().st_size for path in base.rglob("*") if path.is_file())
    folder = scratch.folder(place_for(subject, base_bytes, parent), "reopen")
    if subject.engine.runs_as is not None:
        folder.chmod(0o711)
    try:
        clone_folder(base, folder / "db", subject.engine.log_reader)
        with subject.workload.verifier(folder) as verifier:
            recovered = verifier.verify(subject.launch(folder), RECOVERY_DEADLINE_S)
    finally:
        scratch.remove(folder)
    wanted = subject.workload.initial_records
    if not recovered.recovered:
        return f"the loaded base does not reopen: {recovered.error}"
    if recovered.error:
        return f"a clean reopen of the loaded base, before any crash: {recovered.stage}: {recovered.error}"
    if recovered.base_rows_lost:
        return f"a clean reopen of the loaded base lacks {recovered.base_rows_lost} of its rows"
    if len(recovered.candidate) < wanted:
        return f"a clean reopen of the loaded base shows {len(recovered.candidate)} of {wanted} records"
    return ""
