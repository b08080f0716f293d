"""What the benches share: a lab, subjects, and the sheet that becomes docs/bench.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crashlab.preload.recorder import PreloadRecorder
from crashlab.validate import Lab
from engines.scratch import Scratch
from engines.supervisor import Supervisor
from knobs.native import missing
from tests.bench.figures import PAGE, Sheet

SECTIONS = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[SECTIONS] = sum(Path(__file__).parent in item.path.parents for item in items)


@pytest.fixture(scope="session")
def sheet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sheet]:
    """The session's figures; a session that measured all of them writes the page."""
    sheet = Sheet(request.config.stash[SECTIONS])
    yield sheet
    everything = len(list(Path(__file__).parent.glob("test_*.py")))
    if sheet.complete and len(sheet.sections) >= everything:
        PAGE.write_text(sheet.page(tmp_path_factory.getbasetemp()), encoding="utf-8")
        print(f"\n\nwritten: {PAGE.name}")
    else:
        print("\n\nnot every figure was measured: the page stays as it is")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab whose processes and paths are gone afterwards."""
    absent = missing()
    if absent:
        pytest.skip(f"not built: {', '.join(part.name for part in absent)}")
    with Supervisor(), Scratch() as scratch:
        yield Lab(PreloadRecorder(), scratch, tmp_path)
