"""`duratune bench` over the real engine, and the pure parts of what it reports."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashlab.kill import MeasurePlan
from knobs.contract import Contract
from knobs.errors import Undecided
from tests.tuner_tests.fake_lab import fake_lab, unloaded
from tests.tuner_tests.requests import request_of
from tuner import cli
from tuner.report.bench import Bench, BenchedConfig, as_json, as_text, refuse_idle
from tuner.search.interleaved import Measured, interleaved

QUICK = ["--scale", "1", "--clients", "2", "--time", "0.2s", "--seed", "7"]


@pytest.fixture
def room(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder of the test's own; the signal handlers are put back afterwards."""
    request.getfixturevalue("native_parts")
    monkeypatch.chdir(tmp_path)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield tmp_path
    for number, handler in handlers.items():
        signal.signal(number, handler)


def document_of(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert cli.main(["bench", "rocksdb", *QUICK, *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def left(room: Path) -> list[str]:
    return sorted(path.relative_to(room).as_posix() for path in room.rglob("*") if path.is_file())


@pytest.mark.slow
def test_two_configurations_are_measured_in_turn(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["WriteOptions.sync=true", "recycle_log_file_num=4"]
    found = document_of(
        capsys, *(word for pair in sets for word in ("--set", pair)), "--vs", "default", "--rounds", "4"
    )
    ours, default = found["runs"]
    assert (ours["config"], default["config"]) == ("default with --set", "default")
    for run in found["runs"]:
        assert run["throughput"] > 0 and run["errors"] == 0 and len(run["rounds"]) == 4
        assert set(run["p50_us"]) == set(run["p99_us"]) == {"READ", "UPDATE"}
        assert run["intended_p99_us"] == {}, "there was no target"
    assert ours["settings"]["WriteOptions.sync"] == "true" and default["settings"] == {}
    assert found["ratio"]["low"] <= found["ratio"]["mean"] <= found["ratio"]["high"]
    assert found["ratio"]["rounds"] == [
        one["throughput_per_s"] / other["throughput_per_s"]
        for one, other in zip(ours["rounds"], default["rounds"], strict=True)
    ]
    assert ours["effective"]["DBOptions.recycle_log_file_num"] == "0"
    changed = [finding for finding in found["findings"] if "recycle_log_file_num" in finding["setting"]]
    assert [finding["config"] for finding in changed] == [ours["config"]], "0 was in force"
    assert found["schema"] == 1 and found["provenance"]["workload"]["name"] == "ycsb:a"
    assert found["crashed"] is False and "verdict" not in found
    assert [name for name in left(room) if "lock" not in name] == [
        "results/bench-rocksdb-ycsb-a-process/bench.json"
    ]


@pytest.mark.slow
def test_one_configuration_alone(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With YCSB's target the latency from the intended start is told too; a lossy one is told to be lossy."""
    words = ["-p", "target=2000", "--rounds", "1", "--set", "WriteOptions.disableWAL=true", "--study", "mine"]
    assert cli.main(["bench", "rocksdb", *QUICK, *words]) == 0
    text = capsys.readouterr().out
    assert text.startswith("run            rocksdb ") and "contract  " not in text, "none is judged"
    assert text.count("WriteOptions.disableWAL=true") == 2, "as a setting, and as a finding"
    assert "\nsettings       default with --set: WriteOptions.disableWAL=true\n" in text
    assert "from the intended start p50" in text and "2000 operations/s" in text
    assert "WriteOptions.disableWAL=true:" in text, "the catalogue predicts what it loses"
    assert "verdict        none: measured only" in text and "\nratio" not in text
    document = json.loads((room / "mine" / "bench.json").read_text())
    assert document["ratio"] is None and document["target_per_s"] == 2000
    assert set(document["runs"][0]["intended_p50_us"]) == {"READ", "UPDATE"}


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--vs", "default", "--rounds", "2"], "2 rounds give no interval"),
        (["--target", "5", "-p", "target=5"], "the rate is stated twice"),
        (["-p", "target=fast"], "target=fast is no rate"),
        (["-p", "target=-1"], "target=-1 is no rate"),
        (["--time", "0"], "'0' is no time"),
        (["--vs", "missing.OPTIONS"], "cannot read the file"),
        (["--set", "max_open_files=many"], "max_open_files"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    room: Path, capsys: pytest.CaptureFixture[str], words: list[str], what: str
) -> None:
    assert cli.main(["bench", "rocksdb", *words]) == 2
    assert what in capsys.readouterr().err
    assert left(room) == []


def test_a_named_folder_is_never_another(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (room / "mine").mkdir()
    (room / "mine" / "bench.json").write_text("precious")
    assert cli.main(["bench", "rocksdb", *QUICK, "--study", "mine"]) == 2
    assert "error: mine: the folder holds something already" in capsys.readouterr().err
    assert left(room) == ["mine/bench.json"]


@pytest.mark.usefixtures("native_parts")
def test_each_is_first_in_every_other_round(tmp_path: Path) -> None:
    jobs = "DBOptions.max_background_jobs"
    request = unloaded(request_of())
    subjects = [request.subject({jobs: count}) for count in ("1", "2")]
    advanced: list[int] = []
    with fake_lab(tmp_path, lambda settings, _run, _recover: float(settings[jobs])) as lab:
        found = interleaved(lab, subjects, MeasurePlan(), 3, 100, lambda: advanced.append(1))
        assert not list(lab.data.iterdir()), "the bases are gone"
    turns = [(settings[jobs], seed) for settings, seed in zip(lab.runs, lab.seeds, strict=True)]
    assert turns == [("1", 100), ("2", 100), ("2", 101), ("1", 101), ("1", 102), ("2", 102)]
    assert [[run.throughput_per_s for run in measured] for measured in found] == [[1.0, 2.0]] * 3
    assert len(advanced) == 3


def run_of(rate: float, errors: int = 0) -> Measured:
    latency = {"p50_us": rate, "p99_us": 2 * rate, "errors": errors}
    figures = {"throughput_per_s": rate, "last_error": "", "per_operation": {}}
    figures["per_operation"] = {name: dict(latency) for name in ("READ", "UPDATE", "READ-MODIFY-WRITE")}
    return Measured(figures, "")


def bench_of(*rates: Sequence[float], settings: Sequence[dict[str, str]] = ({}, {})) -> Bench:
    configs = [
        BenchedConfig(f"config {index}", settings[index], {}, [], [run_of(rate) for rate in found])
        for index, found in enumerate(rates)
    ]
    return Bench(Contract("process"), "rocksdb", 1, MeasurePlan(), configs)


RATES = st.lists(st.floats(1.0, 1e6), min_size=4, max_size=8)


@given(RATES, st.randoms(use_true_random=False))
def test_the_ratio_is_of_rounds_and_not_of_averages(rates: list[float], random: Any) -> None:
    """Whatever the machine did to a round, it did to both: a ratio that is the same in all stays exact."""
    bench = bench_of([2.0 * rate for rate in rates], rates)
    ratio = as_json(bench, {})["ratio"]
    assert ratio["median"] == pytest.approx(2.0) and ratio["mean"] == pytest.approx(2.0)
    assert ratio["low"] == pytest.approx(2.0) and ratio["high"] == pytest.approx(2.0)
    shuffled = list(rates)
    random.shuffle(shuffled)
    if shuffled != rates:
        other = as_json(bench_of([2.0 * rate for rate in shuffled], rates), {})["ratio"]
        assert other["rounds"] != ratio["rounds"]


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ([20.0, 21.0, 19.9, 20.4], "config 0 is faster"),
        ([5.0, 5.1, 4.9, 5.2], "config 0 is slower"),
        ([10.0, 11.0, 9.0, 10.1], "no difference as far as can be told"),
    ],
)
def test_the_claim_follows_the_interval(first: list[float], words: str) -> None:
    second = [10.0, 10.1, 9.9, 10.0]
    assert words in as_text(bench_of(first, second, settings=({"a": "1"}, {})))


def test_the_same_configuration_twice_is_told_to_be_noise() -> None:
    rates = [10.0, 11.0, 12.0, 11.5]
    assert "shows the noise alone" in as_text(bench_of(rates, rates))
    assert "shows the noise alone" not in as_text(bench_of(rates, rates, settings=({"a": "1"}, {})))


def test_errors_are_counted_once_and_shown() -> None:
    runs = [run_of(10.0, errors=3), run_of(20.0)]
    runs[0].figures["last_error"] = "IO error: planted"
    config = BenchedConfig("mine", {}, {}, [], runs)
    assert config.errors == 6, "READ and UPDATE; the whole READ-MODIFY-WRITE is made of them"
    assert config.throughput == 15.0 and config.latency_us("p99_us")["READ"] == 30.0
    text = as_text(Bench(Contract("process"), "rocksdb", 1, MeasurePlan(), [config]))
    assert "6 errors" in text and "IO error: planted" in text


def test_a_run_that_did_nothing_is_no_measurement() -> None:
    refuse_idle(bench_of([1.0]))
    with pytest.raises(Undecided, match="round 2"):
        refuse_idle(bench_of([1.0, 0.0]))
