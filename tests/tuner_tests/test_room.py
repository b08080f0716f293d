"""What does not fit this machine is refused before a load, and what nobody means is refused at all."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from pathlib import Path

import pytest

from engines.rocksdb.engine import RocksdbEngine
from knobs.errors import InvalidInput, MachineLacks
from tests.tuner_tests.crash_runs import Room
from tests.tuner_tests.program import PROGRAM
from tests.tuner_tests.requests import request_of, ycsb_of
from tuner import checks, control_check, room
from tuner.checks import Look
from tuner.kinds import ycsb
from tuner.request import open_lab

pytestmark = pytest.mark.usefixtures("native_parts")


def test_the_predicted_size_is_that_of_a_loaded_database(tmp_path: Path) -> None:
    """Without compression, a load's files are as large as predicted, give or take tables' own overhead."""
    request = request_of("compression=kNoCompression", properties=("fieldlength=500",))
    request.workload.load(request.engine.launch(request.settings, tmp_path), tmp_path, 1)
    found = sum(
        path.stat().st_size for path in (tmp_path / "db").iterdir() if path.suffix in (".sst", ".log")
    )
    assert found == pytest.approx(ycsb.data_bytes(ycsb_of(request)), rel=0.1)


def test_a_load_that_cannot_fit_is_refused_with_what_it_needs(tmp_path: Path) -> None:
    free_bytes = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    one = ycsb.record_bytes(ycsb_of(request_of()).properties)
    scale = free_bytes // one // 1_000 // ycsb.DATA_COPIES
    with open_lab(request_of(scale=scale // 2), tmp_path, None):
        pass
    with (
        pytest.raises(MachineLacks, match=r"MiB of space needed, .* MiB free"),
        open_lab(request_of(scale=scale * 2), tmp_path, None),
    ):
        pass
    assert not list(tmp_path.glob("duratune-*"))


@pytest.mark.parametrize(
    ("words", "option", "limit"),
    [
        (("--scale", "99999999999"), "--scale", "1000000"),
        (("--operations", "99999999999"), "--operations", "1000000"),
        (("--measure", "2h"), "--measure", "3600"),
        (("--measure", "soon"), "--measure", "is no time"),
        (("--time", "99999999h"), "--time", "longer than"),
        (("-p", "recordcount=99999999999999"), "-p", "1000000000"),
        (("-p", "fieldlength=9999999999"), "-p", str(1 << 30)),
    ],
    ids=" ".join,
)
def test_what_nobody_means_is_refused_with_the_limit(
    tmp_path: Path, words: tuple[str, ...], option: str, limit: str
) -> None:
    place = Room.make(tmp_path)
    ended = place.run("crash", "rocksdb", *words, "--json")
    assert ended.code == 2, ended
    error = ended.document["error"]
    assert option in f"{error['where']} {error['what']}" and limit in error["what"] and error["hint"]
    assert list(place.folder.iterdir()) == []


def test_shared_memory_is_there_writable_and_large_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.check_shared_memory()
    with pytest.raises(MachineLacks, match="not there"):
        room.check_shared_memory(tmp_path / "nothing")
    monkeypatch.setattr(room, "SHARED_MEMORY_BYTES_MIN", 1 << 60)
    with pytest.raises(MachineLacks, match="of shared memory free"):
        room.check_shared_memory()
    # Doctor says the same, and lets no control die of it.
    (found,) = checks.shared_memory(Look(tmp_path))
    assert found.state == "lacks" and "needed" in found.what
    (found,) = control_check.controls(Look(tmp_path))
    assert (found.name, found.state) == ("controls", "warning") and "/dev/shm" in found.what


@pytest.mark.slow
@pytest.mark.parametrize("options", ["size=64k", "size=100m,ro"])
def test_doctor_and_crash_lack_the_same(tmp_path: Path, options: str) -> None:
    """In a mount namespace of its own, where /dev/shm is another one."""
    mount = f'mount -t tmpfs -o {options} duratune-test /dev/shm && exec "$@"'
    inside = ["unshare", "-m", "sh", "-c", mount, "sh"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespace can be made here")
    for words in (("doctor", "--json"), ("crash", "rocksdb", "--json", "--quiet")):
        done = subprocess.run(
            [*inside, *PROGRAM, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 3, done
        document = json.loads(done.stdout)
        if words[0] == "doctor":
            states = {check["name"]: check["state"] for check in document["checks"]}
            assert (states["/dev/shm"], states["controls"]) == ("lacks", "warning")
        else:
            assert document["error"]["where"] == "/dev/shm" and document["error"]["hint"]
    assert list(tmp_path.iterdir()) == []


def _little_to_map() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))


def test_a_limit_on_what_is_mapped_is_the_machines(tmp_path: Path) -> None:
    ended = Room.make(tmp_path).run("crash", "rocksdb", "--json", before=_little_to_map)
    assert ended.code == 3, ended
    error = ended.document["error"]
    assert (error["where"], error["hint"]) == ("RLIMIT_AS", "ulimit -v unlimited")


def test_the_help_tells_the_engines_default_contract(tmp_path: Path) -> None:
    ended = Room.make(tmp_path).run("crash", "--help")
    words = " ".join(ended.out.replace("\u2502", " ").split())
    assert f"{RocksdbEngine().default_contract} for rocksdb" in words


def test_a_folder_without_a_name_is_refused(tmp_path: Path) -> None:
    place = Room.make(tmp_path)
    for option in ("--study", "--data"):
        ended = place.run("crash", "rocksdb", option, "", "--json")
        assert ended.code == 2 and "names no folder" in ended.document["error"]["what"]


def test_two_counts_contradict_each_other() -> None:
    with pytest.raises(InvalidInput, match="recordcount=7 contradicts --scale 3") as caught:
        request_of(properties=("recordcount=7",), scale=3)
    assert caught.value.where == "--scale"
    assert request_of(properties=("recordcount=3000",), scale=3).workload.initial_records == 3_000


def test_a_property_that_is_wrong_has_a_hint() -> None:
    with pytest.raises(InvalidInput) as caught:
        request_of(properties=("feldlength=7",))
    assert (caught.value.where, caught.value.hint) == ("-p", "did you mean fieldlength?")
    with pytest.raises(InvalidInput) as caught:
        request_of(properties=("fieldlength=0",))
    assert caught.value.where == "-p" and caught.value.hint


def test_proportions_are_weights_and_that_is_told() -> None:
    assert request_of().findings == ()
    (found,) = request_of(properties=("readproportion=2",)).findings
    assert (found.rule, found.value) == ("proportions-scaled", "2.5")
    assert "readproportion 0.8, updateproportion 0.2" in found.why
