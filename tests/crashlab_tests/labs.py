"""A lab for tests: scratch paths, a supervisor and a data folder that are gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.recorder import Recorder
from crashlab.validate import Lab
from engines.process import Watcher
from engines.scratch import Scratch
from engines.supervisor import Supervisor


@dataclass(frozen=True)
class WatchedLab(Lab):
    """A lab whose servers end with the tests, should those be killed."""

    watcher: Watcher | None = None


@contextmanager
def open_lab(
    folder: Path, recorder: Recorder | None = None, needs_reach: bool = False
) -> Iterator[WatchedLab]:
    """A lab whose data and state lie below ``folder``; nothing of it is there afterwards.

    With ``needs_reach`` its data lie where every user may pass, which pytest's folders do not allow.
    """
    with pytest.MonkeyPatch.context() as environment, ExitStack() as stack:
        environment.setenv("XDG_STATE_HOME", str(folder / "state"))
        watcher = stack.enter_context(Supervisor())
        if needs_reach:
            data = stack.enter_context(Scratch()).folder(Path("/var/tmp"), "test")
            data.chmod(0o711)
        else:
            data = folder / "data"
            data.mkdir()
        before = sorted(data.iterdir())
        with Scratch() as scratch:
            yield WatchedLab(recorder or PreloadRecorder(), scratch, data, watcher=watcher)
        assert sorted(data.iterdir()) == before, "the lab left something behind"
