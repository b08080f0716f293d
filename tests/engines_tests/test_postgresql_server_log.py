from __future__ import annotations

from datetime import datetime

from engines.postgresql.server_log import Message, cause, faults, parse, signalled, told_from, why

STAMP = "2026-01-02 03:04:05.678 UTC"
SETTINGS = f"""\
{STAMP} [7] LOG:  unrecognized configuration parameter "shared_bufers" in file "postgresql.conf" line 2
{STAMP} [7] FATAL:  configuration file "postgresql.conf" contains errors
"""
MEMORY = f"""\
{STAMP} [7] FATAL:  could not map anonymous shared memory: Cannot allocate memory
{STAMP} [7] HINT:  This error usually means that
\tPostgreSQL's request exceeded available memory.
"""
DATA = f"""\
{STAMP} [7] LOG:  starting PostgreSQL 15.18
{STAMP} [9] LOG:  invalid primary checkpoint record
{STAMP} [9] PANIC:  could not locate a valid checkpoint record
{STAMP} [7] LOG:  startup process (PID 9) was terminated by signal 6: Aborted
{STAMP} [7] LOG:  aborting startup due to startup process failure
"""
IN_USE = f"""\
{STAMP} [7] FATAL:  lock file "postmaster.pid" already exists
{STAMP} [7] HINT:  Is another postmaster (PID 3) running in data directory "data"?
"""


def test_messages() -> None:
    messages = parse(MEMORY)
    assert [(message.severity, message.pid) for message in messages] == [("FATAL", 7), ("HINT", 7)]
    assert (
        messages[1].text == "This error usually means that\nPostgreSQL's request exceeded available memory."
    )
    assert messages[0].at == datetime(2026, 1, 2, 3, 4, 5, 678000)
    assert parse("symbol lookup error\n\n") == [Message("", "symbol lookup error")]


def test_faults_are_what_is_severe_or_without_a_severity() -> None:
    assert [message.text for message in faults(parse(DATA + "loader: no such symbol\n"))] == [
        "could not locate a valid checkpoint record",
        "loader: no such symbol",
    ]


def test_why_it_did_not_start() -> None:
    assert len(why(parse(SETTINGS))) == 2 and "shared_bufers" in why(parse(SETTINGS))[0]
    assert why(parse(MEMORY))[1].startswith("HINT:")
    assert why(parse(DATA)) == ["PANIC:  could not locate a valid checkpoint record"]


def test_a_private_folder_is_named_only_where_it_tells_something() -> None:
    lines = ['file "/proc/self/fd/7/postgresql.conf" contains errors', 'directory "/proc/self/fd/7"']
    assert told_from("/proc/self/fd/7", lines) == [
        'file "postgresql.conf" contains errors',
        'directory "the data folder"',
    ]
    assert (
        told_from("/proc/self/fd/7", lines, "/x/data")[0] == 'file "/x/data/postgresql.conf" contains errors'
    )


def test_the_kind_of_reason() -> None:
    kinds = [cause(parse(text), 1) for text in (SETTINGS, MEMORY, DATA, IN_USE)]
    assert kinds == ["settings", "memory", "data", "in-use"]
    assert cause(parse(DATA), -9) == "killed"
    # What recovers was killed from outside, and the postmaster ends by itself then.
    assert cause(parse(DATA.replace("signal 6: Aborted", "signal 9: Killed")), 1) == "killed"


def test_what_a_signal_ended() -> None:
    killed = f"{STAMP} [7] LOG:  server process (PID 12) was terminated by signal 9: Killed\n"
    assert signalled(parse(killed)) == ["server process (PID 12) was terminated by signal 9: Killed"]
    assert signalled(parse(SETTINGS)) == []
