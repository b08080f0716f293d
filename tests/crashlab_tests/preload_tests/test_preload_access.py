"""What processes of another user are let at: the files and libraries of the recorder, and nothing else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from crashlab.preload.access import opened_to

SOMEBODY = (65_533, 65_532)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o700)
    for name in ("ledger", "processes", "other"):
        (folder / name).touch(mode=0o600)
    return folder


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "closed" / "libduratune_record.so"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"code")
    path.chmod(0o600)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def owner(path: Path) -> tuple[int, int]:
    return path.stat().st_uid, path.stat().st_gid


def test_nothing_changes_for_processes_of_this_user(shared: Path, library: Path) -> None:
    asked = {"LD_PRELOAD": str(library), "DURATUNE_RECORD_LEDGER": "x"}
    assert opened_to(None, shared, [shared / "ledger"], asked) == asked
    assert mode(shared) == 0o700 and sorted(path.name for path in shared.iterdir()) == [
        "ledger",
        "other",
        "processes",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_another_user_gets_the_files_and_a_library_that_it_can_read(shared: Path, library: Path) -> None:
    asked = {"LD_PRELOAD": str(library), "DURATUNE_RECORD_LEDGER": "x"}
    files = [shared / "ledger", shared / "processes"]
    opened = opened_to(SOMEBODY, shared, files, asked)
    copy = shared / library.name
    assert opened == {**asked, "LD_PRELOAD": str(copy)}
    assert (copy.read_bytes(), mode(copy)) == (b"code", 0o555)
    assert all(owner(path) == SOMEBODY and mode(path) == 0o600 for path in files)
    # The folder is passed and not listed, and what was not named stays closed.
    assert mode(shared) == 0o711 and owner(shared) == (os.geteuid(), os.getegid())
    assert owner(shared / "other") == (os.geteuid(), os.getegid())
    assert (mode(library), owner(library)) == (0o600, (os.geteuid(), os.getegid()))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_libraries_keep_their_order_and_one_that_the_loader_looks_up_its_name(
    shared: Path, library: Path
) -> None:
    asked = {"LD_PRELOAD": f"libjemalloc.so.2 {library}"}
    opened = opened_to(SOMEBODY, shared, [], asked)
    assert opened["LD_PRELOAD"] == f"libjemalloc.so.2 {shared / library.name}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_two_libraries_of_one_name_stay_two(shared: Path, library: Path, tmp_path: Path) -> None:
    first = tmp_path / "first" / library.name
    first.parent.mkdir()
    first.write_bytes(b"other code")
    copies = opened_to(SOMEBODY, shared, [], {"LD_PRELOAD": f"{first} {library}"})["LD_PRELOAD"].split()
    assert [Path(copy).read_bytes() for copy in copies] == [b"other code", b"code"]
    assert all(mode(Path(copy)) == 0o555 for copy in copies)
