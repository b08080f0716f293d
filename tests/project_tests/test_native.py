from __future__ import annotations

import os
from pathlib import Path

import pytest

from knobs import native
from knobs.errors import MachineLacks
from knobs.native import PARTS, find

CHECKOUT = Path(__file__).resolve().parents[2]


def test_the_folder_in_the_environment_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "duratune-ycsb").write_text("")
    monkeypatch.setenv(native.FOLDER_VARIABLE, str(tmp_path))
    assert find("duratune-ycsb") == tmp_path / "duratune-ycsb"


@pytest.mark.parametrize("folder", ["", "nowhere"])
def test_a_folder_in_the_environment_is_never_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """A misspelt folder, or one that lacks the part: another build than the named one would run instead."""
    monkeypatch.setenv(native.FOLDER_VARIABLE, str(tmp_path / folder))
    with pytest.raises(MachineLacks) as caught:
        find("duratune-ycsb")
    assert caught.value.where == f"{native.FOLDER_VARIABLE}={tmp_path / folder}"
    assert ("no such folder" if folder else "does not hold duratune-ycsb") in caught.value.what
    assert native.FOLDER_VARIABLE in caught.value.hint
    assert [part.name for part in native.missing()] == list(PARTS)


def test_what_is_nowhere_is_told_with_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARTS, "planted", native.NativePart("planted", "does nothing", ("libplanted-dev",)))
    with pytest.raises(MachineLacks, match="planted, which does nothing, was not built") as caught:
        find("planted")
    assert "libplanted-dev" in caught.value.hint and caught.value.exit_code == 3
    assert native.missing()[-1].name == "planted"
    assert native.main() == 3


def test_an_unknown_name_is_no_crash() -> None:
    with pytest.raises(MachineLacks, match="nothing-like-that"):
        find("nothing-like-that")


@pytest.mark.parametrize("name", PARTS)
def test_what_is_found_is_a_program_or_library(name: str) -> None:
    try:
        path = find(name)
    except MachineLacks as error:
        pytest.skip(str(error))
    assert path.read_bytes()[:4] == b"\x7fELF"
    assert name.endswith(".so") or os.access(path, os.X_OK)


def test_the_named_packages_are_those_that_make_installs() -> None:
    lines = (CHECKOUT / "system-packages.txt").read_text().splitlines()
    listed = {line for line in lines if line and not line.startswith("#")}
    named = {package for part in PARTS.values() for package in part.packages}
    assert named - listed <= {"gcc"}  # It comes with g++.
