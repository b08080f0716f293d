from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest

from engines.host import (
    Limits,
    describe,
    file_system,
    limits,
    mounts,
    mounts_below,
    refuse_unsafe_data_folder,
)
from knobs.contract import Contract
from knobs.errors import InvalidInput

SHARED_MEMORY = Path("/dev/shm")


def findmnt(path: Path, column: str) -> str:
    """What util-linux says of the same path."""
    command = ["findmnt", "--noheadings", "--first-only", "--output", column, "--target", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_host_is_this_one() -> None:
    host = describe()
    assert host.kernel == platform.release()
    assert 1 <= host.cpus <= (os.cpu_count() or 1)
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    assert abs(host.memory_bytes / 1024 / int(total.split()[1]) - 1) < 0.01
    assert host.cpu_model and host.open_files_max > 0


@pytest.mark.parametrize("path", [Path("/"), Path("/proc"), SHARED_MEMORY])
def test_the_mount_is_what_findmnt_says(path: Path) -> None:
    found = file_system(path)
    assert found.type == findmnt(path, "FSTYPE")
    assert str(found.mount_point) == findmnt(path, "TARGET")
    assert found.device == findmnt(path, "SOURCE")
    assert 0 <= found.free_bytes <= found.total_bytes


def test_a_path_that_is_not_there_yet_lies_where_its_parent_does(tmp_path: Path) -> None:
    assert file_system(tmp_path / "a" / "b").mount_point == file_system(tmp_path).mount_point


def test_a_link_lies_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(SHARED_MEMORY)
    assert file_system(tmp_path / "link" / "new").type == "tmpfs"


def test_strict_is_refused_on_tmpfs_and_the_rest_is_not(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="lies on tmpfs") as caught:
        refuse_unsafe_data_folder(SHARED_MEMORY / "new", Contract("strict"))
    assert "--data" in caught.value.hint
    refuse_unsafe_data_folder(SHARED_MEMORY / "new", Contract("process"))
    refuse_unsafe_data_folder(SHARED_MEMORY / "new", Contract.parse("bounded:500ms"))
    if file_system(tmp_path).type not in ("tmpfs", "overlay"):
        refuse_unsafe_data_folder(tmp_path, Contract("strict"))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_strict_is_refused_on_overlayfs(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("lower", "upper", "work", "merged")}
    for folder in folders.values():
        folder.mkdir()
    options = ",".join(f"{name}dir={folders[name]}" for name in ("lower", "upper", "work"))
    command = ["mount", "-t", "overlay", "overlay", "-o", options, str(folders["merged"])]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no overlayfs here: {mounted.stderr.strip()}")
    try:
        assert [mount.mount_point for mount in mounts_below(tmp_path)] == [folders["merged"]]
        with pytest.raises(InvalidInput, match="lies on overlay"):
            refuse_unsafe_data_folder(folders["merged"] / "data", Contract("strict"))
    finally:
        subprocess.run(["umount", str(folders["merged"])], check=True)
    assert mounts_below(tmp_path) == []


def test_a_mount_table_with_spaces_and_optional_fields(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "36 35 98:0 /inner /mnt/with\\040space rw,noatime shared:1 master:2 "
        "- ext3 /dev/a\\134b rw,errors=continue\n"
        "37 36 0:5 / /mnt rw - tmpfs none rw,size=4k\n"
    )
    first, second = mounts(table)
    assert first.mount_point == Path("/mnt/with space") and first.source == "/dev/a\\b"
    assert first.type == "ext3" and first.options == "rw,noatime,errors=continue"
    assert second.type == "tmpfs" and second.options == "rw,size=4k"


def planted(tmp_path: Path, groups: str, files: dict[str, str]) -> Limits:
    for name, content in files.items():
        file = tmp_path / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n")
    (tmp_path / "groups").write_text(groups)
    return limits(tmp_path / "groups", tmp_path / "cgroup")


def test_version_2_limits_are_the_tightest_on_the_way_up(tmp_path: Path) -> None:
    files = {
        "a/b/memory.max": "max",
        "a/memory.max": "1048576",
        "a/b/cpu.max": "max 100000",
        "a/cpu.max": "150000 100000",
        "other/memory.max": "1",
    }
    assert planted(tmp_path, "0::/a/b\n", files) == Limits(1048576, 1.5)


def test_version_1_limits(tmp_path: Path) -> None:
    files = {
        "memory/a/memory.limit_in_bytes": "2097152",
        "memory/memory.limit_in_bytes": "9223372036854771712",
        "cpu,cpuacct/cpu.cfs_quota_us": "50000",
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
    }
    assert planted(tmp_path, "4:memory:/a\n2:cpu,cpuacct:/\n0::/\n", files) == Limits(2097152, 0.5)


def test_a_containers_own_root_counts_where_the_hosts_path_is_not_there(tmp_path: Path) -> None:
    files = {"memory/memory.limit_in_bytes": "4194304"}
    assert planted(tmp_path, "4:memory:/host/only\n", files) == Limits(4194304, None)


def test_no_limits(tmp_path: Path) -> None:
    files = {"memory/memory.limit_in_bytes": "9223372036854771712", "cpu/cpu.cfs_quota_us": "-1"}
    assert planted(tmp_path, "4:memory:/\n3:cpu:/\n0::/\n", files) == Limits(None, None)
    assert limits(tmp_path / "none", tmp_path / "none") == Limits(None, None)
