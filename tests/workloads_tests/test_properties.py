"""YCSB properties: the core workloads, the defaults, files, and every fault in one message."""

from __future__ import annotations

from pathlib import Path

import pytest

from knobs.errors import InvalidInput
from workloads.registry import find
from workloads.ycsb.properties import CORE, DEFAULTS, PROPORTIONS, Properties, core, parse, read_file
from workloads.ycsb.workload import YcsbWorkload

TABLE = {  # read, update, insert, scan, read-modify-write
    "a": (0.5, 0.5, 0, 0, 0),
    "b": (0.95, 0.05, 0, 0, 0),
    "c": (1, 0, 0, 0, 0),
    "d": (0.95, 0, 0.05, 0, 0),
    "e": (0, 0, 0.05, 0.95, 0),
    "f": (0.5, 0, 0, 0, 0.5),
}


def ycsb(name: str) -> YcsbWorkload:
    found = find(name)
    assert isinstance(found, YcsbWorkload)
    return found


@pytest.mark.parametrize("letter", TABLE)
def test_core_workloads(letter: str) -> None:
    properties = core(letter)
    assert tuple(float(properties[name]) for name in PROPORTIONS) == TABLE[letter]
    assert properties["requestdistribution"] == ("latest" if letter == "d" else "zipfian")
    assert properties["maxscanlength"] == ("100" if letter == "e" else "1000")
    assert (properties["fieldcount"], properties["fieldlength"]) == ("10", "100")
    assert ycsb(f"ycsb:{letter}").properties == properties


def test_no_other_core_workload() -> None:
    assert "".join(CORE) == "abcdef"
    with pytest.raises(InvalidInput, match="neither a core workload nor a file 'g'"):
        find("ycsb:g")


@pytest.mark.parametrize("name", ["ycsb", "ycsb:", "a", "pg:a", ""])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(InvalidInput, match="is no workload") as caught:
        find(name)
    assert "ycsb:a to ycsb:f" in caught.value.hint


def test_a_file_keeps_the_defaults_of_what_it_leaves_out(tmp_path: Path) -> None:
    path = tmp_path / "workload"
    path.write_text(
        "# a comment\n! another\n\nrecordcount=2000\nworkload=site.ycsb.workloads.CoreWorkload\n"
        "threadcount = 8\nreadproportion: 0.5\nreadproportion = 0.9\nrequestdistribution zipfian\n"
    )
    workload = ycsb(f"ycsb:{path}")
    assert workload.name == f"ycsb:{path}"
    assert workload.properties.stated == {
        "recordcount": "2000",
        "readproportion": "0.9",
        "requestdistribution": "zipfian",
    }
    # A file that leaves updateproportion out gets 5 % updates.
    assert workload.properties["updateproportion"] == "0.05"
    assert dict(workload.properties) == {**DEFAULTS, **workload.properties.stated}
    assert workload.properties.record_count == 2000


@pytest.mark.parametrize(
    ("values", "faults"),
    [
        ({"readpropotion": "1"}, ["unknown property readpropotion"]),
        ({"readproportion": "-0.5"}, ["readproportion=-0.5 is negative"]),
        ({"readproportion": "half"}, ["readproportion=half is no number"]),
        ({"readproportion": "nan"}, ["readproportion=nan is no finite number"]),
        ({"readproportion": ""}, ["readproportion= is no number"]),
        ({"recordcount": "1e3"}, ["recordcount=1e3 is no whole number"]),
        ({"recordcount": "0"}, ["recordcount=0 is below 1"]),
        ({"recordcount": "9" * 30}, ["is above"]),
        ({"requestdistribution": "zipf"}, ["requestdistribution=zipf is none of uniform"]),
        ({"readallfields": "yes"}, ["readallfields=yes is none of true, false"]),
        ({"hotspotdatafraction": "1.5"}, ["hotspotdatafraction=1.5 is above 1"]),
        ({"maxscanlength": "2", "minscanlength": "3"}, ["maxscanlength is below minscanlength"]),
        ({"insertstart": "1000"}, ["insertstart is not below recordcount"]),
        ({"insertstart": "900", "insertcount": "200"}, ["insertstart + insertcount is above recordcount"]),
        ({"readproportion": "0", "updateproportion": "0"}, ["all proportions are zero"]),
        ({"fieldlength": "3", "minfieldlength": "4"}, ["fieldlength is below minfieldlength"]),
        (
            {"dataintegrity": "true", "fieldlengthdistribution": "uniform"},
            ["dataintegrity needs fieldlengthdistribution=constant"],
        ),
        (
            {"fieldcont": "3", "fieldlength": "-1", "scanproportion": "x", "insertproportion": "-2"},
            ["unknown property fieldcont", "fieldlength=-1", "scanproportion=x", "insertproportion=-2"],
        ),
    ],
)
def test_every_fault_is_told_at_once(values: dict[str, str], faults: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        Properties(values, "somewhere")
    assert caught.value.where == "somewhere"
    assert caught.value.what.count(";") == len(faults) - 1
    for fault in faults:
        assert fault in caught.value.what


def test_values_over_a_workload_are_checked() -> None:
    changed = core("a").with_values({"recordcount": "7"})
    assert (changed.record_count, changed["updateproportion"]) == (7, "0.5")
    with pytest.raises(InvalidInput, match="unknown property colour"):
        core("a").with_values({"colour": "red"})


@pytest.mark.parametrize("text", ["a=1\\\n2", "=1"])
def test_lines_that_are_no_property(text: str) -> None:
    with pytest.raises(InvalidInput, match="line 1"):
        parse(text, "here")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_file(tmp_path / "absent")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="no text file"):
        read_file(tmp_path / "binary")
