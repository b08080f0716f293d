from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.lock import LOCK_NAME, exclusive
from knobs.contract import Contract
from knobs.errors import InvalidInput, MachineLacks
from tuner import folders


@pytest.mark.parametrize(
    ("workload", "contract", "name"),
    [
        ("ycsb:a", "process", "rocksdb-ycsb-a-process"),
        ("ycsb:my/Load.properties", "strict", "rocksdb-ycsb-my-load.properties-strict"),
        ("ycsb:a", "bounded:500ms,recovery=30s", "rocksdb-ycsb-a-bounded-500ms-recovery-30s"),
    ],
)
def test_a_study_is_named_after_what_it_is_for(workload: str, contract: str, name: str) -> None:
    assert folders.default_name("rocksdb", workload, Contract.parse(contract)) == name
    assert folders.default_name("rocksdb", workload, Contract.parse(contract), "audit-") == f"audit-{name}"


@given(st.text(min_size=1))
def test_no_workload_leads_out_of_the_results(workload: str) -> None:
    name = folders.default_name("rocksdb", workload, Contract("strict"))
    assert re.fullmatch(r"[a-z0-9.-]+", name) and name not in (".", "..")


def test_the_first_number_that_is_free(tmp_path: Path) -> None:
    wanted = tmp_path / "study"
    for expected in ("study", "study-2", "study-3"):
        found = folders.numbered(wanted)
        assert found.name == expected
        assert folders.make(found) == found and found.is_dir() and list(found.iterdir()) == []
    (tmp_path / "study-2").rmdir()
    assert folders.numbered(wanted).name == "study-2"


def test_a_folder_that_is_there_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    assert folders.make(tmp_path) == tmp_path and (tmp_path / "kept").read_text() == "mine"


@pytest.mark.parametrize("place", ["a file", "below a file", "a kernel's folder"])
def test_what_cannot_be_written_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    path = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "study",
        "a kernel's folder": Path("/proc/duratune"),
    }[place]
    with pytest.raises(InvalidInput) as caught:
        folders.make(path)
    assert caught.value.where == str(path) and "--study" in caught.value.hint


def test_what_is_no_folder_is_told_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="is a file"):
        folders.make(tmp_path / "file")
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(InvalidInput, match="is a symbolic link to nowhere, which is not there"):
        folders.make(tmp_path / "link")
    (tmp_path / "good").symlink_to(tmp_path / "there")
    (tmp_path / "there").mkdir()
    assert folders.make(tmp_path / "good").is_dir()


def killed_run(folder: Path) -> None:
    """What a run leaves that was killed while it recorded."""
    (folder / folders.RECORDING).mkdir(parents=True)
    (folder / LOCK_NAME).write_text('{"pid": 1}')


def test_what_a_killed_run_left_goes_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run", "run-2", "run-3", "run-4", "run-5"):
        killed_run(folders.RESULTS / name)
    (folders.RESULTS / "run-2" / "crash.json").write_text("{}")
    (folders.RESULTS / "run-3" / "notes").write_text("mine")
    (folders.RESULTS / "run-4" / LOCK_NAME).write_text("")
    with exclusive(folders.RESULTS / "run-5"):
        assert folders.for_one_run(None, "run").name == "run"
        left = {path.name for path in folders.RESULTS.iterdir() if (path / folders.RECORDING).exists()}
    assert left == {"run-2", "run-3", "run-4", "run-5"}


@pytest.mark.parametrize("others", [False, True])
def test_no_empty_results_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: bool) -> None:
    monkeypatch.chdir(tmp_path)
    if others:
        folders.make(folders.RESULTS / "other")
    with folders.kept_with(folders.for_one_run(None, "run"), "crash.json"):
        pass
    assert folders.RESULTS.exists() is others
    assert not (folders.RESULTS / "run").exists()


def test_a_full_disk_is_the_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(MachineLacks, match="No space left"):
        folders.make(tmp_path / "study")


def test_a_run_goes_where_it_is_told_or_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A named folder that holds something is refused; only the default's are numbered."""
    monkeypatch.chdir(tmp_path)
    named = tmp_path / "mine"
    for _ in range(2):
        assert folders.for_one_run(named, "name") == named, "an empty one is as good as none"
    (named / "crash.json").write_text("kept")
    with pytest.raises(InvalidInput, match="holds something already") as caught:
        folders.for_one_run(named, "name")
    assert caught.value.where == str(named)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert [folders.for_one_run(None, "name").name for _ in range(2)] == ["name", "name-2"]


def test_a_folder_without_what_was_looked_for_goes_again(tmp_path: Path) -> None:
    for found in ("", "study.db", "trial-0000"):
        folder = folders.make(tmp_path / "study")
        with pytest.raises(KeyboardInterrupt), folders.kept_with(folder, "study.db", "trial-*"):
            (folder / "study.json").write_text("{}")
            if found:
                (folder / found).write_text("")
            raise KeyboardInterrupt
        assert folder.exists() is bool(found)


def test_a_name_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not UTF-8"):
        folders.make(tmp_path / "m\udcff")
    assert list(tmp_path.iterdir()) == []
