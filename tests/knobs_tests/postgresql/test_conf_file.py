"""postgresql.conf is read as the server reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from knobs import configuration
from knobs.errors import InvalidInput
from knobs.postgresql import conf_file, server

LINES = (
    *("work_mem=8MB", "work_mem 8MB", "WORK_MEM = '8MB'", "  work_mem\t=\t8MB # text", "work_mem = 8MB#text"),
    *("work_mem = 1.5GB", "work_mem = '1.5GB'", "work_mem = 8 MB", "work_mem = '8 MB'", "work_mem = -1"),
    *(
        "work_mem =",
        "work_mem",
        "= 8MB",
        "work_mem == 8MB",
        "work_mem = 8MB;",
        "work_mem = '8MB",
        "work_mem = 8MB'",
    ),
    *(
        "work_mem = '8''MB'",
        r"work_mem = '\x38MB'",
        r"work_mem = '\70MB'",
        "work_mem = 0x2000",
        "work_mem = 1e4",
    ),
    *(
        "work_mem = 1e4.0",
        "work_mem = 65536.",
        "cluster_name = a.b",
        "cluster_name = a-b.c:/d",
        "cluster_name = a_b",
    ),
    *(
        "cluster_name = 'it''s'",
        r"cluster_name = 'a\'b'",
        r"cluster_name = 'a\\b'",
        "cluster_name = ''",
        "a.b = c",
    ),
    *(
        "a.b.c = 1",
        "cluster_name = 'a' 'b'",
        "1work_mem = 3",
        "work_mem = $3",
        '"work_mem" = 3',
        "work-mem = 3",
    ),
    *(
        "cluster_name = 0x1",
        "cluster_name = 5abc",
        "cluster_name = 5.5.5",
        "cluster_name = /tmp",
        "fsync off",
    ),
    *(
        "cluster_name=x=y",
        "cluster_name = on off",
        "cluster_name = +5",
        "cluster_name = a1",
        "cluster_name=é",
    ),
)


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_taken_or_refused_as_by_the_server(bindir: Path, tmp_path: Path, line: str) -> None:
    file = tmp_path / "postgresql.conf"
    file.write_text(f"{line}\n", encoding="utf-8")
    syntax_error = "syntax error in file" in server.ask_folder(bindir, tmp_path, "port").error
    try:
        stated = conf_file.parse(file.read_bytes(), str(file)).settings()
    except InvalidInput as error:
        assert syntax_error, error
        assert error.where.startswith(f"{file}:1")
        return
    assert not syntax_error
    name, value = next(iter(stated.items()))
    if "." not in name:
        answer = server.ask_folder(bindir, tmp_path, name).value
        if name == "cluster_name":
            # What is no ASCII the server replaces, in each version by something else.
            assert answer == value or not value.isascii()
        else:
            assert answer == server.ask(bindir, {name: value}, name).value


def put(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A configuration in several files; each value but the last of a name loses."""
    put(tmp_path, "conf.d/20.conf", "work_mem = 3MB\n")
    put(tmp_path, "conf.d/10.conf", "work_mem = 2MB\ncommit_delay = 7\n")
    put(tmp_path, "conf.d/.hidden.conf", "work_mem = 9GB\n")
    put(tmp_path, "conf.d/30.conf.bak", "work_mem = 8GB\n")
    put(tmp_path, "more/one.conf", "deadlock_timeout = 2s\ninclude 'two.conf'\n")
    put(tmp_path, "more/two.conf", "")
    put(tmp_path, "postgresql.auto.conf", "# by ALTER SYSTEM\nwal_level = 'logical'\n")
    return put(
        tmp_path,
        "postgresql.conf",
        "# a comment\nwork_mem = 1MB\nFsync = off\nwal_level = minimal\n"
        "include_dir = 'conf.d'\ninclude 'more/one.conf'\ninclude_if_exists = 'none.conf'\n"
        "commit_delay = 9\n",
    )


def test_includes_duplicates_and_what_lies_on_top(bindir: Path, tree: Path) -> None:
    read = configuration.read("postgresql", str(tree), version=server.version_text(bindir))
    assert read.settings == {
        "work_mem": "3MB",
        "fsync": "off",
        "wal_level": "logical",
        "deadlock_timeout": "2s",
        "commit_delay": "9",
    }
    for name in read.settings:
        answer = server.ask_folder(bindir, tree.parent, name).value
        assert answer == server.ask(bindir, {name: read.settings[name]}, name).value, name
    origins = {name: str(source).removeprefix(f"{tree.parent}/") for name, source in read.origins.items()}
    assert origins == {
        "work_mem": "conf.d/20.conf:1",
        "fsync": "postgresql.conf:3",
        "wal_level": "postgresql.auto.conf:2",
        "deadlock_timeout": "more/one.conf:1",
        "commit_delay": "postgresql.conf:8",
    }
    assert [finding.rule for finding in read.findings] == ["auto-conf-read"]


def test_an_include_loop_names_its_files(tmp_path: Path) -> None:
    put(tmp_path, "b.conf", "\ninclude 'postgresql.conf'\n")
    file = put(tmp_path, "postgresql.conf", "include 'b.conf'\n")
    with pytest.raises(InvalidInput) as caught:
        configuration.read("postgresql", str(file))
    assert f"{file} -> {tmp_path}/b.conf -> {tmp_path}/postgresql.conf" in caught.value.what
    assert caught.value.where == f"{tmp_path}/b.conf:2"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("include 'none.conf'", "none.conf is no file"),
        ("include_dir 'none'", "is not there"),
        ("include ''", "names no file"),
        ("work_mem = '8MB", "the quote is not terminated"),
        ("work_mem = 8 MB", "syntax error near 'MB'"),
        (
            "shared_bufers = 1GB\nio_methodd = x",
            "postgresql.conf:2: PostgreSQL 15 has no setting 'io_methodd'",
        ),
        ("shared_bufers = 1GB", "nearest: shared_buffers"),
        ("io_method = worker", "new in 18"),
        ("stats_temp_directory = 'x'", "removed in 15"),
        ("checkpoint_segments = 3", "use max_wal_size"),
    ],
)
def test_each_fault_says_where(tmp_path: Path, line: str, message: str) -> None:
    file = put(tmp_path, "postgresql.conf", f"{line}\n")
    with pytest.raises(InvalidInput) as caught:
        configuration.read("postgresql", str(file), version="15")
    assert message in caught.value.what
    assert str(file) in f"{caught.value.where} {caught.value.what}"
    assert caught.value.hint


def test_a_data_directory_is_no_configuration(tmp_path: Path) -> None:
    put(tmp_path, "PG_VERSION", "15\n")
    put(tmp_path, "postgresql.conf", "")
    with pytest.raises(InvalidInput) as caught:
        configuration.read("postgresql", str(tmp_path))
    assert "folder" in caught.value.what and f"{tmp_path}/postgresql.conf" in caught.value.hint


def test_a_custom_setting_is_left_unset_and_how_to_set_it_is_told(tmp_path: Path) -> None:
    """An application's own, such as one that its row security reads, and an extension's."""
    file = put(tmp_path, "my.conf", "work_mem = 8MB\nmyapp.tenant = 'x'\n")
    given = configuration.parse_settings("postgresql", ["auto_explain.log_min_duration=1s"], "15")
    read = configuration.with_settings(configuration.read("postgresql", str(file), version="15"), given, "15")
    assert read.settings == {"work_mem": "8MB"}
    own, extension = read.findings
    assert (own.in_words, own.source) == ("myapp.tenant=x", f"{file}:2")
    assert extension.in_words == "auto_explain.log_min_duration=1s" and extension.why == own.why
    assert "an application's own, and is left unset" in own.why and "ALTER ROLE ALL SET" in own.why


def test_what_a_private_cluster_keeps_for_itself_is_listed(tmp_path: Path) -> None:
    outside = {
        "data_directory": "/var/lib/postgresql/15/main",
        "hba_file": "/etc/postgresql/15/main/pg_hba.conf",
        "port": "5432",
        "unix_socket_directories": "/var/run/postgresql",
        "ssl": "on",
        "ssl_cert_file": "/etc/ssl/certs/x.pem",
        "archive_mode": "on",
        "archive_command": "rm -rf /",
        "restore_command": "cp %f %p",
        "shared_preload_libraries": "pg_stat_statements",
        "log_directory": "log",
        "cluster_name": "15/main",
        "pg_stat_statements.max": "1000",
        "primary_conninfo": "host=other",
        "recovery_target_time": "2020-01-01",
    }
    text = "".join(f"{name} = '{value}'\n" for name, value in outside.items())
    file = put(tmp_path, "debian.conf", f"shared_buffers = 128MB\n{text}")
    read = configuration.read("postgresql", str(file), version="15")
    assert read.settings == {"shared_buffers": "128MB"}
    assert {finding.setting: finding.value for finding in read.findings} == outside
    assert {finding.rule for finding in read.findings} == {"outside-overridden"}
    assert [finding.source for finding in read.findings][:2] == [f"{file}:2", f"{file}:3"]
    given = configuration.parse_settings("postgresql", ["archive_command=x", "FSYNC=off"], "15")
    changed = configuration.with_settings(read, given, "15")
    assert changed.settings == {"shared_buffers": "128MB", "fsync": "off"}


def test_json_and_joined_files(tmp_path: Path) -> None:
    first = put(tmp_path, "a.conf", "shared_buffers = 128MB\nfsync = on\n")
    second = put(
        tmp_path, "b.json", '{"engine": "postgresql", "settings": {"fsync": false, "sort_mem": 8192}}'
    )
    read = configuration.read("postgresql", f"{first}+{second}", version="15")
    assert read.settings == {"shared_buffers": "128MB", "fsync": "false", "work_mem": "8192"}
    assert str(read.origins["shared_buffers"]) == f"{first}:1" and str(read.origins["fsync"]) == str(second)


@pytest.mark.parametrize(
    "text", ["[Version]\n  rocksdb_version=7.8.3\n", "Dear all,\nplease find attached\n"]
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, text: str) -> None:
    file = put(tmp_path, "x", text)
    with pytest.raises(InvalidInput):
        configuration.read("postgresql", str(file))


def test_a_file_of_comments_states_nothing(tmp_path: Path) -> None:
    assert configuration.read("postgresql", str(put(tmp_path, "x.conf", "# nothing\n\n"))).settings == {}


def test_the_installed_sample_is_read() -> None:
    samples = sorted(Path("/usr/share/postgresql").glob("*/postgresql.conf.sample"))
    if not samples:
        pytest.skip("no postgresql.conf.sample is installed")
    major = samples[-1].parent.name
    # Every line of it, as if somebody had removed the signs that make comments of them.
    lines = [line[1:] for line in samples[-1].read_text(encoding="utf-8").splitlines() if line[:1] == "#"]
    stated = [line for line in lines if "=" in line and line[0].isalpha() and not line.startswith("include")]
    assert len(stated) > 250
    text = "\n".join(stated)
    settings = conf_file.parse(text, "sample").settings()
    from knobs.postgresql.catalogue import load

    catalogue = load(major)
    assert [name for name in settings if not catalogue.has(name)] == []
