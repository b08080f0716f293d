"""Values are read as the server reads them: the same texts are given to both."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knobs.errors import InvalidInput
from knobs.postgresql import server, values
from knobs.postgresql.catalogue import PostgresqlCatalogue, load

# One setting of each unit and kind, without a check of its own beside the range.
NUMERIC = (
    *("work_mem", "shared_buffers", "min_wal_size", "track_activity_query_size", "wal_writer_delay"),
    *("checkpoint_timeout", "log_rotation_age", "bgwriter_lru_maxpages", "tcp_keepalives_idle"),
    *("autovacuum_vacuum_cost_delay", "random_page_cost", "temp_file_limit"),
)

WRITTEN = (
    *("1GB", "1 GB", "1gb", "1Gb", "1 gb", "08kB", "010kB", "0x10kB", "0x1F", "08", "8kB ", " 8kB", "8 k B"),
    *("1.5GB", "30.1GB", "0.5", "1.5", "2.5", "1e3", "1e3kB", "1E", ".5MB", "-.5GB", "-1", "+4096", "5 MB x"),
    *("1TB", "9999999TB", "99999999999999999999", "0.0000001MB", "1e400", "1e-400", "nan", "inf", "-inf"),
    *("0x", "0x1.8p3", "010.5", "08.5", "1_000", "500us", "30s", "1.5h", "0.5min", "1d", "1 d", "1D", "30S"),
    *(
        "100B",
        "8192B",
        "8191B",
        "1KB",
        "1kb",
        "1mb",
        "1M",
        "1k",
        "1ms",
        "",
        " ",
        "GB",
        "1 000",
        "1\tGB",
        "1\n",
    ),
    *(
        "1us",
        "999us",
        "1500us",
        "2147483647",
        "2147483648",
        "-2147483649",
        "0",
        "-0",
        "00",
        "1e",
        "1e+",
        "1.",
        ".",
    ),
)


def agrees(bindir: Path, own: PostgresqlCatalogue, name: str, value: str) -> None:
    """Both take the value and mean the same by it, or both refuse it."""
    answer = server.ask(bindir, {name: value}, name)
    fault = values.fault(own.knob(name), value)
    assert (answer.value is None) == (fault is not None), (name, value, answer, fault)
    if answer.value is None:
        return
    mine = own.normalise(name, value)
    if own.knob(name).kind == "real":
        # The server prints six digits.
        assert float(f"{float(mine):g}") == float(answer.value), (name, value)
    else:
        assert own.normalise(name, answer.value) == answer.value, (name, value)
        assert mine == answer.value, (name, value)


# Each question is one run of the server: the slow test asks about every unit.
def test_written_numbers(bindir: Path, own: PostgresqlCatalogue) -> None:
    for value in WRITTEN:
        agrees(bindir, own, "work_mem", value)


# What the rest of NUMERIC reads like is drawn below.
@pytest.mark.slow
@pytest.mark.parametrize("name", [*NUMERIC[1:6], "bgwriter_lru_maxpages", "autovacuum_vacuum_cost_delay"])
def test_written_numbers_of_every_unit(bindir: Path, own: PostgresqlCatalogue, name: str) -> None:
    for value in WRITTEN:
        agrees(bindir, own, name, value)


numbers = st.one_of(
    st.integers(-(2**40), 2**40).map(str),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(str),
    st.from_regex(r"[+-]?0?[0-9xe.]{0,6}", fullmatch=True),
)
units = st.sampled_from(
    ["", " ", "B", "kB", "MB", "GB", "TB", "us", "ms", "s", "min", "h", "d", "KB", "mb", " kB", "kB "]
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(NUMERIC), number=numbers, unit=units)
def test_any_number(bindir: Path, own: PostgresqlCatalogue, name: str, number: str, unit: str) -> None:
    agrees(bindir, own, name, number + unit)


def test_booleans(bindir: Path, own: PostgresqlCatalogue) -> None:
    words = [
        "on",
        "off",
        "of",
        "o",
        "ON",
        "oFF",
        "t",
        "tru",
        "TRUE",
        "truex",
        "f",
        "fals",
        "y",
        "yes",
        "n",
        "no",
    ]
    for word in [*words, "nope", "1", "0", "2", "01", "", " on", "on ", "enable"]:
        agrees(bindir, own, "fsync", word)


def test_enums_and_their_hidden_words(bindir: Path, own: PostgresqlCatalogue) -> None:
    for name, words in (
        ("synchronous_commit", ["on", "off", "1", "TRUE", "local", "Remote_Write", "remote", "t", " on", ""]),
        ("wal_level", ["replica", "archive", "HOT_STANDBY", "minimal", "logical", "hot", "0"]),
        ("wal_compression", ["on", "pglz", "lz4", "true", "yes", "gzip", "off"]),
        ("client_min_messages", ["debug", "info", "debug2", "panic", "fatal"]),
        ("huge_pages", ["try", "on", "no", "maybe"]),
    ):
        for word in words:
            agrees(bindir, own, name, word)


def test_every_default_is_its_own_spelling(bindir: Path, own: PostgresqlCatalogue) -> None:
    """The readable default means what the server says of it."""
    names = [knob.name for knob in own.knobs() if knob.settable and knob.kind in ("integer", "real")]
    assert len(names) > 120
    for knob in map(own.knob, names[::12]):
        answer = server.ask(bindir, {knob.name: knob.default}, knob.name).value
        expected = answer if answer is None else own.normalise(knob.name, answer)
        if knob.name not in ("wal_buffers", "autovacuum_work_mem"):
            assert own.normalise(knob.name, knob.default) == expected, knob.name


def test_two_spellings_of_one_value_are_equal() -> None:
    catalogue = load("15")
    for name, first, second in (
        ("shared_buffers", "1GB", "131072"),
        ("work_mem", "4096", "4MB"),
        ("wal_writer_delay", "0.2s", "200ms"),
        ("fsync", "1", "On"),
        ("wal_compression", "on", "PGLZ"),
        ("random_page_cost", "1.10", "11e-1"),
    ):
        assert catalogue.normalise(name, first) == catalogue.normalise(name, second), name
        assert catalogue.normalise(name, first) == catalogue.normalise(name, catalogue.normalise(name, first))
    assert catalogue.normalise("work_mem", "4MB") != catalogue.normalise("work_mem", "4GB")


@given(number=st.integers(64, 2**31 - 1))
def test_the_readable_spelling_means_the_same(number: int) -> None:
    knob = load("15").knob("work_mem")
    assert values.normalise(knob, values.spelled(knob, str(number))) == str(number)


def test_range_faults_name_the_bounds_and_the_unit() -> None:
    catalogue = load("15")
    assert catalogue.faults({"checkpoint_timeout": "2d"}) == [
        "checkpoint_timeout: 172800 s is outside the valid range (30 s .. 86400 s)"
    ]
    [fault] = catalogue.faults({"work_mem": "1 gb"})
    assert "spelled GB" in fault
    [fault] = catalogue.faults({"work_mem": "99999999999GB"})
    assert "exceeds the integer range" in fault
    [fault] = catalogue.faults({"synchronous_commit": "of"})
    assert fault.endswith("is none of local, remote_write, remote_apply, on, off; nearest: off")
    [fault] = catalogue.faults({"work_mem": "08kB"})
    assert "octal" in fault
    [fault] = catalogue.faults({"max_connections": "10MB"})
    assert "takes none" in fault


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            {"work_mem": "1gb"},
            "work_mem takes 64 to 2147483647 kB, or a number with one of B, kB, MB, GB, TB; "
            "`duratune knobs postgresql work_mem` says",
        ),
        ({"wal_writer_delay": "1"} | {"commit_delay": "5x"}, "commit_delay takes 0 to 100000; `duratune"),
        (
            {"shared_buffers": "1"},
            "shared_buffers takes 16 to 1073741823 x 8kB, or a number with one of B, kB",
        ),
        (
            {"random_page_cost": "-1", "WORK_MEM": "1"},
            "random_page_cost takes 0 to 1.79769e+308; work_mem takes",
        ),
        ({"fsync": "maybe"}, "`duratune knobs postgresql fsync` says"),
        ({"nothing": "1", "block_size": "1"}, "`duratune knobs postgresql "),
        ({"wal_level": "minimal"}, "`duratune knobs postgresql NAME` says"),
    ],
)
def test_a_refused_value_says_what_its_setting_takes(wrong: dict[str, str], told: str) -> None:
    """The hint is the same in a text as in JSON (tuner/failure.py)."""
    with pytest.raises(InvalidInput) as caught:
        load("15").validate(wrong)
    assert caught.value.hint.startswith(told)
