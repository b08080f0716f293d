"""The recorder's options: what they choose, what they refuse, and how they are typed again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from crashlab.block import recorder as block
from crashlab.models import MODELS
from crashlab.preload.recorder import PreloadRecorder
from knobs.errors import InvalidInput, MachineLacks
from tests.crashlab_tests.block_tests.disks import need_disks
from tests.tuner_tests.crash_runs import Room
from tests.tuner_tests.requests import request_of
from tuner.checks import Look, recorders
from tuner.recorders import RecorderChoice

QUICK = ("--states", "9", "--time", "0.3", "--operations", "600", "--scale", "1", "--seed", "5")


def test_the_default_needs_nothing_and_is_not_typed_again() -> None:
    chosen = RecorderChoice.of("preload", None, None)
    assert chosen == RecorderChoice() and (chosen.options, chosen.in_words) == ([], "")
    assert isinstance(chosen.made(None), PreloadRecorder)
    assert chosen.judging(list(MODELS)) == list(MODELS)


def test_a_virtual_disk_has_a_file_system_and_only_its_own_rule_of_names() -> None:
    chosen = RecorderChoice.of("block", None, "data=journal")
    assert chosen.options == [
        "--recorder", "block", "--file-system", "ext4", "--mount-options", "data=journal"
    ]  # fmt: skip
    assert "ext4" in chosen.in_words and "data=journal" in chosen.in_words
    assert chosen == RecorderChoice.recorded("block", "ext4 data=journal")
    assert RecorderChoice.of("block", "xfs", None) == RecorderChoice.recorded("block", "xfs")
    assert not any(name.endswith("-posix") for name in chosen.judging(list(MODELS)))
    request = replace(request_of(), recorder=chosen)
    assert request.judging_options == chosen.options
    assert sum(request.states(30).values()) == 30 and "synced-posix" not in request.states(30)


@pytest.mark.parametrize(
    ("given", "what", "where"),
    [
        (("block", "ntfs", None), "no file system 'ntfs'", "--file-system"),
        (("block", None, None, "posix"), "names by its own rule", "--metadata"),
        (("preload", "xfs", None), "only a virtual disk", "--file-system"),
        (("preload", None, "noatime"), "only a virtual disk", "--mount-options"),
    ],
)
def test_what_does_not_go_together_is_refused(given: tuple[str, ...], what: str, where: str) -> None:
    with pytest.raises(InvalidInput, match=what) as refused:
        RecorderChoice.of(*given)  # type: ignore[arg-type]  # posix is one of two words
    assert refused.value.where.startswith(where) and refused.value.hint


def test_a_machine_without_it_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(block, "FUSE", tmp_path / "none")
    with pytest.raises(MachineLacks) as lacking:
        RecorderChoice.of("block", None, None).made(None)
    assert "--recorder preload" in lacking.value.hint
    said = {check.name: check for check in recorders(Look(tmp_path))}
    assert said["recorder block"].state == "warning" and said["recorder block"].hint == lacking.value.hint


@pytest.mark.slow
def test_a_run_on_a_virtual_disk_is_told_and_replayed(tmp_path: Path) -> None:
    need_disks()
    room = Room.make(tmp_path)
    words = ("crash", "rocksdb", *QUICK, "--contract", "strict", "--recorder", "block", "--study", "run")
    ended = room.run(*words, "--file-system", "xfs", "--set", "sync=true", "--json")
    document = ended.document
    assert (ended.code, document["verdict"]) == (0, "HELD"), ended
    assert document["provenance"]["recorder"] == "block"
    assert set(document["power_cut"]["models"]) == {"synced", "torn", "torn-512", "reordered"}
    state = next(each for each in document["states"] if each["model"] == "reordered")
    again = room.run("crash", "rocksdb", "--study", "run", "--replay", state["id"], "--json")
    assert (again.code, again.document["verdict"]) == (0, "HELD"), again
    assert json.loads((room.folder / "run/recording/facts.json").read_text())["file_system"] == "xfs"
    refused = room.run("crash", "rocksdb", "--study", "run", "--replay", "synced-posix@9#1")
    assert refused.code == 2 and "has no control" in refused.err
    broken = room.run(*QUICK_BARRIER, "--study", "lost")
    assert broken.code == 1 and "did not keep what syncs" in broken.out, broken
    assert "recorder       block: ext4 on a virtual disk" in broken.out
    assert room.left_behind() == []


QUICK_BARRIER = (
    "crash", "rocksdb", *QUICK, "--contract", "strict", "--set", "sync=true", "--recorder", "block",
    "--mount-options", "barrier=0",
)  # fmt: skip
