"""A disk that fills up under a run is the machine's: exit code 3, said so, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tuner_tests import studies
from tests.tuner_tests.studies import QUICK, run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_parts")]

SIZE = "48m"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for the controls and for no more; made and removed here, as root."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "duratune-test", str(mounted)]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    yield mounted
    subprocess.run(["umount", str(mounted)], check=True)


def test_a_disk_that_fills_up_is_told(small_disk: Path, tmp_path: Path) -> None:
    """The load fits twice, as it must before anything begins; what the run updates does not."""
    room = tmp_path / "room"
    room.mkdir()
    words = [*QUICK, "--scale", "20", "--trials", "2", "--measure", "10", "--data", str(small_disk / "data")]
    ended = run(["tune", "rocksdb", *words, "--study", "study", "--json"], room)
    assert ended.code == 3, ended.err
    error = json.loads(ended.out)["error"]
    assert error["code"] == "machine-lacks" and "space" in error["what"].lower()
    assert list(small_disk.iterdir()) == []
    studies.assert_nothing_left(room)


def test_results_on_a_full_disk_are_refused(small_disk: Path, tmp_path: Path) -> None:
    with (small_disk / "full").open("wb") as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(1 << 20))
            file.flush()
    room = tmp_path / "room"
    room.mkdir()
    ended = run(["tune", "rocksdb", *QUICK, "--study", str(small_disk / "study"), "--json"], room)
    assert ended.code == 3, ended.err
    assert "No space left" in json.loads(ended.out)["error"]["what"]
