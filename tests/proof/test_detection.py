"""Every planted bug over all seeds, and honest runs: `make proof`. Resumable; writes docs/detection.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.provenance import commit
from tests.crashlab_tests.block_tests.disks import need_disks
from tests.crashlab_tests.detection.bugs import BUGS, Bug
from tests.crashlab_tests.detection.plant import build_plant, try_bug
from tests.crashlab_tests.detection.report import HONEST, render, row_name
from tests.crashlab_tests.labs import WatchedLab, open_lab
from tests.crashlab_tests.proof_journal import Journal

pytestmark = pytest.mark.proof

CHECKOUT = Path(__file__).resolve().parents[2]
SEEDS = range(1, 21)
HONEST_SEEDS = range(1, 41)
TRIED = [(bug, recorder) for bug in BUGS for recorder in bug.recorders]
HONEST_BUGS = (Bug(HONEST, "rocksdb"), Bug(HONEST, "postgresql"))


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WatchedLab, Path]]:
    need_disks()
    folder = tmp_path_factory.mktemp("detection")
    with open_lab(folder, needs_reach=True) as lab:
        library = build_plant(lab.data)
        yield lab, library
        library.unlink()


@pytest.fixture(scope="session")
def journal() -> Journal:
    return Journal(CHECKOUT / "results" / "proof" / "detection.jsonl", commit() or "no commit")


def outcome(
    bug: Bug, recorder: str, seed: int, place: tuple[WatchedLab, Path], journal: Journal, folder: Path
) -> str:
    """The verdict on one seed, from the journal where it is there."""
    found = journal.finished(row_name(bug, recorder), seed)
    if found is None:
        tried = try_bug(bug, recorder, *place, folder, seed)
        found = journal.add(row_name(bug, recorder), seed, tried.as_json())
    return str(found["verdict"])


@pytest.mark.parametrize("seed_of_run", SEEDS)
@pytest.mark.parametrize(
    ("bug", "recorder"), [pytest.param(bug, name, id=row_name(bug, name)) for bug, name in TRIED]
)
def test_a_planted_bug_is_tried(
    bug: Bug,
    recorder: str,
    seed_of_run: int,
    place: tuple[WatchedLab, Path],
    journal: Journal,
    tmp_path: Path,
) -> None:
    """What counts is the rate, below; a run that is not believed or not judged is no rate at all."""
    assert outcome(bug, recorder, seed_of_run, place, journal, tmp_path) in ("BROKEN", "HELD")


@pytest.mark.parametrize("seed_of_run", HONEST_SEEDS)
@pytest.mark.parametrize("recorder", ["preload", "block"])
@pytest.mark.parametrize("bug", HONEST_BUGS, ids=lambda bug: bug.engine)
def test_an_honest_run_holds(
    bug: Bug,
    recorder: str,
    seed_of_run: int,
    place: tuple[WatchedLab, Path],
    journal: Journal,
    tmp_path: Path,
) -> None:
    assert outcome(bug, recorder, seed_of_run, place, journal, tmp_path) == "HELD"


@pytest.mark.parametrize(
    ("bug", "recorder"), [pytest.param(bug, name, id=row_name(bug, name)) for bug, name in TRIED]
)
def test_each_bug_is_caught_in_19_of_20_seeds(bug: Bug, recorder: str, journal: Journal) -> None:
    found = [journal.finished(row_name(bug, recorder), seed) for seed in SEEDS]
    missed = [result["seed"] for result in found if result is not None and result["verdict"] != "BROKEN"]
    assert None not in found and len(missed) <= 1, f"not caught with the seeds {missed}"


def test_the_page_is_written(journal: Journal) -> None:
    """Last in this file: whatever is finished by now is counted."""
    text = render(TRIED, journal, len(SEEDS), CHECKOUT)
    (CHECKOUT / "docs" / "detection.md").write_text(text, encoding="utf-8")
    assert text.count("\n| ") >= len(TRIED)
