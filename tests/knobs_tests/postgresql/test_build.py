"""What an installed server was built with, as it answers itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from knobs.postgresql.build import BY_BUILD, installed
from knobs.postgresql.catalogue import load
from knobs.postgresql.server import major_of, version_text

OPTIONS = {"lz4": "--with-lz4", "zstd": "--with-zstd", "io_uring": "--with-liburing"}


def test_a_choice_is_there_where_the_server_was_configured_with_it(bindir: Path) -> None:
    """pg_config(1) prints the options of the script `configure`; Meson's builds print none."""
    if not (bindir / "pg_config").exists():
        pytest.skip("no pg_config")
    major = major_of(version_text(bindir))
    words = [str(bindir / "pg_config"), "--configure"]
    configured = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    if not configured.strip():
        pytest.skip("pg_config says nothing of how it was configured")
    whole, found = load(major), installed(bindir, major)
    for name, choices in BY_BUILD.items():
        for choice in choices:
            if whole.has(name) and choice in whole.knob(name).choices:
                has = choice in found.knob(name).choices
                assert has == (OPTIONS[choice] in configured), (name, choice)
                assert (found.faults({name: choice}) == []) == has


def test_a_server_that_has_everything_has_the_catalogue_that_ships(tmp_path: Path) -> None:
    """So has one that cannot answer: why, it says when it is started."""
    for number, (answer, code) in enumerate((("echo any", 0), ("echo 'FATAL: no' >&2", 1))):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "postgres").write_text(f"#!/bin/sh\n{answer}\nexit {code}\n")
        (folder / "postgres").chmod(0o755)
        assert installed(folder, "18").knobs() == load("18").knobs()


def test_what_was_not_built_in_is_told_as_that() -> None:
    bare = load("18").without({"io_method": ("io_uring",)})
    assert bare.knob("io_method").choices == ("sync", "worker")
    assert bare.faults({"io_method": "io_uring"}) == ["io_method: this server was built without io_uring"]
    assert bare.faults({"io_method": "worker", "wal_compression": "lz4"}) == []
    assert load("18").faults({"io_method": "io_uring"}) == []
