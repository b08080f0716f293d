"""A lab for tests: scratch paths, a supervisor and a data folder that are gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.recorder import Recorder
from crashlab.validate import Lab
from engines.scratch import Scratch


@contextmanager
def open_lab(folder: Path, recorder: Recorder | None = None, needs_reach: bool = False) -> Iterator[Lab]:
    """A lab whose data and state lie below ``folder``; nothing of it is there afterwards.

    With ``needs_reach`` its data lie where every user may pass, which pytest's folders do not allow.
    """
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_STATE_HOME", str(folder / "state"))
        with ExitStack() as stack:
            data = folder / "data"
            if needs_reach:
                data = Path(stack.enter_context(TemporaryDirectory(prefix="duratune-test-", dir="/var/tmp")))
                data.chmod(0o711)
            else:
                data.mkdir()
            with Scratch() as scratch:
                yield Lab(recorder or PreloadRecorder(), scratch, data)
            assert list(data.iterdir()) == [], "the lab left something behind"
