"""Whether a write log may be believed: the recorder's canary, what it could not see, and the two checks.

Every fault found here makes each verdict drawn from the log UNKNOWN, BROKEN included.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crashlab.models import MODELS
from crashlab.preload.processes import reported_in, unreported
from crashlab.recording.check import SyncCount, check_syncs, check_writes
from crashlab.recording.recorded import Logged
from crashlab.recording.recorder import CanaryReport, Recorder
from crashlab.recording.write_log import NOTES, SYNC_TAKEN_BEFORE
from knobs.errors import Undecided


@dataclass(frozen=True)
class Witness:
    """What is known of a recorded run beside its log: the live files, the canary's own account, the
    engine's processes at the kill, and its count of syncs (None where it was never read).

    Where the engine ``counts`` no syncs, as in a recovery, there is nothing to hold the log's against.
    """

    root: Path
    canary: CanaryReport
    pids: tuple[int, ...]
    syncs: SyncCount | None
    counts: bool = True


def faults(recording: Logged, recorder: Recorder, witness: Witness) -> list[str]:
    """Every reason not to believe the log; an exception while it is read is one too."""
    try:
        found = [f"canary: {fault}" for fault in recorder.check_canary(recording.log, witness.canary)]
        found += [f"canary: {fault}" for fault in _canary_content(recording, witness)]
        found += [
            f"the recorder saw {times} x {what}, which it cannot record"
            for what, times in recording.log.unsupported.items()
            if what not in NOTES
        ]
        found += [
            f"the recorder did not report in from process {pid}"
            for pid in unreported(witness.pids, reported_in(recording.log))
        ]
        found += [
            f"writes: {fault}" for fault in check_writes(recording.disk, witness.root, recording.reader)
        ]
        if witness.counts:
            found += [f"syncs: {fault}" for fault in _syncs(recording, witness.syncs)]
        return found
    except Undecided as error:
        return [str(error)]


def _syncs(recording: Logged, count: SyncCount | None) -> list[str]:
    if count is None:
        return ["the engine's own count was never read"]
    may_be_kept = SYNC_TAKEN_BEFORE in recording.log.unsupported
    return check_syncs(recording.lives, recording.reader, count, may_be_kept=may_be_kept)


def notes(recording: Logged, count: SyncCount | None) -> list[str]:
    """What is worth saying of a log that is believed: syncs that never came to the kernel."""
    if count is None or SYNC_TAKEN_BEFORE not in recording.log.unsupported:
        return []
    return [
        f"another library takes the engine's syncs first: {fault}"
        for fault in check_syncs(recording.lives, recording.reader, count)
    ]


def _canary_content(recording: Logged, witness: Witness) -> list[str]:
    """The canary's content, not its name, must be gone in a `synced` state where it was not synced."""
    position = recording.facts.canary_position
    image = MODELS["synced"].image(recording.disk, recording.horizons, position, 0)
    found = []
    for file in witness.canary.files:
        content = image.files[file.path].content() if file.path in image.files else b""
        if content != file.survives:
            found.append(
                f"{file.path} has {len(content)} bytes after a cut where {len(file.survives)} were synced"
            )
    return found
