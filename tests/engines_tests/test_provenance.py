from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from engines.provenance import commit, provenance, version

CHECKOUT = Path(__file__).resolve().parents[2]


def test_it_is_json_and_names_what_a_reader_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/some/bin/duratune", "crash", "rocksdb", "--set", "a b=1"])
    found = json.loads(json.dumps(provenance(tmp_path, seed=7)))
    assert found["command"] == "duratune crash rocksdb --set 'a b=1'"
    assert found["seed"] == 7
    assert found["duratune"] == {"version": version(), "commit": commit()}
    assert datetime.fromisoformat(found["started_at"]).tzinfo is not None
    assert set(found["limits"]) == {"memory_bytes", "cpus", "open_files"}
    for key in ("kernel", "file_system", "mount_options", "device", "cpu", "memory_bytes"):
        assert found[key], key


@pytest.mark.skipif(not (CHECKOUT / ".git").exists(), reason="not a checkout")
def test_the_commit_is_the_checkouts() -> None:
    head = subprocess.run(
        ["git", "-C", str(CHECKOUT), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout
    found = commit()
    assert found is not None and head.startswith(found.removesuffix("+changes"))


@pytest.mark.parametrize(("path", "counts"), [("docs/bench.md", False), ("README.md", False), ("a.py", True)])
def test_only_a_change_of_what_runs_counts(
    path: str, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("docs/bench.md", "README.md", "a.py", "CMakeLists.txt", "knobs/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("before")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@x"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *arguments], check=True)
    monkeypatch.setattr("knobs.__path__", [str(tmp_path / "knobs")])
    clean = commit()
    assert clean is not None and not clean.endswith("+changes")
    (tmp_path / path).write_text("after")
    assert commit() == clean + ("+changes" if counts else "")
