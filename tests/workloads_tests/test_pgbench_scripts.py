"""Scripts of pgbench: read as pgbench reads them, and each transaction with its token."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knobs.errors import InvalidInput
from workloads.pgbench.commands import parse
from workloads.pgbench.identity import (
    RIDER_TABLE,
    client_and_sequence,
    identified_builtin,
    identified_custom,
    token,
)

RIDER = f"INSERT INTO {RIDER_TABLE} (token) VALUES (:duratune_token);"


def builtin(name: str) -> str:
    """What the installed pgbench shows of a built-in script."""
    found = shutil.which("pgbench") or next(
        map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"), reverse=True)), None
    )
    if found is None:
        pytest.skip("no pgbench (Debian: apt-get install postgresql)")
    done = subprocess.run([found, f"--show-script={name}"], check=True, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("SELECT 1;", ["SELECT 1"]),
        ("SELECT 1", ["SELECT 1"]),
        ("\\set a 1\nSELECT :a;\nSELECT 2;\n", ["\\set a 1", "SELECT :a", "SELECT 2"]),
        ("\\set a 1 + \\\n  2\nSELECT 1;", ["\\set a 1 + \\\n  2", "SELECT 1"]),
        ("SELECT ';', \"a;b\", 'it''s;';SELECT 2;", ["SELECT ';', \"a;b\", 'it''s;'", "SELECT 2"]),
        ("SELECT E'\\';';SELECT 2;", ["SELECT E'\\';'", "SELECT 2"]),
        ("-- a; comment\nSELECT /* b; /* c; */ d; */ 1;", ["SELECT /* b; /* c; */ d; */ 1"]),
        ("DO $$ BEGIN; END; $$;SELECT $x$ $$;$x$;", ["DO $$ BEGIN; END; $$", "SELECT $x$ $$;$x$"]),
        (";;SELECT 1;;", ["SELECT 1"]),
        (
            "SELECT 1 AS a \\gset\nSELECT 2 \\gset x_\nSELECT 3",
            ["SELECT 1 AS a \\gset", "SELECT 2 \\gset x_", "SELECT 3"],
        ),
        (
            "SELECT 1 \\; SELECT 2 \\aset\nSELECT '\\gset';",
            ["SELECT 1 \\; SELECT 2 \\aset", "SELECT '\\gset'"],
        ),
    ],
)
def test_commands_end_where_pgbench_ends_them(script: str, commands: list[str]) -> None:
    assert [command.text for command in parse(script, "script")] == commands


@pytest.mark.parametrize("script", ["SELECT 'a;", 'SELECT "a;', "SELECT /* a;", "DO $$ a;", "DO $x$ $$;"])
def test_what_never_ends_is_an_error_with_its_line(script: str) -> None:
    with pytest.raises(InvalidInput, match="line 2 do not end"):
        parse("SELECT 1;\n" + script, "script")


PIECES = (
    "\\gset",
    "\\aset x",
    "\\;",
    ";",
    "\n",
    "\r",
    " ",
    "\\",
    "--",
    "/*",
    "*/",
    "'",
    "$$",
    "\\if :a",
    "SELECT 1",
)


@given(
    st.text(alphabet="a;'\"-$*/\\ \n(e", max_size=40)
    | st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
)
def test_any_text_is_read_or_refused(script: str) -> None:
    try:
        commands = parse(script, "script")
    except InvalidInput:
        return
    again = parse("\n".join(command.render() for command in commands), "script")
    assert [command.text for command in again] == [command.text for command in commands]


@given(st.integers(1, 999_999), st.integers(1, 10**12 - 1))
def test_a_token_has_19_digits_and_names_its_transaction(client: int, sequence: int) -> None:
    number = token(client, sequence)
    assert len(str(number)) == 19 and str(number)[0] == "7" and number < 2**63
    assert client_and_sequence(number) == (client, sequence)


@pytest.mark.parametrize("number", [0, 7 * 10**18, 8 * 10**18, 6999999999999999999])
def test_another_number_is_no_token(number: int) -> None:
    with pytest.raises(ValueError, match="is no token"):
        client_and_sequence(number)


@pytest.mark.parametrize("name", ["tpcb-like", "simple-update"])
def test_the_built_in_scripts_keep_their_shape(name: str) -> None:
    text = builtin(name)
    script = identified_builtin(text, name)
    assert script.table == "pgbench_history" and not script.notes
    before = [command for command in parse(text, name) if command.keyword]
    after = [command for command in parse(script.text, name) if command.keyword]
    assert [command.keyword for command in after] == [command.keyword for command in before]
    changed = [new.text for old, new in zip(before, after, strict=True) if old.text != new.text]
    assert changed == [
        "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime, filler) "
        "VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP, :duratune_token)"
    ]


def test_a_script_without_writes_leaves_no_token() -> None:
    assert not identified_builtin(builtin("select-only"), "select-only").writes
    assert not identified_custom("SELECT 1; WITH a AS (SELECT 2) SELECT * FROM a;", "s").writes


def test_a_built_in_script_of_another_shape_is_refused() -> None:
    with pytest.raises(InvalidInput, match="another shape"):
        identified_builtin("INSERT INTO pgbench_history VALUES (1);", "tpcb-like")


def test_the_rider_stands_inside_the_last_transaction() -> None:
    script = identified_custom(
        "BEGIN; UPDATE t SET a = 1; COMMIT;\nSTART TRANSACTION;\nDELETE FROM t;\nEND;\nSELECT 1;", "mine.sql"
    )
    lines = script.text.splitlines()
    assert lines[2:] == [
        "BEGIN;",
        "UPDATE t SET a = 1;",
        "COMMIT;",
        "START TRANSACTION;",
        "DELETE FROM t;",
        RIDER,
        "END;",
        "SELECT 1;",
    ]
    assert (script.table, script.column) == (RIDER_TABLE, "token") and not script.is_wrapped
    assert script.notes == (
        "mine.sql gets a rider insert at the end of its last transaction (line 4)",
        "what mine.sql writes outside of that transaction (line 1) is not judged by itself",
    )


@pytest.mark.parametrize(
    "text",
    [
        "\\set a random(1, 9)\nINSERT INTO t VALUES (:a);",
        "INSERT INTO t VALUES (1);\n\\sleep 1 ms\nUPDATE t SET a = 2",
        "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x;",
    ],
)
def test_a_script_without_a_transaction_is_wrapped(text: str) -> None:
    script = identified_custom(text, "mine.sql")
    lines = script.text.splitlines()
    assert lines[2] == "BEGIN;" and lines[-2:] == [RIDER, "END;"]
    assert "wrapped in BEGIN and END" in script.notes[0] and script.is_wrapped


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("\\set a 1", "no SQL"),
        ("", "no SQL"),
        ("-- nothing", "no SQL"),
        ("SELECT 1;\nBEGIN; INSERT INTO t VALUES (1);", "begun in line 2 is never committed"),
        ("BEGIN; INSERT INTO t VALUES (1);\nROLLBACK; UPDATE t SET a = 1;", "ROLLBACK of line 2 would end"),
        *(
            (f"INSERT INTO t VALUES (1);\n{end};\nINSERT INTO t VALUES (2);", f"{end} of line 2 would end")
            for end in ("ROLLBACK", "COMMIT", "END", "ABORT")
        ),
    ],
)
def test_a_script_that_cannot_be_used_is_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidInput, match=fault):
        identified_custom(text, "mine.sql")


def test_a_savepoint_ends_no_transaction() -> None:
    wrapped = identified_custom("SAVEPOINT a;\nROLLBACK TO SAVEPOINT a;\nDELETE FROM t;", "my.sql")
    assert wrapped.text.count("BEGIN") == 1


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("BEGIN; DELETE FROM t;\nPREPARE TRANSACTION 'a'; COMMIT PREPARED 'a';", "line 2: a prepared"),
        ("BEGIN; DELETE FROM t;\nCOMMIT AND CHAIN; DELETE FROM t; COMMIT;", "line 2: AND CHAIN"),
        (
            "BEGIN; SET LOCAL synchronous_commit = off;\nDELETE FROM t; END; BEGIN; DELETE FROM u; COMMIT;",
            "line 1 sets synchronous_commit, and line 2 writes outside",
        ),
    ],
)
def test_a_transaction_that_would_not_be_judged_is_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidInput, match=fault):
        identified_custom(text, "mine.sql")


@pytest.mark.parametrize(
    "text",
    ["SELECT place(1);", "EXECUTE place(1);", "SELECT app.place(a) FROM t;", "SELECT 1 \\; DELETE FROM t;"],
)
def test_what_may_write_is_ridden(text: str) -> None:
    assert identified_custom(text, "mine.sql").writes
    both = f"SET synchronous_commit = off; {text}\nBEGIN; DELETE FROM u; COMMIT;"
    with pytest.raises(InvalidInput, match="sets synchronous_commit"):
        identified_custom(both, "mine.sql")


@pytest.mark.parametrize(
    "text", ["SELECT count(*), max(a) FROM t WHERE a IN (1, 2);", "WITH x AS (SELECT 1) SELECT * FROM x;"]
)
def test_what_only_reads_is_not(text: str) -> None:
    assert not identified_custom(text, "mine.sql").writes


def test_a_result_that_is_taken_ends_its_command() -> None:
    script = identified_custom("SELECT a FROM t \\gset\nDELETE FROM t WHERE a = :a;", "mine.sql")
    assert "SELECT a FROM t \\gset\nDELETE FROM t WHERE a = :a;\n" in script.text


def test_a_write_outside_of_the_last_transaction_is_told() -> None:
    script = identified_custom("DELETE FROM t;\nBEGIN; DELETE FROM u; COMMIT AND NO CHAIN;", "mine.sql")
    assert "(line 1) is not judged by itself" in script.notes[1]
    single = identified_custom("BEGIN; SET LOCAL synchronous_commit = off; DELETE FROM t; COMMIT;", "s.sql")
    assert len(single.notes) == 1


def test_a_script_with_branches_is_told_how_far_pgbenchs_log_can_tell() -> None:
    script = identified_custom("BEGIN;\n\\if :a\nDELETE FROM t;\n\\endif\nEND;", "mine.sql")
    assert script.is_conditional and "may end without its rider" in script.notes[-1]
