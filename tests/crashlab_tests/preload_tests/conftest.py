"""Builds of the recorder and of the programs that it records."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crashlab.preload.recorder import PreloadRecorder
from tests.crashlab_tests.preload_tests.programs import (
    HERE,
    SOURCES,
    WARNINGS,
    Stage,
    build_recorder,
    compile_c,
)


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("preload-builds")


@pytest.fixture(scope="session")
def canary(builds: Path) -> Path:
    return compile_c(builds / "duratune-canary", [SOURCES / "canary.c"], *WARNINGS)


@pytest.fixture(scope="session")
def recorder(builds: Path, canary: Path) -> PreloadRecorder:
    """The recorder as it ships."""
    return PreloadRecorder(build_recorder(builds / "libduratune_record.so"), canary)


@pytest.fixture(scope="session")
def dropping_recorder(builds: Path, canary: Path) -> PreloadRecorder:
    """The test build that lets a named call pass by unrecorded."""
    library = build_recorder(builds / "libduratune_record_drop.so", "-DDURATUNE_TEST_DROP")
    return PreloadRecorder(library, canary)


@pytest.fixture(scope="session")
def exercise(builds: Path) -> Path:
    return compile_c(builds / "exercise", [HERE / "exercise.c"])


@pytest.fixture
def make_stage(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    """Makes stages; each takes its files with it when the test ends."""
    made: list[Path] = []

    def make(recorder: PreloadRecorder, log_bytes: int = 256 << 20) -> Stage:
        folder = tmp_path / f"stage{len(made)}"
        folder.mkdir()
        made.append(folder)
        return Stage.make(recorder, folder, log_bytes)

    yield make
    for folder in made:
        shutil.rmtree(folder)
