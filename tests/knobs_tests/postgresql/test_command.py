"""`duratune knobs postgresql`."""

from __future__ import annotations

import json
import subprocess
import sys


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuner.cli", "knobs", "postgresql", *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)


def test_one_setting_of_a_version_as_json() -> None:
    done = run("FSYNC", "--engine-version", "17", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["engine"], document["version"]) == (0, "postgresql", "17")
    [knob] = document["knobs"]
    assert (knob["name"], knob["default"], knob["context"]) == ("fsync", "on", "sighup")
    assert "power cut" in knob["durability"] and knob["source"] == "runtime-config-wal.html#GUC-FSYNC"


def test_json_says_what_the_page_says_of_values() -> None:
    for name, takes, units in (
        ("shared_buffers", "16 to 1073741823 x 8kB, or a number with one of B, kB, MB, GB, TB", ["B", "kB"]),
        ("wal_writer_delay", "1 to 10000 ms, or a number with one of us, ms, s, min, h, d", ["us", "ms"]),
        ("wal_level", "minimal, replica, logical", []),
        ("max_connections", "1 to 262143", []),
    ):
        [knob] = json.loads(run(name, "--engine-version", "15", "--json").stdout)["knobs"]
        assert (knob["takes"], knob["units"][:2]) == (takes, units)
        page = " ".join(run(name, "--engine-version", "15").stdout.split())
        assert f"takes {takes} category" in page


def test_the_list_and_its_marks() -> None:
    done = run("--engine-version", "18")
    lines = {line[4:].split()[0]: line[:3].strip() for line in done.stdout.splitlines()[1:]}
    assert done.returncode == 0 and len(lines) > 350
    assert (lines["fsync"], lines["max_wal_size"], lines["random_page_cost"], lines["port"]) == (
        "d",
        "ds",
        "s",
        "",
    )


def test_a_setting_of_another_version_is_refused() -> None:
    done = run("io_method", "--engine-version", "15", "--json")
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 2 and error["code"] == "invalid-input" and "new in 18" in error["what"]
