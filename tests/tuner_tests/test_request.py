"""A command line, resolved once."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from engines.scratch import left_behind
from knobs.errors import InvalidInput, MachineLacks
from tests.tuner_tests.requests import request_of, ycsb_of
from tuner.proposers.rules import MIB
from tuner.request import host_limits, open_lab, resolve

pytestmark = pytest.mark.usefixtures("native_parts")


def counts(workload: str, *properties: str, scale: int | None = None) -> tuple[str, str]:
    stated = ycsb_of(request_of(workload=workload, properties=properties, scale=scale)).properties.stated
    return stated["recordcount"], stated["operationcount"]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Properties files with both counts, with the first, and with none."""
    texts = {"both": "recordcount=77\noperationcount=88\n", "records": "recordcount=77\n", "none": ""}
    for name, text in texts.items():
        (tmp_path / name).write_text(text + "readproportion=0.5\nupdateproportion=0.5\n")
    return {name: f"ycsb:{tmp_path}/{name}" for name in texts}


def test_a_command_names_its_own_counts() -> None:
    assert counts("ycsb:a") == ("50000", "500000")
    assert counts("ycsb:a", scale=3) == ("3000", "30000")
    assert counts("ycsb:a", "recordcount=7") == ("7", "70")
    assert counts("ycsb:a", "operationcount=9") == ("50000", "9")
    assert counts("ycsb:a", "recordcount=3000", scale=3) == ("3000", "30000")


def test_a_properties_files_counts_are_used_only_where_it_states_them(files: dict[str, str]) -> None:
    assert counts(files["both"]) == ("77", "88")
    assert counts(files["records"]) == ("77", "770")
    assert counts(files["none"]) == ("50000", "500000")
    assert counts(files["both"], scale=2) == ("2000", "88")
    assert counts(files["both"], "recordcount=5", "operationcount=6") == ("5", "6")


def test_a_property_is_one_of_ycsb(files: dict[str, str]) -> None:
    assert ycsb_of(request_of(properties=("fieldlength=10",))).properties["fieldlength"] == "10"
    with pytest.raises(InvalidInput, match="unknown property filedlength"):
        request_of(properties=("filedlength=10",))
    with pytest.raises(InvalidInput, match="'fieldlength' is no NAME=VALUE"):
        request_of(properties=("fieldlength",))
    with pytest.raises(InvalidInput, match="fieldlength=0 is below 1"):
        request_of(workload=files["both"], properties=("fieldlength=0",))


def test_the_limit_of_open_files_is_asked_before_a_run() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        request_of("max_open_files=192")
        with pytest.raises(MachineLacks) as caught:
            request_of("max_open_files=193")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.where == "RLIMIT_NOFILE" and caught.value.hint == "ulimit -n 257"


def test_a_seed_that_is_not_given_is_drawn_and_the_contract_is_the_engines() -> None:
    def drawn() -> int:
        return resolve("rocksdb", None, [], "ycsb:a", [], None, None, 4, 1, "default", 1).seed

    assert len({drawn() for _ in range(5)}) > 1
    found = resolve("rocksdb", None, [], "ycsb:a", [], None, 9, 4, 1, "default", 1)
    assert found.seed == 9 and str(found.contract) == "process"
    assert found.with_seed(4).seed == 4 and found.with_seed(4).settings == found.settings
    with pytest.raises(InvalidInput, match="'mysql' is no engine"):
        resolve("mysql", None, [], "ycsb:a", [], None, 9, 4, 1, "default", 1)


def test_every_fault_of_the_settings_is_told_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        request_of("write_buffer_size=big", "max_background_jobs=1.5")
    assert "write_buffer_size" in caught.value.what and "max_background_jobs" in caught.value.what


def test_a_setting_is_kept_in_the_catalogues_spelling() -> None:
    settings = request_of("write_buffer_size=64M", "ColumnFamilyOptions.compression=kZSTD").settings
    assert settings == {
        "CFOptions.write_buffer_size": str(64 * MIB),
        "CFOptions.compression": "kZSTD",
    }


def test_the_host_has_cores_and_memory() -> None:
    limits = host_limits()
    assert limits.cores >= 1 and limits.memory_bytes > 256 * MIB


def test_a_data_folder_is_new_and_gone_afterwards(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with (
        pytest.raises(InvalidInput, match="the data folder exists already"),
        open_lab(request_of(), tmp_path, tmp_path / "mine"),
    ):
        pass
    with open_lab(request_of(), tmp_path, tmp_path / "new") as (lab, bound, _):
        assert lab.data.is_dir() and bound.workload.watcher is not None
        assert lab.data.parent == tmp_path
    assert [path.name for path in tmp_path.iterdir() if path.is_dir() and path.name != "state0"] == ["mine"]
    assert left_behind() == []


def test_memory_that_is_no_disk_is_refused_under_strict() -> None:
    shared = Path("/dev/shm")
    with (
        pytest.raises(InvalidInput, match="lies on tmpfs"),
        open_lab(request_of(contract="strict"), shared, shared / "duratune-test-data"),
    ):
        pass
    assert left_behind() == [] and not list(shared.glob("duratune-duratune-test-data*"))


def test_a_properties_file_says_how_many_clients_and_not_how_fast(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_text("recordcount=100\noperationcount=100\nthreadcount=3\ntarget=50\n")
    found = request_of(workload=f"ycsb:{file}", clients=None)
    assert found.clients == 3
    assert [(finding.setting, finding.value) for finding in found.findings] == [("target", "50")]
    assert request_of(workload=f"ycsb:{file}", clients=7).clients == 7
    file.write_text("recordcount=100\noperationcount=100\nthreadcount=many\n")
    with pytest.raises(InvalidInput, match="threadcount=many"):
        request_of(workload=f"ycsb:{file}", clients=None)
