from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from engines.scratch import state_folder
from knobs import native
from tests.engines_tests.programs import first_line, python, running
from tests.engines_tests.test_scratch import HOLDER
from tuner import checks, cli
from tuner.checks import CHECKS, Check, Look
from tuner.commands.doctor import exit_code

STATES = {"ok", "warning", "lacks", "wrong"}


def document(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
    code = cli.main(["doctor", "--json", "--quiet", *words])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def part_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A native part that is not built. Doctor then runs no controls, which take seconds: what these tests
    are about does not depend on them, and test_the_report_agrees_with_the_exit_code runs them."""
    part = native.NativePart("planted", "is driven", ("libplanted-dev",))
    monkeypatch.setitem(native.PARTS, "planted", part)
    # With a folder named there the hint is about the folder.
    monkeypatch.delenv(native.FOLDER_VARIABLE, raising=False)


def left_folder(parent: Path) -> Path:
    with running(python(HOLDER, str(parent))) as process:
        folder = Path(first_line(process).split()[0])
        process.kill()
        process.wait()
    return folder


@pytest.mark.slow
def test_the_report_agrees_with_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = document(capsys)
    states = {check["state"] for check in found["checks"]}
    assert states <= STATES
    assert code == (3 if "lacks" in states else 0)
    assert all(check["hint"] for check in found["checks"] if check["state"] == "lacks")
    assert {"schema", "provenance", "checks"} <= set(found)
    assert any(check["name"].startswith("control") for check in found["checks"])
    assert [c["what"] for c in found["checks"] if c["name"] == "left behind"] == ["nothing"]


@pytest.mark.usefixtures("part_missing")
def test_the_human_report_has_a_line_per_check(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["doctor"])
    out = capsys.readouterr().out
    for name in ("machine", "python", "librocksdb", "recorder preload", "/dev/shm", "left behind"):
        assert name in out


@pytest.mark.parametrize(
    ("states", "code"),
    [(["ok"], 0), (["ok", "warning"], 0), (["lacks", "warning"], 3), (["lacks", "wrong"], 4)],
)
def test_the_worst_state_decides(states: list[checks.CheckState], code: int) -> None:
    assert exit_code([Check("planted", state, "") for state in states]) == code


@pytest.mark.usefixtures("part_missing")
def test_a_wrong_control_ends_with_4(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def control(_look: Look) -> Iterable[Check]:
        yield Check("control", "wrong", "the lossy run came out HELD", "no verdict of this machine counts")

    monkeypatch.setattr(checks, "CHECKS", CHECKS)
    CHECKS.append(control)
    try:
        code, found = document(capsys)
    finally:
        CHECKS.remove(control)
    assert code == 4 and "control" in {check["name"] for check in found["checks"]}


@pytest.mark.usefixtures("part_missing")
def test_what_is_left_behind_is_told_and_only_clean_removes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = left_folder(tmp_path)
    _, found = document(capsys)
    assert str(folder) in [check["what"] for check in found["checks"] if check["name"] == "left behind"]
    assert folder.exists()
    _, found = document(capsys, "--clean")
    assert f"removed {folder}" in [check["what"] for check in found["checks"]]
    assert not folder.exists() and not list((state_folder() / "manifests").iterdir())
    _, found = document(capsys)
    assert [c["what"] for c in found["checks"] if c["name"] == "left behind"] == ["nothing"]


@pytest.mark.usefixtures("part_missing")
def test_a_missing_part_is_told_with_its_packages(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = document(capsys)
    (check,) = [check for check in found["checks"] if check["name"] == "planted"]
    assert code == 3 and check["state"] == "lacks" and "libplanted-dev" in check["hint"]


def test_a_recorder_that_cannot_be_loaded_is_no_recorder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libduratune_record.so").write_text("not a library")
    monkeypatch.setenv(native.FOLDER_VARIABLE, str(tmp_path))
    preload = next(iter(checks.recorders(Look(tmp_path))))
    assert preload.state == "lacks" and "cannot be" in preload.what


def test_a_data_folder_on_tmpfs_is_warned_of() -> None:
    (found,) = checks.data_folder(Look(Path("/dev/shm/results")))
    assert found.state == "warning" and "strict" in found.what


def test_a_second_owner_of_an_import_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "rival-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rival\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("knobs\n")
    (info / "RECORD").write_text("")
    assert list(checks.import_names(Look(tmp_path))) == []
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = checks.import_names(Look(tmp_path))
    assert found.state == "warning" and "'knobs' also belongs to rival" in found.what
