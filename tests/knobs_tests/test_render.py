"""What `duratune knobs` prints, as text and as JSON."""

from __future__ import annotations

import json

import pytest

from knobs import render
from knobs.rocksdb.catalogue import load
from tuner.cli import main


def test_a_page_says_everything_about_a_knob() -> None:
    catalogue = load()
    knob = catalogue.knob("manual_wal_flush")
    page = render.page(knob, catalogue.version, catalogue.notes(knob.name))
    for part in (
        "bool",
        "false",
        "only when the engine starts",
        "FlushWAL",
        f"rocksdb/options.h:{knob.source.line}",
    ):
        assert part in page
    assert "manual invocation of FlushWAL to write the WAL buffer" in page


def test_a_page_names_rules_changes_and_ranges() -> None:
    catalogue = load()
    assert "exclude each other" in "\n".join(catalogue.notes("unordered_write"))
    assert "without a word" in "\n".join(catalogue.notes("recycle_log_file_num"))
    page = render.page(catalogue.knob("write_buffer_size"), "7.8.3")
    assert "8388608 to 268435456 on a logarithmic scale" in page
    assert "while the engine runs" in page


def test_the_table_has_a_line_for_each_settable_knob() -> None:
    catalogue = load()
    lines = render.table(catalogue.knobs()).splitlines()
    assert len(lines) == 1 + sum(knob.settable for knob in catalogue.knobs())
    [sync] = [line for line in lines if " WriteOptions.sync " in line]
    assert sync.startswith("d ") and sync.endswith("false")


def test_every_knob_can_be_shown() -> None:
    catalogue = load()
    for knob in catalogue.knobs():
        assert knob.name in render.page(knob, catalogue.version, catalogue.notes(knob.name))
        assert json.loads(json.dumps(render.document(knob)))["name"] == knob.name


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["knobs", "rocksdb"]) == 0
    assert "DBOptions.manual_wal_flush" in capsys.readouterr().out
    assert main(["knobs", "rocksdb", "sync"]) == 0
    assert capsys.readouterr().out.startswith("WriteOptions.sync\n")


def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["knobs", "rocksdb", "sync", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["version"]) == (1, "7.8.3")
    [knob] = document["knobs"]
    assert knob["name"] == "WriteOptions.sync"
    assert main(["knobs", "rocksdb", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["knobs"]) == len(load().knobs())


def test_an_unknown_knob_or_engine_is_invalid_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["knobs", "rocksdb", "manual_wal_flsh"]) == 2
    assert "DBOptions.manual_wal_flush" in capsys.readouterr().err
    assert main(["knobs", "oracle"]) == 2
    assert "oracle" in capsys.readouterr().err
