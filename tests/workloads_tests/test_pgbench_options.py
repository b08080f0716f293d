"""What makes a pgbench load what it is: each fault told, and everything kept with a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from knobs.errors import InvalidInput
from workloads.pgbench.options import SCALE_MAX, PgbenchOptions
from workloads.pgbench.workload import PgbenchWorkload
from workloads.registry import find


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"scale": 0}, "scale 0 is not from 1"),
        ({"scale": SCALE_MAX + 1}, f"scale {SCALE_MAX + 1}"),
        ({"jobs": 0}, "jobs 0"),
        ({"rate_per_s": -1.0}, "negative"),
        ({"rate_per_s": 5.0, "latency_limit_ms": -1.0}, "negative"),
        ({"latency_limit_ms": 10.0}, "without a rate"),
        ({"protocol": "fast"}, "protocol 'fast' is none of simple, extended, prepared"),
        ({"rate_per_s": float("nan")}, "rate"),
        ({"rate_per_s": float("inf")}, "rate"),
    ],
)
def test_each_fault_is_told(changed: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidInput, match=fault) as caught:
        PgbenchOptions(**changed)
    assert "pgbench(1)" in caught.value.hint


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        PgbenchOptions(scale=0, jobs=0, latency_limit_ms=1.0)
    assert caught.value.what.count(";") == 2


@pytest.mark.parametrize(
    "options",
    [
        PgbenchOptions(),
        PgbenchOptions(50, 2, 12.5, 100.0, True, "prepared", "ALTER ROLE x SET y = 'z';\n", "SELECT 1;"),
    ],
)
def test_options_are_kept_as_texts_and_read_again(options: PgbenchOptions) -> None:
    assert PgbenchOptions.of_texts(options.texts()) == options
    workload = PgbenchWorkload("pgbench:tpcb-like", options)
    assert PgbenchWorkload.of_parameters(workload.name, workload.parameters, None) == workload


@pytest.mark.parametrize(
    "changed",
    [{"scale": "ten"}, {"protocol": "fast"}, {"jobs": "2.5"}, {"scale": "0"}, {"unlogged_tables": "maybe"}],
)
def test_texts_that_are_none_are_refused(changed: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        PgbenchOptions.of_texts({**PgbenchOptions().texts(), **changed})


def test_texts_that_lack_one_are_refused() -> None:
    texts = PgbenchOptions().texts()
    del texts["init_sql"]
    with pytest.raises(InvalidInput, match="init_sql"):
        PgbenchOptions.of_texts(texts)


# By name.


def workload(name: str) -> PgbenchWorkload:
    found = find(name)
    assert isinstance(found, PgbenchWorkload)
    return found


@pytest.mark.parametrize(
    ("name", "writes"), [("tpcb-like", True), ("simple-update", True), ("select-only", False)]
)
def test_the_built_in_scripts(name: str, writes: bool) -> None:
    found = workload(f"pgbench:{name}")
    assert (found.builtin, found.writes, found.notes) == (name, writes, ())
    assert found.register_per_write and found.initial_records == 0
    assert found.at_most(5).options.scale == 1


def test_a_script_of_the_users(tmp_path: Path) -> None:
    path = tmp_path / "mine.sql"
    path.write_text("INSERT INTO t VALUES (1);")
    found = workload(f"pgbench:{path}")
    assert (found.builtin, found.writes) == ("", True) and "wrapped" in found.notes[0]
    path.write_text("SELECT 1;")
    assert not workload(f"pgbench:{path}").writes


@pytest.mark.parametrize(
    ("content", "fault"), [(None, "no such file"), (b" \n", "is empty"), (b"\xff\xfe", "cannot be read")]
)
def test_a_script_that_is_none(content: bytes | None, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.sql"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput, match=fault):
        find(f"pgbench:{path}")


def test_a_name_that_is_nearly_one_is_told_the_names() -> None:
    with pytest.raises(InvalidInput) as caught:
        find("pgbench:tpcb")
    assert "tpcb-like" in caught.value.hint
