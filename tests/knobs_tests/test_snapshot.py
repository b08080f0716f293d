"""The shipped snapshot is what the installed library and headers say."""

from __future__ import annotations

import json

import pytest

from knobs.errors import Undecided
from knobs.rocksdb import headers, library, snapshot
from knobs.rocksdb.catalogue import RocksdbCatalogue
from knobs.rocksdb.installed import load_installed


@pytest.fixture(scope="module")
def generated() -> dict[str, object]:
    return snapshot.generate()


def test_shipped_snapshot_is_the_installed_library(generated: dict[str, object]) -> None:
    shipped = snapshot.FOLDER / f"{generated['version']}.json"
    if not shipped.is_file():
        pytest.skip(f"no snapshot of the installed RocksDB {generated['version']} ships")
    assert shipped.read_text(encoding="utf-8") == snapshot.render(generated)


def test_every_printed_option_of_the_library_is_in_it(generated: dict[str, object]) -> None:
    printed = library.options()
    text = json.dumps(generated)
    for section in ("DBOptions", "CFOptions", "BlockBasedTableOptions", "WriteOptions"):
        assert len(printed[section]) >= 8
        assert [name for name in printed[section] if f'"{section}.{name}"' not in text] == []


def test_every_option_of_a_header_has_its_text_and_line(generated: dict[str, object]) -> None:
    options = generated["options"]
    assert isinstance(options, list)
    declared = [option for option in options if option["file"]]
    assert len(declared) > 200
    bare = {option["name"] for option in declared if not option["documentation"]}
    # The headers themselves say nothing about these two.
    assert bare == {"DBOptions.info_log_level", "CFOptions.table_properties_collector_factories"}
    assert all(option["line"] > 0 for option in declared)


def test_a_catalogue_made_on_the_spot_serves_like_a_shipped_one(generated: dict[str, object]) -> None:
    made = RocksdbCatalogue(generated)
    installed = load_installed()
    assert made.version == installed.version == library.options()["version"]
    assert made.knobs() == installed.knobs()
    assert made.faults({"manual_wal_flush": "yes"}) != []


def test_an_option_that_the_headers_do_not_declare_is_seen() -> None:
    printed = library.options()
    printed["WriteOptions"]["from_the_future"] = "1"
    folder = headers.find_headers()
    members = headers.read_members(folder / "options.h", "WriteOptions")
    with pytest.raises(Undecided, match="from_the_future"):
        snapshot._section("WriteOptions", members, printed, folder)


def test_a_wrong_type_is_caught_by_the_round_trip() -> None:
    entry = {
        "name": "DBOptions.max_background_jobs",
        "type": "uint64_t",  # it is an int: the library does not keep 2^64-1
        "kind": "integer",
        "printed": True,
        "choices": [],
    }
    with pytest.raises(Undecided, match="max_background_jobs"):
        snapshot._check_types([entry])
    entry["type"] = "int"
    snapshot._check_types([entry])
