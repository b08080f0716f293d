"""The proof's journal: goes on where it stopped, starts anew for another commit, survives a torn line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crashlab_tests.proof_journal import KEEP_VARIABLE, Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    journal = Journal(tmp_path / "proof" / "journal.jsonl", "one")
    journal.add("row", 1, {"faults": []})
    journal.add("row", 2, {"faults": ["what"]})
    return tmp_path / "proof" / "journal.jsonl"


def test_what_is_finished_is_not_run_again(path: Path) -> None:
    again = Journal(path, "one")
    assert again.finished("row", 2) == {"row": "row", "seed": 2, "faults": ["what"]}
    assert again.finished("row", 3) is None
    again.add("row", 3, {})
    assert set(Journal(path, "one").results) == {("row", 1), ("row", 2), ("row", 3)}


def test_a_torn_line_is_run_again(path: Path) -> None:
    path.write_text(path.read_text()[:-5])
    assert set(Journal(path, "one").results) == {("row", 1)}


def test_another_commit_starts_anew_and_the_old_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEEP_VARIABLE, raising=False)
    old = path.read_text()
    assert Journal(path, "two").results == {}
    assert path.with_name("journal-one.jsonl").read_text() == old


def test_results_of_another_commit_may_be_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEEP_VARIABLE, "1")
    kept = Journal(path, "two")
    assert len(kept.results) == 2
    assert kept.commits == ["one", "two"]
