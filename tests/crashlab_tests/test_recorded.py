"""A recorded run's folder: what is written about it is read again, and a damaged one is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crashlab.recording.recorded import Facts, load_owners, save_owners
from knobs.errors import InvalidInput
from tests.crashlab_tests.runs import facts


@pytest.mark.parametrize("register_per_write", [True, False])
def test_facts_are_read_as_they_were_written(tmp_path: Path, register_per_write: bool) -> None:
    made = facts(
        register_per_write=register_per_write,
        faults=("a", "b"),
        notes=("c",),
        base_inodes={"db/x": 7},
        folder_inodes={"db": 6},
    )
    made.save(tmp_path)
    assert Facts.load(tmp_path) == made


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 1}, "another version"),
        ({"register_per_write": None, "gone": True}, "damaged recording"),
        ({"faults": 7}, "damaged recording"),
    ],
)
def test_a_folder_of_another_version_or_a_damaged_one_is_told(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    facts().save(tmp_path)
    path = tmp_path / "facts.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InvalidInput, match=words):
        Facts.load(tmp_path)


def test_a_folder_without_a_recording(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no recording here"):
        Facts.load(tmp_path)


def test_whose_each_transaction_was(tmp_path: Path) -> None:
    assert load_owners(tmp_path) == {}
    owners = {731: [(1, 1)], 2**32 - 1: [(999_999, 10**12 - 1), (1, 2)]}
    save_owners(tmp_path, owners)
    assert load_owners(tmp_path) == owners
