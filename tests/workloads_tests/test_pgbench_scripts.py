"""Scripts of pgbench: read as pgbench reads them, and each transaction with its token."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.postgresql.launch import PostgresqlLaunch
from engines.postgresql.session import Session
from knobs.errors import InvalidInput
from tests.engines_tests.postgresql_engines import PostgresqlLab, open_postgresql
from workloads.pgbench.commands import Command, parse
from workloads.pgbench.identity import (
    CLIENT_STEP,
    RIDER_TABLE,
    TOKEN_BASE,
    identified_builtin,
    identified_custom,
    token,
)
from workloads.pgbench.workload import PgbenchWorkload

RIDER = f"INSERT INTO {RIDER_TABLE} (token) VALUES (:duratune_token);"


def client_and_sequence(number: int) -> tuple[int, int]:
    """Who wrote a token."""
    return divmod(number - TOKEN_BASE, CLIENT_STEP)


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
        # Any meta command ends what stands before it.
        ("DELETE FROM t\n\\if :a\nEND; \\endif", ["DELETE FROM t", "\\if :a", "END", "\\endif"]),
        ("\\; SELECT 1 \\:\\:int;", ["\\; SELECT 1 \\:\\:int"]),
        ("SELECT a$$b;SELECT $$;$$;", ["SELECT a$$b", "SELECT $$;$$"]),
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
        "what mine.sql writes outside of that transaction (line 1) is not judged by itself: its loss cannot "
        "be seen",
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
    [
        "SELECT place(1);",
        "EXECUTE place(1);",
        "SELECT app.place(a) FROM t;",
        "SELECT 1 \\; DELETE FROM t;",
        'SELECT "place"(1);',
        'SELECT app . "Place" (1);',
        "SELECT größe(1);",
        "SELECT ran\u212a(1);",
        "SELECT app.count(1);",
        "(SELECT place(1));",
        "SELECT * INTO kept FROM t;",
        "WITH x AS (SELECT 1) SELECT * FROM x FOR UPDATE OF x; UPDATE t SET a = 1;",
        "WITH x AS MATERIALIZED (SELECT 1) INSERT INTO t SELECT * FROM x;",
        "CREATE TABLE kept AS SELECT 1;",
        "CREATE INDEX ON t (a);",
        "REFRESH MATERIALIZED VIEW seen;",
        "EXPLAIN ANALYZE INSERT INTO t VALUES (1);",
        "EXPLAIN (ANALYZE, COSTS off) DELETE FROM t;",
        "EXPLAIN (COSTS off, ANALYZE) SELECT place(1);",
        "EXPLAIN ANALYZE VERBOSE (SELECT place(1));",
        "DECLARE c CURSOR WITH HOLD FOR SELECT place(1);",
        "SELECT $$a$$ || place(1);",
        "SELECT 'it''s', E'\\'', place(1);",
        "SELECT place /* a comment */ (1);",
        ":whatever;",
        "\\shell psql -f more.sql\nSELECT 1;",
        "\\setshell a psql -f more.sql\nSELECT 1;",
    ],
)
def test_what_may_write_is_ridden(text: str) -> None:
    """All that is not known to write nothing may."""
    assert identified_custom(text, "mine.sql").writes
    both = f"SET synchronous_commit = off; {text}\nBEGIN; DELETE FROM u; COMMIT;"
    with pytest.raises(InvalidInput, match="sets synchronous_commit"):
        identified_custom(both, "mine.sql")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*), max(a) FROM t WHERE a IN (1, 2);",
        "WITH x AS (SELECT 1) SELECT * FROM x;",
        "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT * FROM x AS y(a) LIMIT 9;",
        "SELECT pg_catalog.count(*) FROM t FOR NO KEY UPDATE;",
        "(SELECT 1) UNION (VALUES (2)); TABLE t;",
        "SELECT 'place(1) INTO', $$INSERT$$, \"UPDATE\", a /* place(1) */ FROM t; -- place(1)",
        "EXPLAIN INSERT INTO t VALUES (place(1));",
        "EXPLAIN (COSTS off) DELETE FROM t;",
        "EXPLAIN ANALYZE SELECT sum(a) FROM t;",
        "EXPLAIN (ANALYZE, BUFFERS) (SELECT 1);",
        "BEGIN; DECLARE c CURSOR FOR SELECT * FROM t; FETCH 5 FROM c; CLOSE c; COMMIT;",
        "SET work_mem = '1MB'; SHOW work_mem; RESET work_mem; DISCARD ALL;",
        "BEGIN; SAVEPOINT a; SELECT 1; ROLLBACK TO a; RELEASE a; ROLLBACK;",
        "PREPARE p AS SELECT 1; DEALLOCATE p;",
        "\\set a random(1, 9)\n\\sleep 1 ms\n\\if :a\nSELECT :a \\gset\n\\endif",
    ],
)
def test_what_only_reads_is_not(text: str) -> None:
    assert not identified_custom(text, "mine.sql").writes
    ridden = identified_custom(f"{text}\nBEGIN; DELETE FROM u; COMMIT;", "mine.sql")
    assert len(ridden.notes) == 1, "nothing of it counts as written outside"


def test_a_result_that_is_taken_ends_its_command() -> None:
    script = identified_custom("SELECT a FROM t \\gset\nDELETE FROM t WHERE a = :a;", "mine.sql")
    assert "SELECT a FROM t \\gset\nDELETE FROM t WHERE a = :a;\n" in script.text


def test_a_write_outside_of_the_last_transaction_is_told() -> None:
    script = identified_custom("DELETE FROM t;\nBEGIN; DELETE FROM u; COMMIT AND NO CHAIN;", "mine.sql")
    assert "(line 1) is not judged by itself: its loss cannot be seen" in script.notes[1]
    assert "function" not in script.notes[1]
    single = identified_custom("BEGIN; SET LOCAL synchronous_commit = off; DELETE FROM t; COMMIT;", "s.sql")
    assert len(single.notes) == 1
    many = identified_custom("DELETE FROM t;\n" * 9 + "BEGIN; DELETE FROM u; COMMIT;", "mine.sql")
    assert "(lines 1, 2, 3, 4, 5 and 4 more)" in many.notes[1]


@pytest.mark.parametrize(
    "call",
    ["CALL p();", "SELECT f();", "INSERT INTO t SELECT f();", "DO $$ BEGIN COMMIT; END $$;", "EXECUTE e;"],
)
def test_what_commits_by_itself_is_told(call: str) -> None:
    """Its commits carry no token, and nobody here sees what it sets before them."""
    text = f"{call}\nBEGIN; SELECT 1; COMMIT;"
    (_, told) = identified_custom(text, "mine.sql").notes
    assert "(line 1) is not judged by itself: its loss cannot be seen" in told
    assert "line 1 may run a function, a procedure or a program, whose own writes and commits" in told
    sets = "CREATE PROCEDURE p() SET synchronous_commit = off LANGUAGE sql AS 'DELETE FROM t';"
    with pytest.raises(InvalidInput, match="--init-sql sets synchronous_commit") as caught:
        identified_custom(text, "mine.sql", sets)
    assert caught.value.hint
    assert identified_custom(text, "mine.sql", sets.replace("synchronous_commit", "work_mem")).writes
    assert identified_custom(f"BEGIN; {call} COMMIT;", "mine.sql", sets).writes, "it is judged as a whole"


def test_a_trigger_that_sets_what_a_commit_promises_is_refused() -> None:
    text = "BEGIN; DELETE FROM t; COMMIT; BEGIN; SELECT 1; COMMIT;"
    by_trigger = "CREATE FUNCTION f() RETURNS trigger SET synchronous_commit = off LANGUAGE plpgsql AS '';"
    with pytest.raises(InvalidInput, match="--init-sql sets synchronous_commit"):
        identified_custom(text, "mine.sql", by_trigger)
    for_all = "ALTER ROLE ALL SET synchronous_commit = off;"
    assert identified_custom(text, "mine.sql", for_all).writes, "it holds for every transaction alike"


def test_a_program_of_a_script_is_outside_wherever_it_stands() -> None:
    script = identified_custom("BEGIN;\n\\shell psql -f more.sql\nDELETE FROM t; COMMIT;", "mine.sql")
    assert "(line 2) is not judged by itself" in script.notes[1] and "a program" in script.notes[1]


# Branches.

ENDS_TWICE = "BEGIN; INSERT INTO t VALUES (1);\n\\if :x\nCOMMIT;\n\\else\nCOMMIT;\n\\endif\n"
BEGINS_TWICE = (
    "\\if :x\nBEGIN; INSERT INTO t VALUES (1); COMMIT;\n\\elif :x\nBEGIN; DELETE FROM t; END;\n"
    "\\else\nBEGIN; INSERT INTO t VALUES (2); COMMIT;\n\\endif\n"
)
ONCE_OF_TWO = "BEGIN; INSERT INTO t VALUES (1);\n\\if :x\nROLLBACK;\n\\else\nCOMMIT;\n\\endif\n"


def before_ends(text: str) -> list[bool]:
    """Of each COMMIT or END of a script with riders, whether one stands before it."""
    commands = parse(identified_custom(text, "mine.sql").text, "mine.sql")
    ends = [index for index, command in enumerate(commands) if command.keyword in ("COMMIT", "END")]
    return [commands[index - 1].render() == RIDER for index in ends]


@pytest.mark.parametrize(
    ("text", "ridden", "is_conditional"),
    [
        (ENDS_TWICE, [True, True], False),
        (BEGINS_TWICE, [True, True, True], False),
        (BEGINS_TWICE.replace("\\if", "\\IF").replace("\\else", "\\ ELSE"), [True, True, True], False),
        (ONCE_OF_TWO, [True], True),
        # Every way sends its rider.
        ("BEGIN;\n\\if :a\nDELETE FROM t;\n\\endif\nEND;", [True], False),
        ("\\if :a\nDELETE FROM t;\n\\endif\n", [True], False),
        ("BEGIN; DELETE FROM t; ROLLBACK; BEGIN; DELETE FROM t; COMMIT;", [True], False),
        ("BEGIN; DELETE FROM t\n\\if :a\nCOMMIT\n\\else\nCOMMIT\n\\endif", [True, True], False),
        ("\\if :x\nBEGIN; DELETE FROM t; COMMIT;\n\\endif\n", [True], True),
        (
            "BEGIN; DELETE FROM t;\n\\if :x\nCOMMIT;\n\\elif :y\nCOMMIT;\n\\else\nABORT;\n\\endif\n",
            [True] * 2,
            True,
        ),
        # No way sends two.
        (
            "BEGIN; DELETE FROM t; COMMIT;\n\\if :x\nBEGIN; DELETE FROM t; COMMIT;\n\\endif\n",
            [False, True],
            True,
        ),
        (f"{ENDS_TWICE}BEGIN; DELETE FROM t; COMMIT;", [False, False, True], False),
    ],
)
def test_every_way_through_the_branches_sends_one_rider_at_most(
    text: str, ridden: list[bool], is_conditional: bool
) -> None:
    script = identified_custom(text, "mine.sql")
    assert before_ends(text) == ridden
    assert script.is_conditional == is_conditional
    assert any("may end without its rider" in note for note in script.notes) == is_conditional


@pytest.mark.parametrize("text", [ENDS_TWICE, BEGINS_TWICE, ONCE_OF_TWO])
def test_what_every_branch_rides_is_not_outside(text: str) -> None:
    assert not any("outside" in note for note in identified_custom(text, "mine.sql").notes)


def test_a_transaction_that_one_branch_commits_without_a_rider_is_outside() -> None:
    text = "BEGIN; DELETE FROM t;\n\\if :x\nCOMMIT; BEGIN; DELETE FROM u; COMMIT;\n\\else\nCOMMIT;\n\\endif\n"
    assert before_ends(text) == [False, True, True]
    assert "(line 1) is not judged by itself" in identified_custom(text, "mine.sql").notes[1]
    apart = "\\if :x\nBEGIN; DELETE FROM t; COMMIT;\n\\else\nDELETE FROM t;\n\\endif\n"
    assert "(line 4) is not judged by itself" in identified_custom(apart, "mine.sql").notes[1]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "BEGIN; DELETE FROM t;\n\\if :x\nCOMMIT;\n\\endif\nCOMMIT;",
            "COMMIT of line 5 ends a transaction dep",
        ),
        (
            "\\if :x\nBEGIN;\n\\endif\nDELETE FROM t;\n\\if :x\nEND;\n\\endif",
            "END of line 6 ends a transaction",
        ),
        (
            "BEGIN; DELETE FROM t;\n\\if :x\nCOMMIT;\n\\endif",
            "line 1 is never committed, or not on every way",
        ),
        ("DELETE FROM t;\n\\endif", "endif of line 2 has no"),
        ("\\if :x\nDELETE FROM t;", "has no .*endif"),
        ("DELETE FROM t \\; COMMIT;", "a COMMIT that is joined"),
        ("BEGIN; DELETE FROM t; SELECT 1 \\; ROLLBACK;", "a ROLLBACK that is joined"),
        ("DELETE FROM t; /* a */ COMMIT /* b */PREPARED 'a';", "a prepared transaction"),
        ("BEGIN; DELETE FROM t; COMMIT/* b */AND CHAIN; COMMIT;", "AND CHAIN"),
    ],
)
def test_ends_that_nobody_can_tell_are_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidInput, match=fault):
        identified_custom(text, "mine.sql")


STATEMENTS = st.sampled_from(
    ("BEGIN;", "DELETE FROM t;", "COMMIT;", "ROLLBACK;", "BEGIN; DELETE FROM t; COMMIT;")
)
BLOCKS = st.recursive(
    STATEMENTS,
    lambda inner: (
        st.lists(inner, max_size=4).map("\n".join)
        | st.tuples(inner, inner).map(lambda two: f"\\if :x\n{two[0]}\n\\else\n{two[1]}\n\\endif")
        | inner.map(lambda one: f"\\if :x\n{one}\n\\endif")
    ),
    max_leaves=10,
)


def ways(commands: list[Command]) -> list[list[Command]]:
    """Every way through a script's branches, by a recursion over the first of them."""
    first = next((index for index, command in enumerate(commands) if command.is_meta), None)
    if first is None:
        return [commands]
    if commands[first].meta != "if":
        return ways([*commands[:first], *commands[first + 1 :]])
    depth, cuts = 0, [first]
    for index in range(first, len(commands)):
        depth += {"if": 1, "endif": -1}.get(commands[index].meta, 0)
        if (depth, commands[index].meta) in ((1, "else"), (0, "endif")):
            cuts.append(index)
        if depth == 0:
            break
    arms = [commands[start + 1 : end] for start, end in pairwise(cuts)]
    arms += [[]] if len(arms) == 1 else []
    return [way for arm in arms for way in ways([*commands[:first], *arm, *commands[cuts[-1] + 1 :]])]


@given(st.lists(BLOCKS, max_size=5).map("\n".join))
def test_of_any_branches_every_way_sends_one_rider_at_most(text: str) -> None:
    try:
        script = identified_custom(f"{text}\nDELETE FROM t;", "mine.sql")
    except InvalidInput:
        return
    sent = []
    for way in ways(parse(script.text.partition(":duratune_n\n")[2], "mine.sql")):
        is_open, riders = False, 0
        for command in way:
            if command.render() == RIDER:
                assert is_open, "a rider that commits by itself"
                riders += 1
            is_open = command.keyword == "BEGIN" or (
                is_open and command.keyword not in ("COMMIT", "END", "ROLLBACK")
            )
        sent.append(riders)
    assert max(sent) == 1 and script.is_conditional == (0 in sent)


@pytest.fixture(scope="module")
def lab() -> Iterator[PostgresqlLab]:
    with open_postgresql() as lab:
        yield lab


@pytest.mark.slow
def test_every_transaction_of_branches_leaves_one_rider(lab: PostgresqlLab) -> None:
    """Run by pgbench itself: none twice, none missing."""
    place = lab.place("branches")
    workload = PgbenchWorkload("pgbench:mine.sql").with_options(init_sql="CREATE TABLE t (a int);")
    launch: PostgresqlLaunch = lab.engine.launch({}, place)
    workload.load(launch, place, 1)
    with launch.start() as server, Session(server.address) as session:
        for text in (ENDS_TWICE, BEGINS_TWICE):
            path = place / "script.sql"
            path.write_text(identified_custom(f"\\set x random(0, 1)\n{text}", "mine.sql").text)
            options = ["-n", "-c2", "-t50", "-D", "duratune_n=0", "-f", str(path)]
            program = str(server.cluster.binaries.program("pgbench"))
            environment = {**os.environ, **server.cluster.environment(), **server.address.environment()}
            subprocess.run([program, *options], env=environment, check=True, capture_output=True)
            found = session.query(f"SELECT token FROM {RIDER_TABLE}")
            riders = sorted(client_and_sequence(int(row[0] or 0)) for row in found)
            assert riders == [(client, number) for client in (1, 2) for number in range(1, 51)]
            session.query(f"TRUNCATE {RIDER_TABLE}")
