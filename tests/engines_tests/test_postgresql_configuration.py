from __future__ import annotations

from pathlib import Path

import pytest

from engines.postgresql import configuration
from engines.postgresql.configuration import (
    configure,
    override_findings,
    render,
    socket_path,
    taken,
)
from knobs.errors import InvalidInput

SOCKETS = Path("/tmp/sockets")


def test_tuning_values_are_kept_in_their_order() -> None:
    made = configure({"work_mem": "8MB", "fsync": "off"}, SOCKETS, "name")
    assert made.text.splitlines()[1:] == ["work_mem = '8MB'", "fsync = 'off'"]
    assert made.proposed == {"work_mem": "8MB", "fsync": "off"}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("data_directory", "path"),
        ("hba_file", "path"),
        ("log_directory", "path"),
        ("listen_addresses", "address"),
        ("Port", "address"),
        ("unix_socket_directories", "address"),
        ("cluster_name", "address"),
        ("ssl_cert_file", "TCP"),
        ("archive_command", "command"),
        ("archive_library", "command"),
        ("restore_command", "command"),
        ("shared_preload_libraries", "library"),
        ("jit_provider", "library"),
        ("logging_collector", "messages"),
        ("synchronous_standby_names", "standby"),
    ],
)
def test_what_belongs_to_the_private_cluster(name: str, why: str) -> None:
    made = configure({name: "/asked", "work_mem": "8MB"}, SOCKETS, "name")
    (finding,) = override_findings({name: "/asked", "work_mem": "8MB"})
    assert (finding.setting, finding.value) == (name, "/asked") and why in finding.why
    assert "/asked" not in made.text + " ".join(made.arguments()) and "work_mem" in made.text


def test_every_setting_of_ours_is_kept_from_the_candidate() -> None:
    own = configure({}, SOCKETS, "name").own
    assert len(own) > 20
    for name in own:
        assert configuration._private(name) is not None, name


def test_similar_names_are_tuning() -> None:
    names = ("archive_timeout", "synchronous_commit", "log_checkpoints", "log_min_duration_statement", "jit")
    assert override_findings(dict.fromkeys(names, "1")) == []
    assert {*configure(dict.fromkeys(names, "1"), SOCKETS, "name").proposed} == {*names}


def test_every_fault_is_named() -> None:
    with pytest.raises(InvalidInput) as caught:
        configure({"work mem": "1", "x=1\nfsync": "off", "jit": "a\0b"}, SOCKETS, "name")
    assert all(part in str(caught.value) for part in ("work mem", "x=1\nfsync", "value of jit"))


def test_values_are_escaped() -> None:
    assert render({"a.b": "it's\\n\n"}).splitlines()[1] == r"a.b = 'it''s\\n\n'"


def test_a_socket_path_may_have_107_bytes() -> None:
    folder = Path("/" + "x" * (107 - len("//.s.PGSQL.5432")))
    assert len(str(socket_path(folder))) == 107
    configure({}, folder, "name")
    with pytest.raises(InvalidInput, match="at most 107 bytes, this one 108"):
        configure({}, folder.with_name(folder.name + "x"), "name")
    with pytest.raises(InvalidInput, match="at most 107 bytes"):
        configure({}, Path("/" + "ü" * 60), "name")


def test_a_folder_that_a_list_would_part_is_quoted() -> None:
    assert configure({}, Path('/a, "b'), "name").own["unix_socket_directories"] == '"/a, ""b"'


@pytest.mark.parametrize("name", ["synchronous_standby_names", "Synchronous_Standby_Names"])
def test_a_standby_that_is_not_there(name: str) -> None:
    made = configure({name: "ANY 1 (a, b)"}, SOCKETS, "name")
    assert made.own["synchronous_standby_names"] == "" and made.proposed == {}


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("archive_command", "cp %p /x", "names a command; 'cp %p /x' was asked for, '' is used"),
        ("Port", "5433", "names an address; '5433' was asked for, '5432' is used"),
        ("data_directory", "/x", "names a path; the server's default is used"),
        ("cluster_name", "mine", "names an address; one of duratune's is used"),
        ("unix_socket_directories", "/x", "names an address; one of duratune's is used"),
    ],
)
def test_each_override_is_told_with_its_reason(name: str, asked: str, words: str) -> None:
    (finding,) = override_findings({"work_mem": "8MB", name: asked})
    assert (finding.rule, finding.setting, finding.value) == ("overridden", name, asked)
    assert words in finding.why and (finding.failure, finding.loss) == ("", "nothing")


def test_what_a_failover_loses_is_unknown_without_a_standby() -> None:
    (finding,) = override_findings({"synchronous_standby_names": "ANY 1 (a, b)"})
    assert finding.failure == "failover" and "no standby" in finding.loss


def test_what_a_cluster_runs_with_is_told_apart_from_what_was_asked() -> None:
    settings = {
        "work_mem": "8MB",
        "Synchronous_Standby_Names": "*",
        "data_directory": "/x",
        "cluster_name": "y",
    }
    ran = taken(settings)
    assert ran == {"work_mem": "8MB", "Synchronous_Standby_Names": ""}
    own = configure(settings, SOCKETS, "name").own
    assert all(own.get(name.lower(), value) == value for name, value in ran.items())
    told = {finding.setting: finding.why for finding in override_findings(settings)}
    assert "'*' was asked for, '' is used" in told["Synchronous_Standby_Names"]
    assert set(told) == {name for name in settings if ran.get(name) != settings[name]}


def test_what_is_so_anyway_is_not_told() -> None:
    assert override_findings({"listen_addresses": "", "archive_mode": "off", "jit": "on"}) == []
    assert override_findings({"synchronous_standby_names": ""}) == []
