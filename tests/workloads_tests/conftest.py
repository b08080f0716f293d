"""What the tests of the driver share: the built program, its generators, small workloads, scratch ledgers."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from knobs.errors import MachineLacks
from knobs.native import find
from workloads.ycsb.properties import core
from workloads.ycsb.workload import YcsbWorkload

Vectors = Callable[[Mapping[str, object]], Any]


@pytest.fixture(scope="session")
def program() -> Path:
    try:
        return find("duratune-ycsb")
    except MachineLacks as error:
        pytest.skip(f"{error}; {error.hint}")


@pytest.fixture
def vectors(program: Path, tmp_path: Path) -> Vectors:
    """Ask the driver what its generators give."""

    def ask(spec: Mapping[str, object]) -> Any:
        path = tmp_path / f"{uuid.uuid4().hex}.spec"
        path.write_text("".join(f"{key}={value}\n" for key, value in spec.items()))
        answer = subprocess.run([program, "vectors", path], check=True, capture_output=True, text=True)
        return json.loads(answer.stdout)["values"]

    return ask


@pytest.fixture
def small(program: Path) -> Callable[[str], YcsbWorkload]:
    """A core workload over 500 records."""
    assert program.is_file()
    return lambda letter: YcsbWorkload(f"ycsb:{letter}", core(letter)).with_values({"recordcount": "500"})


@pytest.fixture
def ledger_path() -> Iterator[Path]:
    path = Path("/dev/shm") / f"duratune-test-{uuid.uuid4().hex}"
    yield path
    path.unlink(missing_ok=True)
