"""OPTIONS files: what we write RocksDB accepts, what RocksDB writes we read, and each fault is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knobs.errors import InvalidInput
from knobs.knob import Knob
from knobs.rocksdb import library, options_file
from knobs.rocksdb.catalogue import load

HEAD = "[Version]\n  rocksdb_version=7.8.3\n  options_file_version=1.1\n"
SMALL = HEAD + '[DBOptions]\n  max_open_files=512\n[CFOptions "default"]\n  num_levels=4\n'


def fault_of(text: str | bytes) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        options_file.parse(text, "file.ini")
    assert caught.value.where == "file.ini"
    assert caught.value.hint
    return caught.value


def test_the_default_file_is_what_the_library_prints(tmp_path: Path) -> None:
    ours = options_file.from_default()
    file = tmp_path / "OPTIONS"
    file.write_text(ours.render(), encoding="utf-8")
    theirs = options_file.parse(library.roundtrip(file), "library")
    assert theirs.db == ours.db
    assert theirs.column_family().options == ours.column_family().options
    table = dict(theirs.column_family().table)
    assert table.pop("block_cache") == load().knob("block_cache").default
    assert table == ours.column_family().table


def test_a_file_that_rocksdb_wrote_survives_our_writing(tmp_path: Path) -> None:
    file = tmp_path / "OPTIONS"
    file.write_text(options_file.from_default().render(), encoding="utf-8")
    library.open_database(file, tmp_path / "db")
    written = max((tmp_path / "db").glob("OPTIONS-*"))
    parsed = options_file.parse(written.read_bytes(), written.name)
    again = options_file.parse(parsed.render(), "again")
    assert again == parsed
    file.write_text(parsed.render(), encoding="utf-8")
    assert library.roundtrip(file) == library.roundtrip(written)


def _values(knob: Knob) -> st.SearchStrategy[str]:
    if knob.kind == "bool":
        return st.sampled_from(["true", "false", "1", "0"])
    if knob.kind == "enum":
        return st.sampled_from(knob.choices)
    if knob.kind == "real":
        return st.floats(0, 1).map(lambda number: f"{number:.6f}")
    low, high = int(knob.minimum or 0), int(knob.maximum or 0)
    if knob.name == "CFOptions.num_levels":
        high = 9
    plain = st.integers(low, high).map(str)
    if high < 2**31 - 1:
        return plain
    return plain | st.integers(1, 2047).map(lambda number: f"{number}M")


# write_dbid_to_manifest and partition_filters are changed by the library itself (rules.CHANGES).
_ROUND = [
    knob
    for knob in load().knobs()
    if knob.section in ("DBOptions", "CFOptions", "BlockBasedTableOptions")
    and knob.kind in ("bool", "integer", "size", "real", "enum")
    and knob.default != ""
    and knob.short_name not in ("write_dbid_to_manifest", "partition_filters", "block_cache")
]
_SETTINGS = st.lists(st.sampled_from(_ROUND), min_size=1, max_size=40, unique=True).flatmap(
    lambda knobs: st.fixed_dictionaries({knob.name: _values(knob) for knob in knobs})
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chosen=_SETTINGS)
def test_what_we_write_rocksdb_reads_as_we_do(tmp_path: Path, chosen: dict[str, str]) -> None:
    catalogue = load()
    file = tmp_path / "OPTIONS"
    file.write_text(options_file.from_default().apply(chosen).render(), encoding="utf-8")
    stated = options_file.parse(library.roundtrip(file), "library").settings()
    for name, value in chosen.items():
        assert stated[name] == catalogue.normalise(name, value), name


@settings(deadline=None)
@given(
    name=st.text(st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters='"\\')).filter(
        lambda text: text == text.strip() and text not in ("", "default")
    ),
    host=st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"])).map(str.strip),
)
def test_what_we_write_we_read(name: str, host: str) -> None:
    family = options_file.ColumnFamily(name, {"num_levels": "4"})
    base = options_file.from_default()
    written = options_file.OptionsFile(
        base.rocksdb_version, base.options_file_version, {"db_host_id": host}, (*base.column_families, family)
    )
    assert options_file.parse(written.render(), "x") == written


def test_hash_and_backslash_reach_rocksdb_as_they_are(tmp_path: Path) -> None:
    text = options_file.from_default().apply({"DBOptions.db_host_id": 'a#b "c" \\d'}).render()
    file = tmp_path / "OPTIONS"
    file.write_text(text, encoding="utf-8")
    assert options_file.parse(library.roundtrip(file), "library").db["db_host_id"] == 'a#b "c" \\d'


def test_crlf_comments_and_nested_values() -> None:
    text = SMALL.replace("max_open_files=512", "max_open_files = 512 # as measured")
    text += "  compression_opts={level=3;enabled=true;}\n# end\n"
    parsed = options_file.parse(text.replace("\n", "\r\n"), "x")
    assert parsed.db == {"max_open_files": "512"}
    assert parsed.column_family().options["compression_opts"] == "{level=3;enabled=true;}"
    assert parsed.settings()["CFOptions.num_levels"] == "4"


def test_of_two_equal_names_the_first_counts_as_in_rocksdb(tmp_path: Path) -> None:
    text = SMALL.replace("  max_open_files=512\n", "  max_open_files=512\n  max_open_files=600\n")
    parsed = options_file.parse(text, "x")
    assert parsed.db["max_open_files"] == "512"
    [finding] = parsed.findings
    assert (finding.rule, finding.value, finding.source) == ("given-twice", "600", "x:6")
    file = tmp_path / "OPTIONS"
    file.write_text(text, encoding="utf-8")
    assert options_file.parse(library.roundtrip(file), "library").db["max_open_files"] == "512"


def test_apply_changes_one_column_family_and_leaves_what_has_no_place() -> None:
    base = options_file.parse(SMALL + '[CFOptions "x"]\n  num_levels=5\n', "x")
    changed = base.apply(
        {"CFOptions.num_levels": "6", "DBOptions.max_open_files": "9", "WriteOptions.sync": "true"}, "x"
    )
    assert changed.column_family("x").options == {"num_levels": "6"}
    assert changed.column_family().options == {"num_levels": "4"}
    assert changed.db == {"max_open_files": "9"}
    assert "sync" not in changed.render()
    with pytest.raises(InvalidInput, match="no column family 'y'"):
        base.apply({}, "y")


def test_block_based_settings_need_a_block_based_table(tmp_path: Path) -> None:
    text = SMALL + '[TableOptions/PlainTable "default"]\n  user_key_len=8\n'
    plain = options_file.parse(text, "x")
    assert plain.column_family().table_factory == "PlainTable"
    assert [name for name in plain.settings() if name.startswith("Block")] == []
    with pytest.raises(InvalidInput, match="PlainTable"):
        plain.apply({"BlockBasedTableOptions.block_size": "8192"})
    file = tmp_path / "OPTIONS"
    file.write_text(plain.render(), encoding="utf-8")
    assert "user_key_len=8" in library.roundtrip(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        (b"[Version]\n\xff\xfe", "line 2 is not UTF-8"),
        (b"[Version]\nrocksdb_version=7\0", "line 2 holds binary data"),
        (b"\x7fELF\x02\x01\x01\0\0", "line 1 holds binary data"),
        ('[DBOptions]\n[CFOptions "default"]\n', r"line 1: the first section must be \[Version\]"),
        (HEAD + '[CFOptions "default"]\n', r"no \[DBOptions\]"),
        (HEAD + "[DBOptions]\n", r"no \[CFOptions \"default\"\]"),
        (HEAD + '[DBOptions]\n[CFOptions "x"]\n', 'line 5: the first CFOptions section must be "default"'),
        (SMALL + '[CFOptions "default"]\n', "line 8: section 'CFOptions default' stands twice"),
        (SMALL + "[DBOptions]\n", "line 8: section 'DBOptions' stands twice"),
        (SMALL + '[TableOptions/BlockBasedTable "y"]\n', "line 8: .* has no CFOptions section before it"),
        (SMALL + "[Foo]\n", "line 8: there is no section 'Foo'"),
        (SMALL + "[Foo\n", "line 8: .* is no section title"),
        (SMALL + "num_levels\n", "line 8: 'num_levels' is no name=value"),
        (
            SMALL + "nm_levels=4\n",
            "line 8: RocksDB 7.8.3 has no CFOptions.nm_levels; nearest: CFOptions.num_lev",
        ),
        (
            SMALL + "max_open_files=4\n",
            "line 8: max_open_files is no option of CFOptions, it belongs to DBOpt",
        ),
        (SMALL.replace("7.8.3", "seven"), "'seven' is no version"),
        ("x=1\n" + SMALL, "line 1 stands before the first section"),
    ],
)
def test_each_fault_is_named_with_its_line(text: str | bytes, message: str) -> None:
    error = fault_of(text)
    assert re.search(message, error.what), error.what


def test_all_faults_come_in_one_message() -> None:
    error = fault_of(SMALL + "nm_levels=4\nfoo_bar=1\n")
    assert "line 8" in error.what and "line 9" in error.what


def test_options_of_a_newer_version_are_listed_with_a_hint() -> None:
    error = fault_of(SMALL.replace("7.8.3", "9.10.0") + "uncache_aggressiveness=100\n")
    assert "of RocksDB 9.10.0, newer than 7.8.3" in error.what
    assert "CFOptions.uncache_aggressiveness" in error.what
    assert "RocksDB that wrote the file" in error.hint
    assert options_file.parse(SMALL.replace("7.8.3", "9.10.0"), "x").rocksdb_version == "9.10.0"


def test_every_truncation_of_a_written_file_inside_a_line_or_family_is_seen() -> None:
    whole = options_file.from_default().render()
    options_file.parse(whole, "x")
    table = whole.index("[TableOptions")
    for end in range(40, len(whole) - 1, 97):
        if end < table or whole[end - 1] != "\n":
            fault_of(whole[:end])
