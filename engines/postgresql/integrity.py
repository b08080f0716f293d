"""Whether a recovered cluster is whole: page checksums, indexes against their tables, and the server's log.

Torn pages of free-space and visibility maps do not count: what clears a bit or changes the space is not
WAL-logged for the map's own page, and PostgreSQL zeroes a page of one that does not verify when it reads it
(storage/freespace/README; visibilitymap.c, vm_readbuf: clearing bits is always safe). One was seen after a
recovery with every setting at its default, in a state of `torn-512`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from engines.postgresql.cluster import Cluster
from engines.postgresql.control_file import ControlFile
from engines.postgresql.server import Server
from engines.postgresql.server_log import Message
from engines.postgresql.session import READ_DEADLINE_S, Session, StatementFailed
from knobs.errors import InvalidInput, Undecided

CHECKSUMS_DEADLINE_S, WALDUMP_DEADLINE_S = 600.0, 600.0
PAGE_BYTES = 8192
FAULTS_MAX = 5
INDEXES = "indexes against their tables (amcheck, heapallindexed)"
TABLES = "table pages (amcheck)"
WITHOUT_AMCHECK = "no amcheck: the extension is not installed"

_WRONG_PAGE = re.compile(r'checksum verification failed in file "([^"]+)", block (\d+)')
_TOTAL = re.compile(r"^Total\s+\d+\s+\d+\s+\[[\d.]+%\]\s+(\d+)", re.MULTILINE)
"""pg_waldump's last line: the number of records, and the bytes of records, of page images, of both."""
_ALL_READ = "Checksum operation completed"
"""What pg_checksums says once it has come to the end, whatever it found."""
_PARTIAL_PAGE = re.compile(r'could not read block \d+ in file "([^"]+)": read \d+ of \d+')
_MAP = re.compile(r"_(fsm|vm)(\.\d+)?\b")
_OF_A_STOP = re.compile(r"terminating .* due to administrator command|the database system is shutting down")
_BESIDE = ("CONTEXT", "DETAIL", "HINT", "STATEMENT")
_REDO_STARTS, _REDO_DONE = (
    re.compile(rf"redo {what} at ([0-9A-F]+)/([0-9A-F]+)") for what in ("starts", "done")
)
_HAS_AMCHECK = "select count(*) from pg_catalog.pg_extension where extname = 'amcheck'"
_INDEXES = """
select c.relname, pg_catalog.bt_index_check(i.indexrelid::regclass, true)
from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indexrelid
join pg_catalog.pg_am a on a.oid = c.relam
where a.amname = 'btree' and c.relpersistence <> 't' and i.indisready and i.indisvalid
"""
_TABLES = """
select c.relname, v.blkno, v.msg from pg_catalog.pg_class c,
lateral pg_catalog.verify_heapam(c.oid::regclass) v
where c.relkind in ('r', 't', 'm') and c.relpersistence <> 't' limit 5
"""
_HEAP_MAJOR_MIN = 14


@dataclass(frozen=True)
class Checked:
    """What was checked, in words, and what was found wrong."""

    checks: Sequence[str]
    faults: Sequence[str]


def wrong_checksums(cluster: Cluster) -> list[str]:
    """Pages of a cleanly stopped cluster whose checksum is not that of their content; the first five.

    A part of a page at the end of a file is cut off first: growth that a crash left half done, which
    PostgreSQL itself does not count as a page (md.c, mdnblocks) and pg_checksums stumbles over. Raises
    Undecided where pg_checksums cannot tell.
    """
    with cluster.seen() as seen:
        done = cluster.run("pg_checksums", ["--check", "-D", seen.path], seen, CHECKSUMS_DEADLINE_S)
        while (partial := _PARTIAL_PAGE.search(done.stderr)) is not None:
            _cut_to_pages(cluster.data / partial[1].removeprefix(seen.path).lstrip("/"))
            done = cluster.run("pg_checksums", ["--check", "-D", seen.path], seen, CHECKSUMS_DEADLINE_S)
    wrong = [
        f"block {block} of {file.removeprefix(seen.path).lstrip('/')}"
        for file, block in _WRONG_PAGE.findall(done.stderr)
        if not _MAP.search(file)
    ]
    if not wrong and done.returncode != 0 and _ALL_READ not in done.stdout:
        raise Undecided(f"pg_checksums: {done.stderr.strip()[-500:]}", where=str(cluster.data))
    return [f"{len(wrong)} pages do not verify: {', '.join(wrong[:FAULTS_MAX])}"] if wrong else []


def _cut_to_pages(file: Path) -> None:
    size = file.stat().st_size
    if size % PAGE_BYTES == 0:
        raise Undecided("pg_checksums cannot read a page of it", where=str(file))
    os.truncate(file, size - size % PAGE_BYTES)


def amcheck(server: Server) -> Checked:
    """Hold every index against its table, and look through every table's pages (manual, F.2 amcheck).

    What pg_amcheck does with --heapallindexed, in the session's own database.
    """
    faults, checks = [], [INDEXES]
    with Session(server.address) as session:
        if session.value(_HAS_AMCHECK) == "0":
            return Checked([WITHOUT_AMCHECK], [])
        try:
            session.query(_INDEXES, deadline_s=READ_DEADLINE_S)
            if server.cluster.binaries.version.major >= _HEAP_MAJOR_MIN:
                checks.append(TABLES)
                found = session.query(_TABLES, deadline_s=READ_DEADLINE_S)
                faults += [f"{table}, block {block}: {text}" for table, block, text in found]
        except StatementFailed as error:
            if error.is_of_the_machine:
                raise
            faults.append(error.what)
    return Checked(checks, faults)


def alarming(messages: Sequence[Message]) -> list[str]:
    """What a server must not say while it recovers and is read: errors, and pages that do not verify."""
    return list(dict.fromkeys(_alarms(messages)))[:FAULTS_MAX]


def _alarms(messages: Sequence[Message]) -> Iterator[str]:
    for number, message in enumerate(messages):
        is_error = message.severity in ("ERROR", "FATAL", "PANIC") and not _OF_A_STOP.search(message.text)
        is_page = "invalid page" in message.text and not _MAP.search(message.text)
        if is_error or is_page or _is_used_unverified(messages, number):
            yield str(message)


def _is_used_unverified(messages: Sequence[Message], number: int) -> bool:
    """Whether this message tells of a page that was used although its checksum is wrong.

    That names no file. The page of a free-space map is named by the same process's next message, which
    zeroes it; with ignore_checksum_failure there is none, and the page's next write hides it.
    """
    first = messages[number]
    if not first.text.startswith("page verification failed"):
        return False
    later = (messages[at] for at in range(number + 1, len(messages)))
    follows = next((each for each in later if each.pid == first.pid and each.severity not in _BESIDE), None)
    return follows is None or not ("invalid page" in follows.text and _MAP.search(follows.text))


def page_image_bytes(cluster: Cluster) -> int:
    """How much of the log that a recovery of this cluster will replay is images of whole pages.

    0 where the control file does not tell where it begins: then the recovery itself says what is wrong.
    """
    try:
        begin = ControlFile.read(cluster.data).redo
    except InvalidInput:
        return 0
    with cluster.seen() as seen:
        arguments = [
            "--stats",
            f"--path={seen.path}/pg_wal",
            f"--start={begin >> 32:X}/{begin & 0xFFFFFFFF:X}",
        ]
        # It ends with an error where the log does, which is where recovery ends too.
        done = cluster.run("pg_waldump", arguments, seen, WALDUMP_DEADLINE_S)
    total = _TOTAL.search(done.stdout)
    return int(total[1]) if total else 0


def redo(messages: Sequence[Message]) -> tuple[int, float] | None:
    """The bytes of log that a recovery replayed and the seconds it took; None where none was needed."""
    started = next((found for found in map(_starts, messages) if found is not None), None)
    done = next((found for found in map(_done, messages) if found is not None), None)
    if started is None or done is None:
        return None
    return max(0, done[0] - started[0]), max(0.0, (done[1] - started[1]).total_seconds())


def _starts(message: Message) -> tuple[int, datetime] | None:
    return _place(_REDO_STARTS.match(message.text), message)


def _done(message: Message) -> tuple[int, datetime] | None:
    return _place(_REDO_DONE.match(message.text), message)


def _place(match: re.Match[str] | None, message: Message) -> tuple[int, datetime] | None:
    if match is None or message.at is None:
        return None
    return (int(match[1], 16) << 32) + int(match[2], 16), message.at
