"""CONFIG arguments: each form, several joined, faults, and what names something outside."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from knobs import configuration
from knobs.errors import InvalidInput

OPTIONS = """[Version]
  rocksdb_version=7.8.3
  options_file_version=1.1
[DBOptions]
  max_open_files=512
  wal_dir=/fast/wal
[CFOptions "default"]
  num_levels=4
  compaction_filter=Theirs
[TableOptions/BlockBasedTable "default"]
  block_size=8192
[CFOptions "other"]
  num_levels=5
  compaction_filter=Theirs
"""


@pytest.fixture
def options(tmp_path: Path) -> str:
    file = tmp_path / "OPTIONS-000007"
    file.write_text(OPTIONS, encoding="utf-8")
    return str(file)


def put(tmp_path: Path, name: str, content: object) -> str:
    file = tmp_path / name
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(file)


def test_an_options_file(options: str) -> None:
    read = configuration.read("rocksdb", options)
    assert read.settings == {
        "DBOptions.max_open_files": "512",
        "CFOptions.num_levels": "4",
        "BlockBasedTableOptions.block_size": "8192",
    }
    assert read.sources == (options,)
    assert [(f.rule, f.setting, f.value) for f in read.findings] == [
        ("outside-overridden", "DBOptions.wal_dir", "/fast/wal"),
        ("outside-overridden", "CFOptions.compaction_filter", "Theirs"),
    ]
    assert read.options_file is not None
    rendered = read.options_file.render()
    assert "/fast" not in rendered and "Theirs" not in rendered and "num_levels=5" in rendered


def test_another_column_family(options: str) -> None:
    read = configuration.read("rocksdb", options, column_family="other")
    assert read.settings["CFOptions.num_levels"] == "5"
    with pytest.raises(InvalidInput, match="no column family"):
        configuration.read("rocksdb", options, column_family="none")


def test_json_flat_and_under_settings(tmp_path: Path) -> None:
    flat = put(tmp_path, "flat.json", {"sync": True, "DBOptions.max_open_files": 512, "ttl": "1K"})
    wanted = {"WriteOptions.sync": "true", "DBOptions.max_open_files": "512", "CFOptions.ttl": "1K"}
    assert configuration.read("rocksdb", flat).settings == wanted
    published = put(tmp_path, "p.json", {"tuner": "x", "engine": "rocksdb", "settings": {"sync": "true"}})
    assert configuration.read("rocksdb", published).settings == {"WriteOptions.sync": "true"}


def test_an_option_string(tmp_path: Path) -> None:
    file = put(tmp_path, "s.txt", "manual_wal_flush=true; compression_opts={level=3;enabled=1;};\n")
    assert configuration.read("rocksdb", file).settings == {
        "DBOptions.manual_wal_flush": "true",
        "CFOptions.compression_opts": "{level=3;enabled=1;}",
    }


def test_joined_files_the_later_wins(options: str, tmp_path: Path) -> None:
    file = put(tmp_path, "more.json", {"num_levels": 6, "sync": True})
    read = configuration.read("rocksdb", f"{options}+{file}")
    assert read.settings["CFOptions.num_levels"] == "6"
    assert read.settings["DBOptions.max_open_files"] == "512"
    assert read.sources == (options, file)
    assert read.options_file is not None
    back = configuration.read("rocksdb", f"{file}+{options}")
    assert back.settings["CFOptions.num_levels"] == "4"
    plus = put(tmp_path, "a+b.json", {"sync": True})
    assert configuration.read("rocksdb", plus).settings == {"WriteOptions.sync": "true"}


def test_set_wins_and_its_paths_are_dropped_too(options: str) -> None:
    read = configuration.read("rocksdb", options)
    given = configuration.parse_settings("rocksdb", ["num_levels=3", "num_levels=2", "db_log_dir=/var/log"])
    changed = configuration.with_settings(read, given)
    assert changed.settings["CFOptions.num_levels"] == "2"
    assert "DBOptions.db_log_dir" not in changed.settings
    assert changed.findings[-1].setting == "DBOptions.db_log_dir"


def test_set_collects_every_fault() -> None:
    with pytest.raises(InvalidInput) as caught:
        configuration.parse_settings("rocksdb", ["sync", "=1", "manual_wal_flsh=1"])
    for part in ("'sync' is no NAME=VALUE", "'=1' is no NAME=VALUE", "DBOptions.manual_wal_flush"):
        assert part in caught.value.what
    assert caught.value.where == "--set"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty"),
        ("{", "line 1 is no JSON"),
        ('{"sync": true, "sync": false}', "'sync' stands twice"),
        ({"sync": [1]}, "sync: a value is text, a number or true/false"),
        ({"sync": None}, "sync: a value is text, a number or true/false"),
        ({"settings": [1]}, "settings must be an object"),
        ({"engine": "postgresql", "settings": {}}, "configuration of postgresql"),
        ({"no_such_thing_here": 1}, "no option 'no_such_thing_here'"),
        ("Dear all,\nplease find attached\n", "neither an OPTIONS file nor JSON"),
        ("a=1;b", "'b' is no name=value"),
    ],
)
def test_each_fault_names_the_file(tmp_path: Path, content: object, message: str) -> None:
    file = put(tmp_path, "bad", content)
    with pytest.raises(InvalidInput) as caught:
        configuration.read("rocksdb", file)
    assert message in caught.value.what
    assert caught.value.where == file
    assert caught.value.hint


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        configuration.read("rocksdb", str(tmp_path / "none"))
    with pytest.raises(InvalidInput, match="cannot read"):
        configuration.read("rocksdb", str(tmp_path))
    with pytest.raises(InvalidInput, match="empty file"):
        configuration.read("rocksdb", "a++b")
    large = tmp_path / "large"
    with large.open("wb") as stream:
        stream.truncate(100 * 1024 * 1024)
    with pytest.raises(InvalidInput, match="too large"):
        configuration.read("rocksdb", str(large))


def test_the_forms_in_the_documentation_are_read(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "knobs.md").read_text(encoding="utf-8")
    forms = [form for form in re.findall(r"`([^`]+)`", text) if form.startswith("{") or form.count("=") > 1]
    assert len(forms) == 2
    for form in forms:
        assert configuration.read("rocksdb", put(tmp_path, "form", form)).settings != {}


def test_unknown_names_and_wrong_values_are_told_in_one_message() -> None:
    with pytest.raises(InvalidInput) as raised:
        configuration.parse_settings("rocksdb", ["wal_byte_per_sync=1", "max_background_jobs=many"])
    assert "wal_byte_per_sync" in raised.value.what and "max_background_jobs" in raised.value.what


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(b"\xef\xbb\xbf" + b'{"DBOptions.max_open_files": 512}')
    assert configuration.read("rocksdb", str(file)).settings == {"DBOptions.max_open_files": "512"}


def test_a_wrong_setting_is_told_of_the_option_that_states_it() -> None:
    with pytest.raises(InvalidInput) as caught:
        configuration.parse_settings("rocksdb", ["nosuch=1"], where="--fix")
    assert caught.value.where == "--fix"
