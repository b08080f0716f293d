"""Planted bugs, once each with the run's seed; `make proof` has all of them over all seeds, with rates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crashlab.judging.verdict import Verdict
from tests.crashlab_tests.block_tests.disks import need_disks
from tests.crashlab_tests.detection.bugs import BUGS, Bug
from tests.crashlab_tests.detection.plant import build_plant, try_bug
from tests.crashlab_tests.labs import WatchedLab, open_lab

pytestmark = pytest.mark.slow

# Those of RocksDB that lose something at every cut, and for each recorder one that does not sync a log.
CERTAIN = [
    (bug, recorder)
    for bug in BUGS
    for recorder in bug.recorders
    if bug.engine == "rocksdb"
    and bug.name
    in {
        "every sync ignored",
        "the manifest not synced",
        "the wrong file synced",
        "a stale recycled log is replayed",
        "a file system without barriers",
    }
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WatchedLab, Path]]:
    folder = tmp_path_factory.mktemp("detection")
    with open_lab(folder) as lab:
        yield lab, build_plant(folder)


@pytest.mark.parametrize(
    ("bug", "recorder"), [pytest.param(bug, name, id=f"{name}: {bug.name}") for bug, name in CERTAIN]
)
def test_it_is_caught(
    bug: Bug, recorder: str, place: tuple[WatchedLab, Path], seed: int, tmp_path: Path
) -> None:
    if recorder == "block":
        need_disks()
    found = try_bug(bug, recorder, *place, tmp_path, seed)
    assert (found.verdict, found.why) == (Verdict.BROKEN, "")


@pytest.mark.parametrize("recorder", ["preload", "block"])
def test_without_a_bug_nothing_is_found(
    recorder: str, place: tuple[WatchedLab, Path], seed: int, tmp_path: Path
) -> None:
    if recorder == "block":
        need_disks()
    found = try_bug(Bug("none", "rocksdb"), recorder, *place, tmp_path, seed)
    assert (found.verdict, found.reasons, found.why) == (Verdict.HELD, (), "")
