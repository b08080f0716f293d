"""Each engine and each family of workloads, as the commands ask for them: the same questions of all."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crashlab.judging.verdict import LostWrite
from crashlab.recording.recorded import Facts
from engines.postgresql import binaries, server_user
from engines.postgresql.engine import PostgresqlEngine
from engines.postgresql.session_settings import SessionSettings
from engines.supervisor import Supervisor
from knobs.contract import Contract
from knobs.errors import InvalidInput, MachineLacks
from knobs.postgresql import tuning
from knobs.postgresql.catalogue import load
from tests.tuner_tests.requests import result_of
from tests.tuner_tests.test_tune_report import winner_of
from tuner import room
from tuner.kinds import pgbench, registry, ycsb
from tuner.kinds.family import Size
from tuner.kinds.registry import FAMILIES, KINDS, family, kind
from tuner.options import Asked
from tuner.proposers.proposal import HostLimits
from tuner.report import tune as tune_report
from tuner.report.settings import in_short
from tuner.request import Request, host_limits, resolve_asked
from tuner.search.inherited import inherited_break
from tuner.search.rivals import rivals_of
from tuner.search.study import StudyFolder
from tuner.search.study_plan import StudyPlan
from tuner.search.tuning import reference_settings, search_space
from tuner.static_check import breaking, differences, predicted
from workloads.pgbench.workload import PgbenchWorkload

pytestmark = pytest.mark.usefixtures("native_parts", "postgresql")

CRASH, TUNE = Size(20_000, 1), Size(50_000, 10)
SCRIPT = "BEGIN;\nUPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = 1;\nEND;\n"


def asked(engine: str = "postgresql", **more: Any) -> Asked:
    return replace(Asked(engine), **more)


def pgbench_of(request: Request) -> PgbenchWorkload:
    assert isinstance(request.workload, PgbenchWorkload)
    return request.workload


def postgresql_with(*sets: str, **more: Any) -> Request:
    return resolve_asked(asked(sets=list(sets), **more), CRASH)


# Every engine.


@pytest.mark.parametrize("name", KINDS)
def test_an_engine_is_whole_without_any_option(name: str) -> None:
    found = kind(name)
    request = resolve_asked(asked(name), CRASH)
    assert found.name == name == request.engine.name and request.kind is found
    assert request.workload.name == found.default_workload and request.clients == found.clients
    assert request.settings == {} and request.findings == () and request.idle == ""
    assert request.contract == request.engine.default_contract
    assert registry.family_word(found.default_workload) == found.families[0]
    assert {*found.families} <= {*FAMILIES}
    reference = reference_settings(request)
    assert predicted(request, reference) == []
    space = search_space(request, StudyPlan(), reference)
    assert space.distributions and request.described().data_bytes > 0
    need = found.rules.memory(request.catalogue, request.engine.stated({}), request.clients)
    assert 0 < need.wanted_bytes < host_limits().memory_bytes and need.who


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("contract", ["strict", "process", "bounded:600ms"])
def test_no_start_point_breaks_and_an_audit_puts_back_what_does(name: str, contract: str) -> None:
    request = resolve_asked(asked(name, contract=contract), CRASH)
    reference = reference_settings(request)
    search = request.kind.search
    for proposer in search.proposers(request.catalogue):
        for point in proposer.start_points(host_limits()):
            settings = {n: request.catalogue.normalise(n, v) for n, v in point.settings.items()}
            request.catalogue.validate({**reference, **settings})
            assert breaking(request, {**reference, **settings}) == [], (proposer.name, point.reason)
    audited = search.ranges(request.catalogue, host_limits(), None, True)
    assert {*audited} > {*search.ranges(request.catalogue, host_limits(), None, False)}
    strict = replace(request, contract=Contract("strict"))
    fast = search.speed_alone(request.catalogue, reference)
    assert fast and all(breaking(strict, {**reference, **point.settings}) for point in fast)


@pytest.mark.parametrize("name", KINDS)
def test_a_winner_is_a_config_that_says_the_same(name: str, tmp_path: Path) -> None:
    request = resolve_asked(asked(name), CRASH)
    point = request.kind.search.proposers(request.catalogue)[0].start_points(host_limits())[0]
    settings = {n: request.catalogue.normalise(n, v) for n, v in point.settings.items()}
    for chosen in (settings, {}):
        folder = tune_report.write_winner(request, tmp_path, result_of(1, settings=chosen))
        files = [f"{folder}/{file}" for file in request.kind.writing.files(request.engine, chosen)]
        again = resolve_asked(asked(name, config="+".join(files)), CRASH)
        assert chosen.items() <= again.settings.items() and again.findings == ()


def test_what_is_no_engine_or_workload_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'mysql' is no engine") as caught:
        resolve_asked(asked("mysql"), CRASH)
    assert caught.value.hint == "use rocksdb or postgresql"
    for name in ("tpcc", "tpcc:a", "pgbench:", "ycsb:"):
        with pytest.raises(InvalidInput, match="is no workload"):
            resolve_asked(asked(workload=name), CRASH)
    with pytest.raises(InvalidInput, match="pgbench does not drive rocksdb"):
        resolve_asked(asked("rocksdb", workload="pgbench:tpcb-like"), CRASH)


@pytest.mark.parametrize(
    ("engine", "workload", "field", "value", "owner"),
    [
        ("rocksdb", None, "bindir", Path("/usr"), "postgresql"),
        ("rocksdb", None, "no_data_checksums", True, "postgresql"),
        ("rocksdb", None, "unlogged_tables", True, "pgbench"),
        ("rocksdb", None, "init_sql", Path("x"), "pgbench"),
        ("rocksdb", None, "jobs", 2, "pgbench"),
        ("rocksdb", None, "protocol", "prepared", "pgbench"),
        ("rocksdb", None, "latency_limit", 5.0, "pgbench"),
        ("postgresql", "ycsb:a", "jobs", 2, "pgbench"),
        ("postgresql", None, "column_family", "other", "rocksdb"),
        ("postgresql", None, "properties", ["fieldlength=5"], "ycsb"),
    ],
)
def test_an_option_of_another_is_refused(
    engine: str, workload: str | None, field: str, value: object, owner: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        resolve_asked(asked(engine, workload=workload, **{field: value}), CRASH)
    assert f"is an option of {owner}" in caught.value.what and caught.value.hint == "leave it out"
    assert caught.value.where.startswith("-") and caught.value.where in caught.value.what


# PostgreSQL.


def test_the_commands_load_their_own_scale() -> None:
    crash, tune = resolve_asked(asked(), CRASH), resolve_asked(asked(), TUNE)
    assert (pgbench_of(crash).options.scale, pgbench_of(tune).options.scale) == (1, 10)
    assert (crash.clients, str(crash.contract)) == (8, "strict")
    given = resolve_asked(asked(scale=3, clients=5), TUNE)
    assert (pgbench_of(given).options.scale, given.clients) == (3, 5)
    assert "scale 3, 5 clients" in given.in_words()


def test_ycsb_drives_postgresql_too() -> None:
    found = resolve_asked(asked(workload="ycsb:a", scale=3, properties=["fieldlength=10"]), CRASH)
    assert found.workload.name == "ycsb:a" and found.workload.parameters["recordcount"] == "3000"
    assert found.clients == 8 and "3000 records, 8 clients" in found.in_words()


def test_settings_are_kept_in_base_units_and_every_fault_is_told() -> None:
    assert postgresql_with("SHARED_BUFFERS=1GB", "fsync=ON", "checkpoint_timeout=5min").settings == {
        "shared_buffers": "131072",
        "fsync": "on",
        "checkpoint_timeout": "300",
    }
    with pytest.raises(InvalidInput) as caught:
        postgresql_with("shared_buffers=1 gb", "work_mem=08kB", "max_connections=999999")
    assert all(word in caught.value.what for word in ("GB", "octal", "999999", "262143"))


def test_what_is_a_private_clusters_own_is_overridden_and_listed(tmp_path: Path) -> None:
    config = tmp_path / "postgresql.conf"
    config.write_text(
        "data_directory = '/var/lib/elsewhere'\nport = 5433\narchive_command = 'touch %p'\nwork_mem = 8MB\n"
        "synchronous_standby_names = '*'\n"
    )
    found = resolve_asked(asked(config=str(config)), CRASH)
    assert found.settings["work_mem"] == "8192"
    told = {finding.setting: finding for finding in found.findings}
    assert {"data_directory", "port", "archive_command", "synchronous_standby_names"} <= {*told}
    assert not {"data_directory", "port", "archive_command"} & {*found.settings}
    assert told["archive_command"].source == f"{config}:3"
    assert told["synchronous_standby_names"].failure == "failover"


def recorded(version: str, bindir: Path) -> Facts:
    """What a recording of PostgreSQL keeps of its engine."""
    known = {"bindir": str(bindir), "user": server_user.choose().name, "checksums": "false"}
    return Facts(
        "postgresql",
        version,
        "pgbench:tpcb-like",
        workload_parameters={},
        settings={"work_mem": "8192"},
        engine_parameters=known,
        threads=8,
        seed=1,
        recorder="preload",
        initial_records=0,
        register_per_write=True,
        base_inodes={},
        folder_inodes={},
        first_position=0,
        kill_ns=0,
        operations=0,
        log_bytes=0,
    )


def programs_of(folder: Path, version: str) -> Path:
    """The installed programs in another folder, by links, with a postgres that calls itself this version."""
    folder.mkdir()
    for program in binaries.find().folder.iterdir():
        if program.name != "postgres":
            (folder / program.name).symlink_to(program)
    (folder / "postgres").write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
    (folder / "postgres").chmod(0o755)
    return folder


def test_a_recording_is_opened_with_the_programs_that_are_named(tmp_path: Path) -> None:
    found, here = kind("postgresql"), binaries.find()
    facts = recorded(str(here.version), here.folder)
    plain = found.again(tmp_path, facts, asked())
    assert isinstance(plain.engine, PostgresqlEngine) and plain.engine.binaries.folder == here.folder
    assert (plain.settings, plain.engine.checksums) == ({"work_mem": "8192"}, False)
    minor = programs_of(tmp_path / "minor", f"{here.version.major}.999")
    named = found.again(tmp_path, facts, asked(bindir=minor)).engine
    assert isinstance(named, PostgresqlEngine) and named.binaries.folder == minor
    assert named.version() == f"{here.version.major}.999"


def test_what_the_server_was_not_built_with_is_neither_searched_nor_proposed(tmp_path: Path) -> None:
    """A server of 18 that has neither lz4 nor io_uring: it refuses both, and nothing else."""
    bare = programs_of(tmp_path / "bare", "18.1")
    (bare / "postgres").write_text(
        "#!/bin/sh\n"
        "if [ \"$1\" = --version ]; then echo 'postgres (PostgreSQL) 18.1'; exit; fi\n"
        'grep -Eq "lz4|io_uring" "$4/postgresql.conf" || exit 0\n'
        "echo 'LOG:  invalid value for parameter \"any\"' >&2; exit 1\n"
    )
    request = postgresql_with(bindir=bare)
    space = search_space(request, StudyPlan(), {})
    assert space.takes("wal_compression", "zstd") and not space.takes("wal_compression", "lz4")
    assert space.takes("io_method", "worker")
    (pgtune,) = rivals_of(request)
    assert pgtune.settings["wal_compression"] == "pglz" and "io_method" not in pgtune.settings
    with pytest.raises(InvalidInput) as caught:
        postgresql_with("io_method=IO_URING", "wal_compression=lz4", bindir=bare)
    assert "built without io_uring" in caught.value.what and "built without lz4" in caught.value.what
    assert postgresql_with("wal_compression=zstd", bindir=bare).settings == {"wal_compression": "zstd"}


def test_another_major_version_recovers_no_recording(tmp_path: Path) -> None:
    """Named, or installed since where the recorded one was."""
    here = binaries.find()
    major = 13 if here.version.major != 13 else 14
    other = programs_of(tmp_path / "other", f"{major}.2")
    for facts, bindir in (
        (recorded(str(here.version), here.folder), other),
        (recorded(str(here.version), other), None),
    ):
        with pytest.raises(InvalidInput) as caught:
            kind("postgresql").again(tmp_path, facts, asked(bindir=bindir))
        error = caught.value
        assert f"this is PostgreSQL {major}.2" in error.what and str(here.version) in error.what
        assert error.where == str(other) and "--bindir" in error.hint


def test_connections_for_the_clients_are_counted() -> None:
    assert postgresql_with("max_connections=18").clients == 8
    with pytest.raises(InvalidInput, match=r"max_connections=17 is less than 8 clients \+ 10 .* = 18"):
        postgresql_with("max_connections=17")
    with pytest.raises(InvalidInput, match=r"100 is less than 91 clients"):
        postgresql_with(clients=91)
    assert resolve_asked(asked(clients=90), CRASH).clients == 90


def test_what_memory_a_candidate_may_hold_is_told_with_its_terms() -> None:
    request = postgresql_with()
    need = request.kind.rules.memory(
        request.catalogue, request.engine.stated({"shared_buffers": "131072", "work_mem": "65536"}), 100
    )
    assert need.wanted_bytes > (1 << 30) + 100 * (64 << 20) and "100 clients" in need.who
    assert any("shared_buffers" in term for term in need.terms) and any("work_mem" in t for t in need.terms)


def test_the_search_is_that_of_the_version_and_contract() -> None:
    request = postgresql_with()
    names = {*search_space(request, StudyPlan(), {}).distributions}
    assert names == {
        *tuning.ranges(host_limits().memory_bytes, host_limits().cores, load(request.catalogue.version))
    }
    assert not names & {*tuning.UNSAFE_RANGES}
    bounded = postgresql_with(contract="bounded:600ms")
    added = {*search_space(bounded, StudyPlan(), {}).distributions} - names
    assert added == {"synchronous_commit"}


def test_a_study_goes_on_only_where_its_choices_are_the_same(tmp_path: Path) -> None:
    """Those of wal_buffers have what is proposed for the host's memory, and Optuna takes no others later."""
    request, spaces = postgresql_with(), []
    for memory_mb in (3085, 3085, 2048):
        limits = HostLimits(2, memory_mb << 20)
        spaces.append(search_space(request, StudyPlan(), {}, limits).choices)
    StudyFolder(tmp_path).open({"seed": 1, "choices": spaces[0]})
    assert StudyFolder(tmp_path).open({"seed": 1, "choices": spaces[1]})["seed"] == 1
    with pytest.raises(InvalidInput, match=r"something else: wal_buffers is \['-1', .* there and \['-1', "):
        StudyFolder(tmp_path).open({"seed": 1, "choices": spaces[2]})


def test_an_audit_reaches_the_least_wal_unless_what_it_needs_is_fixed() -> None:
    request = postgresql_with()
    audit = StudyPlan(audit_only=True)
    space = search_space(request, audit, {})
    assert space.takes("wal_level", "minimal") and not search_space(request, StudyPlan(), {}).takes(
        "wal_level", "minimal"
    )
    fixed = replace(audit, exclude=("max_wal_senders",))
    assert "wal_level" not in search_space(request, fixed, {}).distributions
    none = {"max_wal_senders": "0"}
    assert search_space(postgresql_with("max_wal_senders=0"), fixed, none).takes("wal_level", "minimal")
    # Searched with nothing beside it, the choice has what it needs all the same.
    alone = search_space(request, replace(audit, only=("wal_level",)), {})
    assert alone.settings({"wal_level": "minimal"}) == {"wal_level": "minimal", **none}


@pytest.mark.parametrize(
    ("contract", "sets", "named"),
    [
        ("strict", ("fsync=off",), "fsync=off"),
        ("strict", ("synchronous_commit=off",), "synchronous_commit=off"),
        ("strict", ("full_page_writes=off",), "full_page_writes=off"),
        ("process", ("synchronous_commit=off",), "synchronous_commit=off"),
        ("bounded:600ms", ("synchronous_commit=off", "wal_writer_delay=10s"), ""),
        ("process", ("work_mem=8MB",), ""),
    ],
)
def test_what_no_candidate_can_mend(contract: str, sets: tuple[str, ...], named: str) -> None:
    """Under `bounded` the search has a shorter delay, which mends it."""
    request = postgresql_with(*sets, contract=contract)
    reference = reference_settings(request)
    space = search_space(request, StudyPlan(), reference)
    said = inherited_break(request, reference, space, result_of(0, "BROKEN", reasons=("lost-ack",)))
    assert named in said and bool(said) == bool(named)


@pytest.mark.parametrize(
    ("finding", "named"),
    [
        ({"rule": "set-by-role", "setting": "synchronous_commit", "value": "off"}, "synchronous_commit=off"),
        ({"rule": "set-by-alter-system", "setting": "fsync", "value": "off"}, "fsync=off"),
        ({"rule": "set-by-role", "setting": "synchronous_commit", "value": "on"}, ""),
        ({"rule": "overridden", "setting": "fsync", "value": "off"}, ""),
    ],
)
def test_what_is_set_over_every_file_breaks_every_candidate(finding: Mapping[str, str], named: str) -> None:
    """No candidate's postgresql.conf reaches what a role or ALTER SYSTEM has set."""
    request = postgresql_with(contract="strict")
    space = search_space(request, StudyPlan(), {})
    broken = replace(result_of(0, "BROKEN", reasons=("lost-ack",)), findings=(finding,))
    said = inherited_break(request, {}, space, broken)
    assert said.startswith(f"the reference broke the contract (lost-ack): {named} is set by") == bool(named)
    assert (said == "") == (not named)
    assert inherited_break(request, {}, space, replace(broken, verdict="HELD")) == ""


def test_unlogged_tables_lose_under_every_candidate() -> None:
    broken = result_of(0, "BROKEN", reasons=("lost-ack",))
    for is_unlogged in (True, False):
        request = postgresql_with(unlogged_tables=is_unlogged)
        said = inherited_break(request, {}, search_space(request, StudyPlan(), {}), broken)
        assert ("--unlogged-tables" in said) == is_unlogged


def test_pgtune_is_the_rival_whole(postgresql: str) -> None:
    request = postgresql_with("work_mem=8MB")
    (rival,) = rivals_of(request)
    assert rival.proposer == "pgtune" and int(rival.settings["shared_buffers"]) > 0
    assert rival.settings["max_connections"] == "300", "what is not searched is kept as well"
    load(postgresql).validate(rival.settings)
    assert rivals_of(resolve_asked(asked("rocksdb"), CRASH)) == []


def effective(**values: str) -> str:
    return SessionSettings(values, (), {}, (), ()).text()


def test_a_value_that_the_server_changes_is_a_difference() -> None:
    request = postgresql_with()
    found = differences(
        request, {"wal_buffers": "1", "work_mem": "8192"}, effective(wal_buffers="4", work_mem="8192")
    )
    (one,) = found
    assert (one.setting, one.value) == ("wal_buffers", "1") and "changes it to 4" in one.why
    assert differences(request, {"wal_buffers": "-1"}, effective(wal_buffers="512")) == []
    # The server prints six digits of a number that is not whole.
    printed = {"random_page_cost": "1.23456789"}
    assert differences(request, printed, effective(random_page_cost="1.23457")) == []
    assert len(differences(request, printed, effective(random_page_cost="1.3"))) == 1


# pgbench.


def test_the_options_of_pgbench_reach_it_and_make_it_again(tmp_path: Path) -> None:
    (tmp_path / "init.sql").write_text("ALTER ROLE postgres SET synchronous_commit = off;")
    found = postgresql_with(
        jobs=2,
        protocol="prepared",
        target=50.0,
        latency_limit=20.0,
        unlogged_tables=True,
        init_sql=tmp_path / "init.sql",
        no_data_checksums=True,
    )
    chosen = pgbench_of(found).options
    assert (chosen.jobs, chosen.protocol, chosen.rate_per_s, chosen.latency_limit_ms) == (
        2,
        "prepared",
        50,
        20,
    )
    assert chosen.unlogged_tables and "ALTER ROLE" in chosen.init_sql and found.target_per_s == 50
    assert "unlogged tables, 8 clients, 50 operations/s" in found.in_words()
    words = [*found.described().options, *found.options]
    assert words[-3:] == ["--init-sql", str(tmp_path / "init.sql"), "--no-data-checksums"]
    assert {"--jobs", "--protocol", "--target", "--latency-limit", "--unlogged-tables", "--scale"} <= {*words}
    stored: Mapping[str, str] = json.loads(json.dumps(dict(found.workload.parameters)))
    assert pgbench.again(found.workload.name, stored, "x", None) == found.workload


def test_what_pgbench_cannot_do_is_refused_at_its_option(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"scale": 21_475}, "--scale", "limit of 21474"),
        ({"latency_limit": 5.0}, "--latency-limit", "without a rate"),
        ({"init_sql": tmp_path / "none.sql"}, f"--init-sql {tmp_path}/none.sql", "No such file"),
        ({"init_sql": tmp_path}, f"--init-sql {tmp_path}", "directory"),
    ]
    for options, where, what in cases:
        with pytest.raises(InvalidInput) as caught:
            postgresql_with(**options)
        assert caught.value.where == where and what in caught.value.what and caught.value.hint


def test_a_users_script_is_told_what_is_added_to_it(tmp_path: Path) -> None:
    script = tmp_path / "mine.sql"
    script.write_text(SCRIPT)
    found = postgresql_with(workload=f"pgbench:{script}")
    (told,) = found.findings
    assert told.rule == "script-changed" and "rider insert" in told.why and found.idle == ""
    script.write_text("SELECT 1;\n")
    assert "writes nothing" in postgresql_with(workload=f"pgbench:{script}").idle
    assert "writes nothing" in postgresql_with(workload="pgbench:select-only").idle
    assert postgresql_with(workload="pgbench:simple-update").idle == ""


def test_a_lost_write_has_its_users_name() -> None:
    lost = LostWrite(register=5, client=3, sequence=128, ack_position=1, ack_ns=1)
    assert pgbench.name_of(lost, {}) == "transaction 7000003000000000128"
    assert ycsb.name_of(lost, resolve_asked(asked("rocksdb"), CRASH).workload.parameters).startswith("user")


@pytest.mark.parametrize(
    ("engine", "workload"), [("rocksdb", "ycsb:b"), ("postgresql", "pgbench:simple-update")]
)
def test_a_family_watches_describes_and_remembers(engine: str, workload: str) -> None:
    request = resolve_asked(asked(engine, workload=workload), CRASH)
    found = family(workload)
    with Supervisor() as supervisor:
        assert found.watched(request.workload, supervisor).watcher is supervisor
        again = found.again(workload, dict(request.workload.parameters), "x", supervisor)
    assert (again.name, dict(again.parameters)) == (workload, dict(request.workload.parameters))
    described = found.describe(request.workload)
    assert described.in_words and described.arithmetic and described.hint and described.stated


def test_a_scale_that_does_not_fit_is_refused_with_the_arithmetic(tmp_path: Path) -> None:
    described = postgresql_with(scale=20_000).described()
    with pytest.raises(MachineLacks, match=r"scale 20000 is 320,000 MiB .* 3 times"):
        room.check_disk(replace(described, data_bytes=1 << 60), tmp_path)


def test_the_repeat_command_is_the_same_request(tmp_path: Path) -> None:
    (tmp_path / "init.sql").write_text("SELECT 1;")
    request = postgresql_with(
        "work_mem=8MB", scale=2, protocol="extended", init_sql=tmp_path / "init.sql", no_data_checksums=True
    )
    trial = result_of(1, settings=request.settings)
    tune_report.write_winner(request, tmp_path, trial)
    words = shlex.split(
        tune_report.repeat_command(request, tmp_path, replace(winner_of(trial, 45), trial=trial))
    )
    assert words[:3] == ["duratune", "crash", "postgresql"]
    flags = [word for word in words[4:] if word == "--no-data-checksums"]
    rest = [word for word in words[4:] if word not in flags]
    given = dict(zip(rest[::2], rest[1::2], strict=True))
    again = resolve_asked(
        asked(
            config=words[3],
            workload=given["--workload"],
            scale=int(given["--scale"]),
            protocol=given["--protocol"],
            init_sql=Path(given["--init-sql"]),
            no_data_checksums=bool(flags),
            clients=int(given["--clients"]),
            contract=given["--contract"],
        ),
        CRASH,
    )
    assert (again.workload, again.settings, again.engine) == (
        request.workload,
        request.settings,
        request.engine,
    )


def test_settings_are_told_and_written_with_their_units(tmp_path: Path) -> None:
    request = postgresql_with("shared_buffers=131072", "wal_writer_delay=50", "fsync=off")
    assert in_short(request, request.settings) == "shared_buffers=1GB wal_writer_delay=50ms fsync=off"
    folder = tune_report.write_winner(request, tmp_path, result_of(1, settings=request.settings))
    assert "shared_buffers = '1GB'\n" in (folder / "postgresql.conf").read_text()
    assert in_short(request, {}) == "PostgreSQL's defaults"
