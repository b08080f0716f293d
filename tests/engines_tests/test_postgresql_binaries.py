from __future__ import annotations

import os
from pathlib import Path

import pytest

from engines.postgresql import binaries
from engines.postgresql.binaries import Binaries, Version, find, parse_version
from knobs.errors import InvalidInput, MachineLacks

PROGRAMS = ("postgres", "initdb", "pg_controldata", "pg_checksums", "pgbench", "pg_amcheck")


def plant(folder: Path, version: str, without: str = "") -> Path:
    """An installation whose programs are scripts that say this version."""
    folder.mkdir(parents=True)
    for program in PROGRAMS:
        if program != without:
            path = folder / program
            path.write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
            path.chmod(0o755)
    return folder


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "debian"
    monkeypatch.setattr(binaries, "DEBIAN_FOLDER", folder)
    return folder


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", Version(15, 18)),
        ("postgres (PostgreSQL) 18.6\n", Version(18, 6)),
        ("postgres (PostgreSQL) 19devel\n", Version(19, 0)),
        ("postgres (PostgreSQL) 17beta2\n", Version(17, 0)),
        ("postgres (Something) 15.18\n", None),
        ("", None),
    ],
)
def test_the_version(text: str, version: Version | None) -> None:
    assert parse_version(text) == version


def test_the_newest_is_taken_and_this_is_said(debian: Path) -> None:
    plant(debian / "9.6" / "bin", "9.6.24")
    plant(debian / "15" / "bin", "15.18")
    plant(debian / "17" / "bin", "17.2")
    plant(debian / "19" / "bin", "19.1")
    found = find()
    assert (found.folder, found.version) == (debian / "17" / "bin", Version(17, 2))
    assert "the newest" in found.note and "15.18" in found.note and "9.6" not in found.note


def test_one_alone_needs_no_note(debian: Path) -> None:
    plant(debian / "15" / "bin", "15.18")
    assert find().note == ""


def test_the_path_is_looked_at_last(debian: Path, tmp_path: Path) -> None:
    elsewhere = plant(tmp_path / "elsewhere", "16.1")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "postgres").symlink_to(elsewhere / "postgres")
    assert find(search_path=str(tmp_path / "links")).folder == elsewhere
    plant(debian / "15" / "bin", "15.18")
    assert find(search_path=str(elsewhere)).version.major == 15


def test_none_is_told_with_the_package(debian: Path) -> None:
    with pytest.raises(MachineLacks, match="no PostgreSQL 13 to 18") as caught:
        find(search_path="")
    assert "package postgresql" in caught.value.hint
    plant(debian / "12" / "bin", "12.1")
    with pytest.raises(MachineLacks, match=r"found only 12\.1"):
        find(search_path="")


@pytest.mark.parametrize(
    ("program", "package"), [("pgbench", "postgresql-15"), ("pg_amcheck", "postgresql-client-15")]
)
def test_a_missing_program_is_told_with_its_package(debian: Path, program: str, package: str) -> None:
    folder = plant(debian / "15" / "bin", "15.18", without=program)
    with pytest.raises(MachineLacks, match=f"lacks {program}") as caught:
        find()
    assert caught.value.hint.endswith(f" {package}") and caught.value.where == str(folder)


def test_thirteen_has_no_amcheck_program(debian: Path) -> None:
    plant(debian / "13" / "bin", "13.9", without="pg_amcheck")
    found = find()
    with pytest.raises(MachineLacks, match="lacks pg_amcheck"):
        found.program("pg_amcheck")


def test_a_named_folder_is_the_one_that_is_used(debian: Path, tmp_path: Path) -> None:
    plant(debian / "17" / "bin", "17.2")
    named = plant(tmp_path / "named" / "bin", "14.3")
    assert find(named).folder == named
    with pytest.raises(InvalidInput) as caught:
        find(named.parent)
    assert caught.value.hint == f"name {named}"
    with pytest.raises(InvalidInput, match=r"PostgreSQL 12\.4"):
        find(plant(tmp_path / "old", "12.4"))


def test_an_unpacked_one_names_its_libraries(tmp_path: Path) -> None:
    folder = plant(tmp_path / "unpacked" / "bin", "17.2")
    assert find(folder).environment() == {}
    (tmp_path / "unpacked" / "lib").mkdir()
    (tmp_path / "unpacked" / "lib" / "libpq.so.5").write_text("")
    assert find(folder).environment() == {"LD_LIBRARY_PATH": str(tmp_path / "unpacked" / "lib")}


def test_this_machine(installed: Binaries) -> None:
    assert 13 <= installed.version.major <= 18
    assert os.access(installed.program("pgbench"), os.X_OK)
