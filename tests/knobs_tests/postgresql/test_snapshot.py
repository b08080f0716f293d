"""The shipped data is what a server of that version says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from knobs import render
from knobs.errors import InvalidInput
from knobs.postgresql import catalogue, manual, server, snapshot
from tests.knobs_tests.postgresql import clusters

MAJORS = ("13", "14", "15", "16", "17", "18")


def shipped(major: str) -> dict[str, dict[str, object]]:
    document = json.loads((snapshot.FOLDER / f"{major}.json").read_text(encoding="utf-8"))
    return {entry["name"]: entry for entry in document["settings"]}


@pytest.mark.slow
def test_shipped_data_is_the_servers(bindir: Path) -> None:
    version = server.version_text(bindir)
    generated = snapshot.generate(bindir, "this test")
    found = {entry["name"]: entry for entry in generated["settings"]}
    wanted = shipped(server.major_of(version))
    document = json.loads((snapshot.FOLDER / f"{server.major_of(version)}.json").read_text(encoding="utf-8"))
    # A package chooses these, and a later minor version may add a setting (16.15: output_plugin_libraries).
    ours = {"server_version", "server_version_num", "unix_socket_directories", "krb_server_keyfile"}
    assert sorted(set(wanted) - set(found) - {"extension_destdir"}) == []
    if version == document["version"]:
        assert sorted(set(found) - set(wanted) - {"extension_destdir"}) == []
    differing = [
        name for name in wanted if name in found and name not in ours and wanted[name] != found[name]
    ]
    assert differing == []
    assert generated["initdb"] == document["initdb"]


def test_every_version_ships_with_its_origin() -> None:
    assert catalogue.versions() == MAJORS
    for major in MAJORS:
        loaded = catalogue.load(major)
        assert loaded.version == major and loaded.server_version.startswith(f"{major}.")
        assert loaded.source.endswith("pg_settings of a new cluster")
        assert len(loaded.knobs()) > 300
        bare = [knob.name for knob in loaded.knobs() if not knob.documentation or not knob.category]
        assert bare == []
        without = {knob.name for knob in loaded.knobs() if not knob.source.file}
        assert without <= {"extension_destdir"}


def test_a_running_servers_rows_make_the_same_catalogue(bindir: Path, data: Path) -> None:
    text = clusters.query(bindir, data, f"SELECT json_agg(t) FROM ({snapshot.QUERY}) t")
    made = catalogue.PostgresqlCatalogue(
        snapshot.from_rows(json.loads(snapshot.copied(text)), server.version_text(bindir), "a server")
    )
    known = catalogue.load(made.version)
    assert [knob.name for knob in made.knobs() if not known.has(knob.name) and knob.settable] == []
    for name in ("shared_buffers", "wal_level", "fsync", "random_page_cost"):
        assert made.knob(name).default == known.knob(name).default
    assert made.faults({"shared_buffers": "1gb"}) != []


def test_the_manual_has_every_anchor() -> None:
    folder = manual.DOC / "postgresql-doc-15" / "html"
    if not folder.is_dir():
        pytest.skip("the manual (postgresql-doc-15) is not installed")
    loaded = catalogue.load("15")
    described = [knob for knob in loaded.knobs() if "#" in knob.source.file]
    assert len(described) > 320
    assert [knob.name for knob in described if not loaded.manual(knob.name)] == []


def test_the_text_of_a_manual_is_read(tmp_path: Path) -> None:
    page = tmp_path / "postgresql-doc-15" / "html" / "runtime-config-wal.html"
    page.parent.mkdir(parents=True)
    page.write_text(
        '<dl><dt id="GUC-FSYNC"><span>fsync</span></dt><dd><p>First\n  words &amp; more.</p><dl>'
        "<dt>nested</dt><dd><p>inner</p></dd></dl><p>Last.</p></dd>"
        '<dt id="GUC-OTHER">o</dt><dd><p>Not this.</p></dd></dl>',
        encoding="utf-8",
    )
    text = manual.text("15", "runtime-config-wal.html#GUC-FSYNC", tmp_path)
    assert text == "First words & more.\n\nnested\n\ninner\n\nLast."
    assert manual.text("15", "runtime-config-wal.html#GUC-NONE", tmp_path) == ""
    assert manual.text("14", "runtime-config-wal.html#GUC-FSYNC", tmp_path) == ""


@pytest.mark.parametrize(
    ("name", "major", "message"),
    [
        ("io_method", "17", "PostgreSQL 17 has no setting 'io_method': new in 18"),
        ("vacuum_defer_cleanup_age", "18", "removed in 16"),
        ("old_snapshot_threshold", "17", "removed in 17"),
        ("force_parallel_mode", "16", "removed in 16, use debug_parallel_query"),
        ("wal_keep_segments", "13", "removed in 13, use wal_keep_size"),
        ("sinchronous_commit", "15", "nearest: synchronous_commit"),
    ],
)
def test_a_name_of_another_version(name: str, major: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        catalogue.load(major).resolve(name)
    assert message in caught.value.what


def test_names_as_the_server_takes_them(bindir: Path, own: catalogue.PostgresqlCatalogue) -> None:
    for name in (
        "Sort_Mem",
        "vacuum_mem",
        "DATESTYLE",
        "force_parallel_mode",
        "io_method",
        "nonsense",
        "a.b",
    ):
        refused = "unrecognized configuration parameter" in server.ask(bindir, {name: "1"}, "port").error
        try:
            own.resolve(name)
        except InvalidInput:
            assert refused, name
        else:
            assert not refused, name


def test_versions_that_do_not_ship() -> None:
    assert catalogue.load("15.18").version == "15"
    with pytest.raises(InvalidInput, match="no catalogue of PostgreSQL 12"):
        catalogue.load("12")


def test_every_default_is_free_of_faults() -> None:
    for major in MAJORS:
        loaded = catalogue.load(major)
        defaults = {knob.name: knob.default for knob in loaded.knobs() if knob.settable}
        assert loaded.faults(defaults) == []


def test_a_page_tells_what_a_setting_is() -> None:
    loaded = catalogue.load("15")
    knob = loaded.knob("synchronous_commit")
    page = render.page(knob, loaded.version, loaded.notes(knob.name))
    for part in ("default     on", "remote_apply", "(context user)", "ALTER ROLE", "#GUC-SYNCHRONOUS-COMMIT"):
        assert part in page
    document = render.document(loaded.knob("shared_buffers"))
    assert (document["default"], document["unit"], document["context"]) == ("128MB", "8kB", "postmaster")
