"""`duratune crash|bench|tune postgresql`: bad input, and small runs on the real server as processes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from engines.postgresql import binaries
from engines.scratch import left_behind
from tests.tuner_tests.crash_runs import MARKER, Room
from tests.tuner_tests.program import PROGRAM
from tests.tuner_tests.test_kinds import programs_of
from tuner import cli

pytestmark = pytest.mark.usefixtures("native_parts", "postgresql")

QUICK = ("--states", "8", "--measure", "0.5", "--operations", "1000", "--scale", "1", "--seed", "5")
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives the server another user")
Refused = Callable[..., dict[str, str]]


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Refused]:
    """The error of a command that must fail, with its exit code; it leaves nothing behind."""
    monkeypatch.chdir(tmp_path)

    def of(code: int, *words: str) -> dict[str, str]:
        before = sorted(tmp_path.rglob("*"))
        assert cli.main([words[0], "postgresql", *words[1:], "--json", "--quiet"]) == code, words
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        error: dict[str, str] = json.loads(captured.out)["error"]
        assert error["hint"] and "\n" not in error["what"]
        assert sorted(tmp_path.rglob("*")) == before
        return error

    yield of
    assert left_behind() == []


# Bad input.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("shared_buffers = 1 gb\n", "syntax error near 'gb'"),
        ("shared_buffers = '1 gb'\n", "the unit is spelled GB"),
        ("work_mem = 08kB\n", "begins with 0 is octal"),
        ("search_path = 'abc\n", "the quote is not terminated"),
        ("max_connections = 262144\n", "outside the valid range (1 .. 262143)"),
        ("fsynk = off\n", "nearest: fsync"),
        ("include 'postgresql.conf'\n", "the includes are a loop"),
        ("include 'none.conf'\n", "none.conf"),
        ("max_connections = 17\n", "17 is less than 8 clients + 10"),
    ],
)
def test_a_faulty_configuration_is_refused(refused: Refused, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "postgresql.conf").write_text(text)
    error = refused(2, "crash", "postgresql.conf")
    assert said in f"{error['where']} {error['what']}"


def test_a_name_of_another_version_is_told_as_such(refused: Refused, postgresql: str) -> None:
    if int(postgresql) < 17:
        assert "new in 17" in refused(2, "crash", "--set", "summarize_wal=on")["what"]
    if int(postgresql) >= 15:
        assert "removed in 15" in refused(2, "crash", "--set", "stats_temp_directory=x")["what"]
    if int(postgresql) >= 16:
        assert "removed in 16" in refused(2, "crash", "--set", "vacuum_defer_cleanup_age=5")["what"]
    assert "nearest: fsync" in refused(2, "tune", "--fix", "fsynk=off")["what"]


def test_a_wrong_value_is_told_with_its_place_and_what_the_setting_takes(
    refused: Refused, tmp_path: Path
) -> None:
    (tmp_path / "mine.conf").write_text("work_mem = 8MB\nwal_level = 'full'\n")
    error = refused(2, "crash", "mine.conf", "--set", "wal_writer_delay=5 parsec")
    assert error["where"] == "mine.conf:2, --set"
    assert "'full' is none of minimal, replica, logical" in error["what"]
    assert error["hint"].startswith("wal_writer_delay takes 1 to 10000 ms, or a number with one of us, ms, s")
    assert refused(2, "tune", "--fix", "work_mem=1gb")["where"] == "--fix"


def test_a_data_directory_is_no_configuration(refused: Refused, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "PG_VERSION").write_text("15\n")
    (data / "postgresql.conf").write_text("work_mem = 4MB\n")
    error = refused(2, "crash", "data")
    assert "folder" in error["what"] and "data/postgresql.conf" in error["hint"]


@pytest.mark.parametrize(
    ("code", "words", "where", "said"),
    [
        (2, ("crash", "--init-sql", "none.sql"), "--init-sql none.sql", "No such file"),
        (2, ("crash", "--workload", "pgbench:none.sql"), "--workload", "none.sql"),
        (2, ("crash", "--bindir", "."), "", "holds no program postgres"),
        (2, ("crash", "--scale", "21475"), "--scale", "limit of 21474"),
        (3, ("crash", "--scale", "21474"), "", "scale 21474 is"),
        (4, ("crash", "--workload", "pgbench:select-only"), "--workload", "UNKNOWN"),
        (2, ("tune", "--workload", "pgbench:select-only"), "--workload", "writes nothing"),
        (2, ("bench", "--protocol", "fancy"), "", "fancy"),
        (2, ("bench", "--latency-limit", "5"), "--latency-limit", "without a rate"),
        (2, ("crash", "--cf", "other"), "--cf", "option of rocksdb"),
        (2, ("bench", "-p", "target=50"), "-p", "option of ycsb"),
    ],
)
def test_what_cannot_be_done_is_refused(
    refused: Refused, code: int, words: tuple[str, ...], where: str, said: str
) -> None:
    error = refused(code, *words)
    assert where in error["where"] and said in error["what"]


def test_a_script_that_only_reads_decides_nothing(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "read.sql").write_text("SELECT 1;\n")
    error = refused(4, "crash", "--workload", "pgbench:read.sql")
    assert "writes nothing" in error["what"] and "duratune bench" in error["hint"]


def test_a_program_that_is_missing_is_named_with_its_package(refused: Refused, tmp_path: Path) -> None:
    found = binaries.find()
    for program in found.folder.iterdir():
        if program.name != "pgbench":
            (tmp_path / program.name).symlink_to(program)
    error = refused(3, "crash", "--bindir", str(tmp_path))
    assert "lacks pgbench" in error["what"] and f"postgresql-{found.version.major}" in error["hint"]


@AS_ROOT
def test_without_another_user_nothing_runs(tmp_path: Path) -> None:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("no setpriv (util-linux)")
    words = [setpriv, "--bounding-set=-setuid,-setgid", *PROGRAM, "crash", "postgresql", "--json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    error = json.loads(done.stdout)["error"]
    assert (
        done.returncode == 3 and "refuses to run as root" in error["what"] and "CAP_SETUID" in error["hint"]
    )
    assert list(tmp_path.iterdir()) == []


@AS_ROOT
def test_a_data_folder_out_of_reach_is_refused(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    error = refused(2, "crash", "--data", "mine/new")
    assert "cannot reach" in error["what"] and "/var/tmp" in error["hint"]


# Runs.


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    """Whatever the test does, nothing that is duratune's is left at its end."""
    room = Room.make(tmp_path)
    yield room
    assert room.left_behind() == []


def kept_by(room: Room, folder: Path) -> list[str]:
    """The scratch folders of the room's commands in a folder that others use too."""
    kept = []
    for marker in folder.glob(f"duratune-*/{MARKER}"):
        with suppress(OSError):  # somebody else's, gone meanwhile or not to be read
            kept.append(marker.read_text())
    return [token for token in kept if any(token.startswith(f"{pid}-") for pid in room.pids)]


def test_a_server_of_which_nothing_can_be_held_is_not_tuned(refused: Refused, tmp_path: Path) -> None:
    bindir = programs_of(tmp_path / "old", "13.23")
    error = refused(4, "tune", "--bindir", str(bindir))
    assert "PostgreSQL before 14 does not count its log's syncs" in error["what"]


@pytest.mark.slow
def test_the_defaults_hold_and_a_state_is_judged_again(room: Room) -> None:
    """With a path and an archive_command in CONFIG, which are overridden, listed and never run."""
    ran = room.folder / "ran"
    (room.folder / "mine.conf").write_text(
        f"data_directory = '/var/lib/postgresql/15/main'\narchive_mode = on\n"
        f"archive_command = 'touch {ran}'\nwal_buffers = 32kB\nwork_mem = 8MB\n"
    )
    ended = room.run("crash", "postgresql", "mine.conf", *QUICK, "--json")
    document = ended.document
    assert (ended.code, document["verdict"]) == (0, "HELD"), ended
    assert not ran.exists()
    assert (document["engine"], document["contract"]) == ("postgresql", "strict")
    assert {"data_directory", "archive_mode", "archive_command"} <= {
        finding["setting"] for finding in document["findings"] if finding["rule"] == "outside-overridden"
    }
    assert document["effective"]["work_mem"] == "8192"
    assert document["provenance"]["engine"]["name"] == "postgresql"
    assert document["provenance"]["workload"]["scale"] == "1"
    assert {state["model"] for state in document["states"]} >= {"cache", "synced", "torn"}
    assert all(state["checks"] for state in document["states"])
    words = shlex.split(document["replay"])[1:]
    again = room.run(*words, "--json")
    assert (again.code, again.document["verdict"]) == (0, "HELD"), again
    assert again.document["findings"] == document["findings"]
    assert again.document["recorded_version"] == document["provenance"]["engine"]["version"]
    came_from, recorded = again.document["provenance"], document["provenance"]
    assert (came_from["engine"], came_from["settings"]) == (recorded["engine"], recorded["settings"])
    assert (
        came_from["workload"]["name"] == "pgbench:tpcb-like" and came_from["settings"]["work_mem"] == "8192"
    )
    told = room.run(*words, "--bindir", str(binaries.find().folder))
    assert told.code == 0 and f"run            postgresql {binaries.find().version}, pgbench" in told.out
    assert "settings       wal_buffers=32kB work_mem=8MB" in told.out
    assert "finding        data_directory, " in told.out
    assert room.run(*words, "--bindir", str(room.folder)).code == 2


@pytest.mark.slow
def test_what_a_role_sets_is_named_and_breaks(room: Room) -> None:
    """The server's default is on; the role that runs the load has it off, and so loses what it was told."""
    (room.folder / "init.sql").write_text("ALTER ROLE postgres SET synchronous_commit = off;\n")
    slow = ("--set", "wal_writer_delay=10s", "--set", "wal_writer_flush_after=1GB")
    ended = room.run("crash", "postgresql", *slow, *QUICK, "--init-sql", "init.sql", "--json")
    document = ended.document
    assert (ended.code, document["verdict"]) == (1, "BROKEN"), ended
    assert "lost-ack" in document["reasons"]
    assert document["power_cut"]["first_lost"]["key"].startswith("transaction 7")
    told = {finding["setting"]: finding for finding in document["findings"]}
    assert told["synchronous_commit"]["rule"] == "set-by-role" and "ROLE" in told["synchronous_commit"]["why"]


@pytest.mark.slow
def test_a_script_of_the_users_is_told_what_was_added(room: Room) -> None:
    script = "UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = 1 + :client_id;\n"
    (room.folder / "mine.sql").write_text(script)
    ended = room.run("crash", "postgresql", *QUICK, "--workload", "pgbench:mine.sql")
    assert ended.code == 0, ended
    assert (
        "wrapped in BEGIN and END, with a rider insert" in ended.out
        and "checked        8 states" in ended.out
    )
    (room.folder / "fails.sql").write_text("INSERT INTO nothing VALUES (1);\n")
    failed = room.run(
        "bench", "postgresql", "--workload", "pgbench:fails.sql", "--scale", "1", "--time", "0.3"
    )
    assert failed.code == 2 and 'relation "nothing" does not exist' in failed.err


@pytest.mark.slow
@AS_ROOT
def test_results_out_of_the_servers_reach_send_the_data_elsewhere(room: Room) -> None:
    private = room.folder / "private"
    private.mkdir(mode=0o700)
    words = (
        "bench",
        "postgresql",
        "--scale",
        "1",
        "--time",
        "0.3",
        "--rounds",
        "1",
        "--study",
        "private/run",
    )
    ended = room.run(*words, "--vs", "default", "--rounds", "4", "--set", "work_mem=8MB", "--json")
    assert ended.code == 0 and "the data lie in /var/tmp" in ended.err, ended
    assert "runs as" in ended.err
    document = ended.document
    assert [run["config"] for run in document["runs"]] == ["default with --set", "default"]
    assert document["runs"][0]["effective"]["work_mem"] == "8192" and document["ratio"]["low"] > 0
    assert kept_by(room, Path("/var/tmp")) == []


@pytest.mark.proof
def test_a_study_has_a_winner_and_its_rival(room: Room) -> None:
    words = ("tune", "postgresql", "--scale", "1", "--measure", "0.3", "--seed", "5", "--study", "study")
    ended = room.run(*words, "--trials", "2", "--json")
    document = ended.document
    assert ended.code in (0, 4), ended
    assert [trial["proposer"] for trial in document["trials"]] == ["reference", "rules"]
    if document["winner"] is not None:
        (rival,) = document["rivals"]
        assert rival["proposer"] == "pgtune" and (rival["rounds"] or rival["why"])
        assert (room.folder / "study/winner/postgresql.conf").is_file()
        assert "--scale 1" in document["winner"]["repeat"]
    assert {path.name for path in (room.folder / "study/trial-0000").iterdir()} >= {"effective.json"}


@pytest.mark.proof  # by its length; every trial of it is what other tests run
def test_an_audit_of_a_search_for_speed_alone(room: Room) -> None:
    words = ("tune", "postgresql", "--scale", "1", "--measure", "0.3", "--seed", "5", "--study", "study")
    ended = room.run(*words, "--trials", "2", "--audit-only", "--json")
    assert ended.code in (0, 1), ended
    reference, fast = ended.document["trials"]
    assert reference["verdict"] == "HELD" and fast["proposer"] == "speed"
    assert fast["settings"] == {"fsync": "off"} and ended.document["rivals"] == []
