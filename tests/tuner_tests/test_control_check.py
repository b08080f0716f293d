"""Doctor runs the lab's controls: a lab that catches nothing makes it end with 4."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engines.engine import ControlSettings
from engines.rocksdb.engine import CONTROLS, SYNC, RocksdbEngine
from engines.scratch import left_behind
from knobs import native
from knobs.rocksdb.options_file import OptionsFile
from tuner import cli, control_check
from tuner.checks import Look
from tuner.kinds import rocksdb as kinds

pytestmark = pytest.mark.usefixtures("native_parts")

HONEST = {SYNC: "true"}


def gullible(base: OptionsFile, column_family: str) -> RocksdbEngine:
    """Its lossy control of power cuts loses nothing, as if a lab had cut the power of nothing."""
    return RocksdbEngine(
        base, column_family, controls={**CONTROLS, "synced": ControlSettings(lossy=HONEST, honest=HONEST)}
    )


@pytest.mark.slow
def test_a_control_that_catches_nothing_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kinds, "RocksdbEngine", gullible)
    assert cli.main(["doctor", "--json", "--quiet"]) == 4
    checks = json.loads(capsys.readouterr().out)["checks"]
    found = {check["name"]: check for check in checks if check["name"].startswith("control ")}
    wrong = [name for name, check in found.items() if check["state"] == "wrong"]
    assert wrong == ["control synced.lossy"] and len(found) >= 6
    assert found["control synced.lossy"]["what"].startswith("HELD, must be BROKEN")
    assert {check["state"] for name, check in found.items() if name not in wrong} == {"ok"}
    assert left_behind() == [] and list(tmp_path.rglob("duratune-*")) == []


def test_controls_that_cannot_run_are_told_and_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        native.PARTS, "planted", native.NativePart("planted", "is driven", ("libplanted-dev",))
    )
    (found,) = control_check.controls(Look(tmp_path))
    assert (found.name, found.state) == ("controls", "warning") and "not run" in found.what
