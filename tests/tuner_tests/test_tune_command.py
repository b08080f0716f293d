"""`duratune tune` over the real engine, as a process, from CONFIG to what a user takes away."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engines import host
from engines.scratch import left_behind
from knobs import configuration
from knobs.contract import Contract
from knobs.errors import InvalidInput
from knobs.rocksdb import library
from tests.tuner_tests import studies
from tests.tuner_tests.program import Ended
from tests.tuner_tests.requests import OPTIONS_HEAD
from tests.tuner_tests.studies import QUICK, run, started
from tuner import cli
from tuner.search.trial import TrialResult

pytestmark = pytest.mark.usefixtures("native_parts")

NAME = "results/rocksdb-ycsb-a-process"
CONFIG = f"""\
{OPTIONS_HEAD}  wal_dir=/nowhere/wal
  db_log_dir=/nowhere/log
[CFOptions "default"]
  write_buffer_size=33554432
[TableOptions/BlockBasedTable "default"]
  block_size=8192
"""
TUNE = [
    "tune",
    "rocksdb",
    "mine.OPTIONS",
    *QUICK,
    "--trials",
    "3",
    "--fix",
    "ColumnFamilyOptions.compression=kNoCompression",
]


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The signal handlers of the test process are put back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@dataclass(frozen=True)
class Study:
    """A finished study: where its command stood, and what it printed."""

    room: Path
    ended: Ended

    @property
    def folder(self) -> Path:
        return self.room / NAME

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ended.document
        return found


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """One tiny study to its end."""
    room = tmp_path_factory.mktemp("tune")
    (room / "mine.OPTIONS").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        ended = run([*TUNE, "--json"], room)
        assert ended.code == 0, ended.err
        studies.assert_nothing_left(room)
    return Study(room, ended)


@pytest.mark.slow
def test_the_document_is_what_other_programs_rely_on(study: Study) -> None:
    found = study.document
    promised = {"study", "contract", "reference", "controls", "winner", "confirmation", "refused", "trials"}
    assert promised | {"schema", "provenance"} <= set(found)
    assert (found["schema"], found["study"], found["contract"]) == (1, NAME, "process")
    assert {"trial", "settings", "verdict"} <= set(found["winner"]) and found["winner"]["verdict"] == "HELD"
    assert all(control["wanted"] == control["got"] for control in found["controls"].values())
    assert {"kill.lossy", "kill.honest", "synced.lossy", "cache.honest"} <= set(found["controls"])
    assert [trial["trial"] for trial in found["trials"]] == [0, 1, 2]
    assert all({"trial", "reasons", "ratio"} <= set(refused) for refused in found["refused"])
    claim, winner = found["confirmation"], found["winner"]["trial"]
    if claim is not None:
        assert {"ratio", "low", "high", "rounds"} <= set(claim)
        assert claim["low"] <= claim["ratio"] <= claim["high"] and len(claim["rounds"]) == 8
    # What is not proven faster is named, and the reference wins.
    assert winner == (claim["trial"] if claim is not None and claim["low"] > 1.0 else 0)
    assert (found["unproven"] is None) is (claim is None or winner > 0)
    origin = found["provenance"]
    assert {"version", "commit"} <= set(origin["duratune"])
    wanted = {
        "command",
        "seed",
        "started_at",
        "engine",
        "workload",
        "recorder",
        "models",
    }
    assert wanted <= set(origin)
    assert origin["seed"] == 5 and origin["workload"]["recordcount"] == "1000"
    assert json.loads((study.folder / "report.json").read_text()) == found


@pytest.mark.slow
def test_every_trial_is_counted_and_the_end_has_a_reason(study: Study) -> None:
    lines = [line for line in study.ended.err.splitlines() if line.startswith("trials ")]
    counts = [line.split(":")[0] for line in lines if "/" in line.split(":")[0]]
    assert counts == ["trials 0/3", "trials 1/3", "trials 2/3", "trials 3/3"]
    assert "trials 3 finished: the number of trials is reached (3)" in lines
    assert "stopped" not in study.ended.err


@pytest.mark.slow
def test_the_users_config_is_trial_0_and_leads_nowhere_outside(study: Study) -> None:
    found = study.document
    reference, *others = found["trials"]
    assert reference["proposer"] == "reference" and {trial["proposer"] for trial in others} == {"rules"}
    assert found["reference"]["config"] == ["mine.OPTIONS"]
    assert found["reference"]["settings"] == reference["settings"]
    assert reference["settings"]["CFOptions.write_buffer_size"] == "33554432"
    assert reference["settings"]["DBOptions.max_background_jobs"] == "3"
    overridden = {
        finding["setting"]: finding["value"]
        for finding in found["findings"]
        if finding["rule"] == "outside-overridden"
    }
    assert overridden == {"DBOptions.wal_dir": "/nowhere/wal", "DBOptions.db_log_dir": "/nowhere/log"}
    assert "/nowhere/wal" in study.ended.err, "a person reads it too"
    for number in range(3):
        text = (study.folder / f"trial-{number:04d}" / "effective.OPTIONS").read_text()
        assert "/nowhere" not in text and "block_size=8192" in text


@pytest.mark.slow
def test_what_is_fixed_is_in_every_trial_and_not_searched(study: Study) -> None:
    name = "CFOptions.compression"
    assert all(trial["settings"][name] == "kNoCompression" for trial in study.document["trials"])
    kept = json.loads((study.folder / "study.json").read_text())
    assert name in kept["exclude"]
    for trial in study.document["trials"]:
        effective = TrialResult.load(study.folder / f"trial-{trial['trial']:04d}")
        assert effective is not None and effective.effective[name] == "kNoCompression"


@pytest.mark.slow
def test_each_trial_keeps_what_it_was_and_what_it_did(study: Study) -> None:
    studies.assert_told(study.folder)
    for trial in study.document["trials"]:
        folder = study.folder / f"trial-{trial['trial']:04d}"
        assert json.loads((folder / "proposed.json").read_text())["settings"] == trial["settings"]
        assert json.loads((folder / "measured.json").read_text())["throughput_per_s"] > 0
        assert (folder / "effective.OPTIONS").stat().st_size > 0
        result = TrialResult.load(folder)
        assert result is not None and result.verdict == trial["verdict"] == "HELD"
        assert result.crash["kill"]["acks"] > 0 and len(result.crash["states"]) >= 6
        assert len(result.reference_per_s) == 2 and trial["findings"] == [dict(f) for f in result.findings]
    assert "HELD" in (study.folder / "report.txt").read_text()


@pytest.mark.slow
def test_the_winners_file_is_the_winner(study: Study) -> None:
    winner = study.folder / "winner"
    assert "rocksdb" in library.roundtrip(winner / "OPTIONS"), "RocksDB itself loads it"
    read = configuration.read("rocksdb", f"{winner}/OPTIONS+{winner}/write-options.json")
    settings = study.document["winner"]["settings"]
    assert settings.items() <= read.settings.items() and read.findings == ()


@pytest.mark.slow
def test_the_printed_command_repeats_the_verdict(
    study: Study, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(study.room)
    program, *words = shlex.split(study.document["winner"]["repeat"])
    assert program == "duratune"
    assert cli.main([*words, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == study.document["winner"]["verdict"] and found["contract"] == "process"
    assert found["provenance"]["workload"]["recordcount"] == "1000"
    winner = study.document["winner"]
    assert found["seed"] == winner["seed"] != study.document["provenance"]["seed"]
    assert found["process_crash"]["states"] == winner["process_crash"]["states"]
    # What does not count of power cuts, for a limit of the engine, is not the same number in two runs.
    assert len(found["states"]) == int(words[words.index("--states") + 1])
    assert left_behind() == []


@pytest.mark.slow
def test_the_same_command_again_is_the_next_number_and_one_at_a_time(
    study: Study, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = studies.kept_results(study.folder)
    monkeypatch.chdir(study.room)
    again = study.folder.with_name(f"{study.folder.name}-2")
    with started(TUNE, study.room) as process:
        studies.await_file(again / "study.json", process)
        assert cli.main([*TUNE, "--json"]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert f"in use by process {process.pid}" in error["what"] and again.name in error["where"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    studies.assert_nothing_left(study.room)
    studies.assert_kept(before, study.folder)
    assert json.loads((study.folder / "report.json").read_text()) == study.document


@pytest.mark.slow
def test_a_named_study_that_is_finished_is_kept_and_the_next_number_told(study: Study) -> None:
    with started([*TUNE, "--study", NAME], study.room) as process:
        assert process.stdout is not None and process.stdout.readline().startswith("contract ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    told = (study.room / "stderr").read_text()
    assert f"the study in {NAME} is finished and kept; this one is {NAME}-" in told


@pytest.mark.slow
def test_a_setting_that_every_candidate_would_inherit_ends_the_search(tmp_path: Path) -> None:
    try:
        host.refuse_unsafe_data_folder(tmp_path, Contract("strict"))
    except InvalidInput as error:
        pytest.skip(str(error))
    words = ["--contract", "strict", "--set", "sync=false", "--trials", "9", "--study", "pinned", "--json"]
    ended = run(["tune", "rocksdb", *QUICK, *words], tmp_path)
    assert ended.code == 1, ended.err
    assert [trial["verdict"] for trial in ended.document["trials"]] == ["BROKEN"]
    assert ended.document["winner"] is None and "WriteOptions.sync=false" in ended.document["cut_short"]
    assert "trials 1 finished: the reference broke the contract (lost-ack" in ended.err
    assert not (tmp_path / "pinned" / "winner").exists()
    studies.assert_nothing_left(tmp_path)


@pytest.mark.slow
def test_an_audit_ships_what_a_contract_would_have_refused(tmp_path: Path) -> None:
    try:
        host.refuse_unsafe_data_folder(tmp_path, Contract("strict"))
    except InvalidInput as error:
        pytest.skip(str(error))
    words = ["--contract", "strict", "--audit-only", "--only", "sync", "--only", "disableWAL"]
    ended = run(["tune", "rocksdb", *QUICK, "--trials", "5", *words, "--study", "audit", "--json"], tmp_path)
    assert ended.code == 0, ended.err
    found = ended.document
    by_verdict: dict[str, list[Any]] = {}
    for trial in found["trials"]:
        by_verdict.setdefault(trial["verdict"], []).append(trial)
    assert set(by_verdict) >= {"HELD", "BROKEN"}
    for trial in by_verdict["BROKEN"]:
        assert trial["reasons"] and trial["throughput_per_s"] > 0
        lossy = trial["settings"]["WriteOptions.sync"] == "false" or (
            trial["settings"].get("WriteOptions.disableWAL") == "true"
        )
        assert lossy
    assert found["audit_only"] and found["winner"] is None
    assert found["fastest"]["ratio"] == max(trial["ratio"] for trial in found["trials"])
    assert {refused["trial"] for refused in found["refused"]} == {t["trial"] for t in by_verdict["BROKEN"]}
    text = (tmp_path / "audit" / "report.txt").read_text()
    assert f"would have shipped trial {found['fastest']['trial']}" in text and "winner " not in text
    studies.assert_told(tmp_path / "audit")
    studies.assert_nothing_left(tmp_path)


WRONG: list[tuple[list[str], str]] = [
    (["--trials", "0"], "--trials"),
    (["--time", "soon"], "'soon' is no time"),
    (["--time", "99999999999h"], "is longer than 30 days"),
    (["--time", "5s"], "5 s are too short for a claim"),
    (["--measure", "0"], "--measure"),
    (["--clients", "0"], "--clients"),
    (["--contract", "hope"], "'hope' is no contract"),
    (["--workload", "ycsb:g"], "neither a core workload nor a file"),
    (["--fix", "nonsense=1"], "no option 'nonsense'"),
    (["--fix", "compression"], "no NAME=VALUE"),
    (["--fix", "write_buffer_size=big"], "write_buffer_size"),
    (["--only", "write_bufer_size"], "no knob matches 'write_bufer_size'"),
    (["--exclude", "no*such", "--exclude", "compression"], "no knob matches 'no*such'"),
    (["--only", "sync"], "no knob is left to search"),
    (["missing.OPTIONS"], "missing.OPTIONS"),
    (["--study", "/dev/null/study"], "results cannot be written"),
    (["--study", "/proc/study"], "results cannot be written"),
    (["--cf", "nowhere"], "nowhere"),
    (["--data", "."], "the data folder exists already"),
]


@pytest.mark.parametrize(("words", "what"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_what_cannot_be_tuned_is_refused_before_anything_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["tune", "rocksdb", *QUICK, *words]) == 2
    captured = capsys.readouterr()
    assert what in captured.err
    assert not list(tmp_path.rglob("trial-*")) and not list(tmp_path.rglob("study.json"))
