from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines import scratch
from engines.scratch import MARKER_NAME, Scratch, left_behind, state_folder, sweep
from knobs.errors import InvalidInput, MachineLacks
from tests.engines_tests.programs import first_line, python, running

# Makes a folder with content and a shared memory file, names them, and stays.
HOLDER = """
import sys, time
from pathlib import Path
from engines.scratch import Scratch
with Scratch() as scratch:
    folder = scratch.folder(Path(sys.argv[1]), "data")
    (folder / "deep").mkdir()
    (folder / "deep" / "file").write_text("x")
    print(folder, scratch.shared_memory("ledger"), flush=True)
    # In short sleeps: Python hears a signal that comes just before one only after it.
    for _ in range(600):
        time.sleep(0.1)
"""


def manifests() -> list[Path]:
    return sorted((state_folder() / "manifests").glob("*.jsonl"))


def dead_holder(parent: Path) -> tuple[Path, Path]:
    """What a holder that was killed with SIGKILL has left."""
    with running(python(HOLDER, str(parent))) as process:
        folder, memory = map(Path, first_line(process).split())
        process.kill()
        process.wait()
    return folder, memory


def test_everything_is_removed_at_the_end(tmp_path: Path) -> None:
    with Scratch() as scratch:
        folder = scratch.folder(tmp_path, "data")
        memory = scratch.shared_memory("ledger")
        (folder / "file").write_text("x")
        assert memory.parent == Path("/dev/shm") and memory.stat().st_mode & 0o777 == 0o600
        assert manifests()
    assert not folder.exists() and not memory.exists() and not manifests()


def test_everything_is_removed_on_an_exception(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Scratch() as scratch:
        folder = scratch.folder(tmp_path, "data")
        raise KeyError
    assert not folder.exists() and not manifests()


def test_a_path_is_noted_before_it_exists(tmp_path: Path) -> None:
    with Scratch() as scratch:
        folder = scratch.folder(tmp_path, "data")
        entries = [json.loads(line) for line in manifests()[0].read_text().splitlines()]
        assert entries == [{"kind": "folder", "path": str(folder)}]


def test_remove_takes_only_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with Scratch() as scratch:
        folder = scratch.folder(tmp_path, "data")
        scratch.remove(folder)
        assert not folder.exists()
        with pytest.raises(ValueError, match="is not of this Scratch"):
            scratch.remove(tmp_path / "mine")
    assert (tmp_path / "mine").exists()


def test_a_missing_parent_is_the_users_error(tmp_path: Path) -> None:
    with Scratch() as scratch, pytest.raises(InvalidInput) as caught:
        scratch.folder(tmp_path / "none", "data")
    assert str(tmp_path / "none") in str(caught.value) and caught.value.hint
    assert not manifests()


def test_a_name_cannot_leave_its_folder(tmp_path: Path) -> None:
    with Scratch() as scratch, pytest.raises(ValueError):
        scratch.folder(tmp_path, "../data")


def test_a_state_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(MachineLacks) as caught:
        Scratch()
    assert "XDG_STATE_HOME" in caught.value.hint


def test_sweep_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    folder, memory = dead_holder(tmp_path)
    assert folder.exists() and memory.exists()
    assert set(left_behind()) == {folder, memory}
    report = sweep()
    assert set(report.removed) == {folder, memory} and not report.kept
    assert not folder.exists() and not memory.exists() and not manifests()


def test_sweep_leaves_the_living_alone(tmp_path: Path) -> None:
    with running(python(HOLDER, str(tmp_path))) as process:
        folder, memory = map(Path, first_line(process).split())
        assert sweep().removed == [] and left_behind() == []
        assert folder.exists() and memory.exists()
        process.send_signal(signal.SIGINT)
        process.wait(30)
    assert not folder.exists() and not memory.exists() and not manifests()


def test_a_locked_manifest_is_alive_although_its_pid_is_unknown(tmp_path: Path) -> None:
    """As in another container that shares the state folder: the pid means nothing here, the lock does."""
    with running(python(HOLDER, str(tmp_path))) as process:
        folder, _ = map(Path, first_line(process).split())
        manifest = manifests()[0]
        foreign = manifest.with_name(manifest.name.replace(f"{process.pid}-", "999999999-", 1))
        manifest.rename(foreign)
        assert sweep().removed == [] and folder.exists()
        foreign.rename(manifest)


def test_another_boot_is_dead(tmp_path: Path) -> None:
    scratch = Scratch()
    folder = scratch.folder(tmp_path, "data")
    manifest = manifests()[0]
    pid, ticks, _, rest = manifest.stem.split("-")
    other = f"{pid}-{ticks}-{'0' * 32}-{rest}"
    shutil.copy(manifest, manifest.with_name(other + ".jsonl"))
    (folder / MARKER_NAME).write_text(other)
    assert sweep().removed == [folder]
    scratch.close()


@pytest.mark.parametrize("marker", [None, "", "another owner"])
def test_sweep_never_takes_a_folder_without_the_owners_marker(tmp_path: Path, marker: str | None) -> None:
    left = dead_holder(tmp_path)
    precious = tmp_path / "duratune-precious-01234567"
    precious.mkdir()
    (precious / "file").write_text("keep")
    if marker is not None:
        (precious / MARKER_NAME).write_text(marker)
    with manifests()[0].open("a") as manifest:
        manifest.write(json.dumps({"kind": "folder", "path": str(precious)}) + "\n")
    report = sweep()
    assert (precious / "file").read_text() == "keep"
    assert [kept.path for kept in report.kept] == [precious]
    assert set(report.removed) == set(left) and not manifests()


def test_sweep_follows_no_symbolic_link(tmp_path: Path) -> None:
    folder, _ = dead_holder(tmp_path)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep")
    (folder / "link").symlink_to(precious)
    (folder / "deep" / "link").symlink_to(precious)
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved, symlinks=True)  # Carries the marker, and the noted path leads to it.
    shutil.rmtree(folder)
    folder.symlink_to(moved)
    report = sweep()
    assert (precious / "file").read_text() == "keep" and moved.exists()
    assert [kept.path for kept in report.kept] == [folder]


def test_sweep_takes_up_a_half_made_folder(tmp_path: Path) -> None:
    folder, _ = dead_holder(tmp_path)
    shutil.rmtree(folder)
    folder.mkdir()  # As when killed before the marker was written.
    assert folder in sweep().removed
    assert not folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_sweep_stays_out_of_mounted_file_systems(tmp_path: Path) -> None:
    folder, _ = dead_holder(tmp_path)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "none", str(folder / "deep")], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"no mounts here: {mounted.stderr.decode().strip()}")
    try:
        (folder / "deep" / "precious").write_text("keep")
        report = sweep()
        assert (folder / "deep" / "precious").read_text() == "keep"
        assert "mounted" in report.kept[0].reason and manifests()
    finally:
        subprocess.run(["umount", str(folder / "deep")], check=True)
    assert folder in sweep().removed and not manifests()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    lines=st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from([b"[]", b"1", b'{"kind":"folder"}', b'{"kind":"folder","path":7}', b'{"path":"']),
            st.sampled_from(["", ".", "/", "precious", "../precious", "precious/file"]).map(
                lambda path: json.dumps({"kind": "folder", "path": path}).encode()
            ),
            st.just(b"PRECIOUS"),
        ),
        max_size=8,
    )
)
def test_no_manifest_makes_sweep_touch_what_is_not_ours(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    room = tmp_path_factory.mktemp("room")
    precious = room / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep")
    named = [
        json.dumps({"kind": kind, "path": str(precious)}).encode() for kind in ("folder", "shared-memory")
    ]
    content = b"\n".join(b"\n".join(named) if line == b"PRECIOUS" else line for line in lines)
    folder = state_folder() / "manifests"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"999999999-1-{'0' * 32}-{'a' * 16}.jsonl").write_bytes(content)
    report = sweep()
    assert report.removed == []
    assert (precious / "file").read_text() == "keep"


def test_shared_memory_that_cannot_be_written_is_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can name another folder for it."""
    monkeypatch.setattr(scratch, "SHARED_MEMORY_FOLDER", tmp_path / "not there")
    with Scratch() as made:
        with pytest.raises(MachineLacks, match="no shared memory") as caught:
            made.folder(tmp_path / "not there", "ledger")
        assert "tmpfs" in caught.value.hint
