"""A lab for tests: scratch paths, a supervisor and a data folder that are gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.recorder import Recorder
from crashlab.validate import Lab
from engines.scratch import Scratch


@contextmanager
def open_lab(folder: Path, recorder: Recorder | None = None) -> Iterator[Lab]:
    """A lab whose data and state lie below ``folder``; nothing of it is there afterwards."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_STATE_HOME", str(folder / "state"))
        data = folder / "data"
        data.mkdir()
        with Scratch() as scratch:
            yield Lab(recorder or PreloadRecorder(), scratch, data)
        assert list(data.iterdir()) == [], "the lab left something behind"
