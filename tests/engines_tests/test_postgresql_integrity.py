"""What counts as damage of a recovered cluster, and what the server's log tells of a recovery."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from engines.postgresql.cluster import Cluster, Seen
from engines.postgresql.integrity import FAULTS_MAX, alarming, redo, wrong_checksums
from engines.postgresql.server_log import parse
from knobs.errors import Undecided

STAMP = "2026-01-02 03:04:05.000 UTC [7] "
LATER = "2026-01-02 03:04:07.250 UTC [7] "
RECOVERY = f"""\
{STAMP}LOG:  starting PostgreSQL 15.18
{STAMP}LOG:  database system was not properly shut down; automatic recovery in progress
{STAMP}LOG:  redo starts at 1/FF000028
{STAMP}LOG:  invalid record length at 2/1000060: wanted 24, got 0
{LATER}LOG:  redo done at 2/01000028 system usage: CPU: user: 0.01 s, system: 0.02 s, elapsed: 2.24 s
{LATER}LOG:  database system is ready to accept connections
"""


def test_how_far_a_recovery_went_and_how_long_it_took() -> None:
    """Across the border of two 4 GiB stretches, which an LSN writes apart."""
    assert redo(parse(RECOVERY)) == (0x0200_0000, 2.25)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{STAMP}LOG:  redo is not required\n",
        f"{STAMP}LOG:  redo starts at 0/28\n",
        f"{STAMP}LOG:  redo done at 0/28 system usage\n",
        "redo starts at 0/28\nredo done at 0/90\n",
    ],
)
def test_without_a_whole_redo_there_is_none(text: str) -> None:
    assert redo(parse(text)) is None


@pytest.mark.parametrize(
    "line",
    [
        "ERROR:  could not read block 3 in file",
        "FATAL:  the database system is in recovery mode",
        "PANIC:  could not locate a valid checkpoint record",
        "WARNING:  invalid page in block 3 of relation base/5/16384; zeroing out page",
        "WARNING:  invalid page in block 3 of relation base/5/16384_init; zeroing out page",
        "WARNING:  invalid page in block 3 of relation base/5/16384_init",
        "WARNING:  WAL contains references to invalid pages",
        "WARNING:  page verification failed, calculated checksum 1 but expected 2",
    ],
)
def test_what_a_server_must_not_say(line: str) -> None:
    assert alarming(parse(STAMP + line + "\n")) == [line]


@pytest.mark.parametrize(
    "line",
    [
        "LOG:  invalid record length at 2/1000060: wanted 24, got 0",
        "LOG:  database system was not properly shut down; automatic recovery in progress",
        "WARNING:  invalid page in block 3 of relation base/5/16384_fsm; zeroing out page",
        "WARNING:  invalid page in block 3 of relation base/5/16384_fsm.1; zeroing out page",
        "FATAL:  terminating connection due to administrator command",
        'FATAL:  terminating background worker "logical replication launcher" due to administrator command',
        "FATAL:  the database system is shutting down",
        "WARNING:  there is no transaction in progress",
    ],
)
def test_what_a_sound_server_may_say(line: str) -> None:
    assert alarming(parse(STAMP + line + "\n")) == []


UNVERIFIED = "WARNING:  page verification failed, calculated checksum 1 but expected 2\n"
ZEROED = "WARNING:  invalid page in block 3 of relation base/5/16384{}; zeroing out page\n"


@pytest.mark.parametrize(
    ("process", "fork", "alarms"),
    [
        (7, "_fsm", 0),
        (7, "_fsm.1", 0),
        (8, "_fsm", 1),
        (7, "_vm", 0),
        (8, "_vm", 1),
        (7, "_init", 2),
        (7, "", 2),
    ],
)
def test_a_page_that_does_not_verify_is_excused_by_its_own_process_only(
    process: int, fork: str, alarms: int
) -> None:
    """The first message names no file; the next one of that process does, and zeroes the page."""
    text = STAMP + UNVERIFIED + STAMP.replace("[7]", f"[{process}]") + ZEROED.format(fork)
    assert len(alarming(parse(text))) == alarms
    during_redo = text.replace(UNVERIFIED, f"{UNVERIFIED}{STAMP}CONTEXT:  WAL redo at 0/28 for Heap/INSERT\n")
    assert len(alarming(parse(during_redo))) == alarms


def test_of_many_alarms_the_first_are_told_each_once() -> None:
    lines = "".join(f"{STAMP}ERROR:  number {number // 2}\n" for number in range(40))
    assert alarming(parse(lines)) == [f"ERROR:  number {number}" for number in range(FAULTS_MAX)]


# Checksums, as pg_checksums tells them.


class Told:
    """A cluster whose pg_checksums is known."""

    data = Path("/x/data")

    def __init__(self, code: int, *said: str, is_whole: bool = True) -> None:
        self.code, self.said = code, "\n".join(said)
        self.ends = "Checksum operation completed\nFiles scanned:   961\n" if is_whole else ""

    @contextmanager
    def seen(self) -> Iterator[Seen]:
        yield Seen("/proc/self/fd/9", (9,))

    def run(
        self, program: str, arguments: Sequence[str], seen: Seen, deadline_s: float
    ) -> subprocess.CompletedProcess[str]:
        assert (program, "--check" in arguments, seen.path in arguments) == ("pg_checksums", True, True)
        assert deadline_s > 0
        return subprocess.CompletedProcess([program], self.code, self.ends, self.said)


def wrong(code: int, *said: str, is_whole: bool = True) -> list[str]:
    return wrong_checksums(cast(Cluster, Told(code, *said, is_whole=is_whole)))


def page(file: str, block: int) -> str:
    return (
        f'pg_checksums: error: checksum verification failed in file "/proc/self/fd/9/base/5/{file}", '
        f"block {block}: calculated checksum 1 but block contains 2"
    )


def test_every_page_that_does_not_verify_is_told_without_our_path() -> None:
    assert wrong(0) == []
    assert wrong(1, page("16384", 3), page("16384.1", 4), page("16390_init", 0)) == [
        "3 pages do not verify: "
        "block 3 of base/5/16384, block 4 of base/5/16384.1, block 0 of base/5/16390_init"
    ]


def test_pages_of_a_free_space_map_do_not_count() -> None:
    assert wrong(1, page("16384_fsm", 0), page("16384_vm.1", 3)) == []
    (fault,) = wrong(1, page("16384_fsm", 0), page("16384", 3))
    assert fault == "1 pages do not verify: block 3 of base/5/16384"


def test_of_many_pages_a_few_are_named_and_all_counted() -> None:
    (fault,) = wrong(1, *(page("16384", block) for block in range(20)))
    assert fault.startswith("20 pages") and fault.count("block") == FAULTS_MAX


def test_a_check_that_cannot_be_done_decides_nothing() -> None:
    with pytest.raises(Undecided, match="cluster must be shut down"):
        wrong(1, "pg_checksums: error: cluster must be shut down", is_whole=False)
    cannot = "pg_checksums: error: could not open file"
    with pytest.raises(Undecided, match="could not open file"):
        wrong(1, page("16384_fsm", 0), cannot, is_whole=False)
    assert len(wrong(1, page("16384", 0), cannot, is_whole=False)) == 1
