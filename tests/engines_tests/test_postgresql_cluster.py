from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from engines.postgresql import shared_memory
from engines.postgresql.binaries import Binaries
from engines.postgresql.cluster import Cluster, create
from engines.postgresql.refusal import StartRefused
from engines.postgresql.server import start
from engines.postgresql.server_user import ServerUser
from engines.postgresql.session import Session
from engines.scratch import Scratch
from knobs.errors import InvalidInput, MachineLacks, Undecided

pytestmark = pytest.mark.slow


def control(cluster: Cluster, key: str) -> str:
    """One line of what pg_controldata prints."""
    command = [str(cluster.binaries.program("pg_controldata")), "-D", str(cluster.data)]
    printed = subprocess.run(
        command, env=cluster.environment(), capture_output=True, text=True, check=True
    ).stdout
    found = re.search(rf"^{re.escape(key)}:\s*(.*)$", printed, re.MULTILINE)
    assert found is not None, printed
    return found[1]


def contents(cluster: Cluster) -> dict[str, str]:
    """Every path below the data folder with its owner, mode and content."""
    return {
        str(path.relative_to(cluster.data)): f"{path.stat().st_uid} {path.stat().st_mode:o} "
        + (hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
        for path in cluster.data.rglob("*")
    }


def inodes(cluster: Cluster) -> set[int]:
    return {path.stat().st_ino for path in cluster.data.rglob("*") if path.is_file()}


def test_a_new_cluster(template: Cluster, user: ServerUser) -> None:
    assert control(template, "Data page checksum version") != "0"
    assert control(template, "Database cluster state") == "shut down"
    assert {path.stat().st_uid for path in (template.data, *template.data.rglob("*"))} == {user.uid}
    assert template.data.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_without_checksums(installed: Binaries, user: ServerUser, tmp_path: Path) -> None:
    made = create(installed, user, tmp_path, checksums=False)
    assert control(made, "Data page checksum version") == "0"
    with pytest.raises(InvalidInput, match="there is a cluster already"):
        create(installed, user, tmp_path)


def test_a_clone_cannot_change_its_template(template: Cluster, cluster: Cluster) -> None:
    before = contents(template)
    assert contents(cluster) == before
    assert not inodes(cluster) & inodes(template)
    with Scratch() as scratch, start(cluster, {}, scratch=scratch, watcher=None) as server:
        with Session(server.address) as session:
            session.query("create table t as select generate_series(1, 5000) as n")
            session.query("checkpoint")
        server.stop()
    assert contents(template) == before != contents(cluster)


def test_a_shared_file_would_be_seen(template: Cluster, cluster: Cluster) -> None:
    """The check above can fail: the same clone with one hard link, as a cheaper copy would make it."""
    (cluster.data / "pg_hba.conf").unlink()
    os.link(template.data / "pg_hba.conf", cluster.data / "pg_hba.conf")
    assert inodes(cluster) & inodes(template)


def test_a_running_cluster_is_neither_cloned_nor_stripped_nor_removed(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "second").mkdir()
    with Scratch() as scratch, start(cluster, {}, scratch=scratch, watcher=None) as server:
        assert shared_memory.in_use(cluster.data)
        with pytest.raises(Undecided, match="to be cloned"):
            cluster.clone(tmp_path / "second")
        for action in (cluster.strip, cluster.remove):
            with pytest.raises(Undecided, match="a server runs in this cluster"):
                action()
        with pytest.raises(Undecided, match="a server runs in this cluster"):
            start(cluster, {}, scratch=scratch, watcher=None)
        server.check()
    assert not shared_memory.in_use(cluster.data)


def test_the_image_of_a_crash_stays_and_its_clone_is_clean(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    with Scratch() as scratch, start(cluster, {}, scratch=scratch, watcher=None) as server:
        server.kill()
        image = contents(cluster)
        assert shared_memory.PID_FILE in image
        clone = cluster.clone(tmp_path / "second")
        assert shared_memory.PID_FILE not in contents(clone)
        with start(clone, {}, scratch=scratch, watcher=None) as second:
            assert any("not properly shut down" in message.text for message in second.messages())
    assert contents(cluster) == image


def test_a_copy_that_cannot_be_made_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(MachineLacks, match="cannot be copied: cp: "):
        cluster.clone(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()
    with pytest.raises(InvalidInput, match="there is a cluster already"):
        cluster.clone(cluster.folder)


@pytest.mark.usefixtures("as_root")
def test_a_disk_that_is_too_small(cluster: Cluster, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(small)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        with pytest.raises(MachineLacks, match="No space left on device") as caught:
            cluster.clone(small)
        assert "make room" in caught.value.hint and list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_template_is_synced_as_a_whole(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """initdb syncs the data folder, whatever its server ran with; we sync the folders that hold it."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    cluster.sync()
    assert synced == [str(cluster.folder), str(cluster.folder.parent)]


def test_removed(cluster: Cluster) -> None:
    cluster.log.write_text("line\n")
    cluster.remove()
    assert list(cluster.folder.iterdir()) == []


@pytest.mark.usefixtures("as_root")
def test_programs_out_of_the_users_reach(installed: Binaries, user: ServerUser, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    for program in ("postgres", "initdb"):
        shutil.copy(installed.program(program), hidden)
    elsewhere = Binaries(hidden, installed.version, installed.full_version)
    with pytest.raises(MachineLacks, match=f"user {user.name} may not run it") as caught:
        create(elsewhere, user, tmp_path)
    assert "--bindir" in caught.value.hint and not (tmp_path / "data").exists()


@pytest.mark.usefixtures("as_root")
def test_a_scratch_folder_lets_the_user_pass(template: Cluster) -> None:
    """There the server gets a plain path; elsewhere, in pytest's closed folders, a descriptor."""
    with Scratch() as scratch:
        clone = template.clone(scratch.folder(Path("/tmp"), "plain"))
        with clone.seen() as seen, template.seen() as closed:
            assert (seen.path, seen.descriptors) == (str(clone.data), ())
            assert closed.path == f"/proc/self/fd/{closed.descriptors[0]}"
        assert clone.folder.stat().st_mode & 0o777 == 0o711
        with start(clone, {}, scratch=scratch, watcher=None) as server:
            server.check()


@pytest.mark.usefixtures("as_root")
def test_a_copy_of_duratunes_own_is_given_to_the_server(cluster: Cluster, user: ServerUser) -> None:
    """As a state that was rebuilt, or a copy without owners and modes, is."""
    places = (cluster.data, *cluster.data.rglob("*"))
    modes = {path: path.stat().st_mode for path in places if path != cluster.data}
    (cluster.data / "dangling").symlink_to("/nowhere")
    for path in places:
        os.chown(path, 0, 0)
    cluster.data.chmod(0o755)
    with Scratch() as scratch:
        with pytest.raises(StartRefused, match=r"Permission denied|wrong ownership"):
            start(cluster, {}, scratch=scratch, watcher=None)
        cluster.adopt()
        assert {
            (path.lstat().st_uid, path.lstat().st_gid) for path in (*places, cluster.data / "dangling")
        } == {(user.uid, user.gid)}
        assert {path: path.stat().st_mode for path in modes} == modes
        assert cluster.data.stat().st_mode & 0o777 == 0o700
        (cluster.data / "dangling").unlink()
        with start(cluster, {}, scratch=scratch, watcher=None) as server:
            server.check()


@pytest.mark.usefixtures("as_root")
def test_only_a_folder_of_duratunes_own_is_opened_for_the_server(cluster: Cluster) -> None:
    cluster.folder.chmod(0o700)
    cluster.adopt()
    assert cluster.folder.stat().st_mode & 0o777 == 0o700
    with Scratch() as scratch:
        clone = cluster.clone(scratch.folder(Path("/tmp"), "own"))
        clone.folder.chmod(0o700)
        clone.adopt()
        assert clone.folder.stat().st_mode & 0o777 == 0o711
