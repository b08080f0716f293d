"""The identity of each transaction: a token in its data, by which the lab knows it again.

A token is a decimal integer of 19 digits: 7, six digits of client (from 1), twelve digits of sequence
(from 1). pgbench's variables keep their value from one transaction of a client to the next, so a script
counts its own; a transaction that pgbench tries again has its variables back as they were, and so the
same token.

The built-in scripts keep their shape: the token goes into the history row's filler column, which they
leave empty. A script of the user's gets an insert of its own, the rider, inside its last transaction. Where
branches lead to several ends of that, each gets one, so that no way through the script sends two. What a
script writes outside of it, and what a procedure commits by itself, leaves no token: its loss is never seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from knobs.errors import InvalidInput
from workloads.pgbench.commands import Command, parse

TOKEN_BASE, CLIENT_STEP = 7 * 10**18, 10**12
TOKENS = 10**6 * CLIENT_STEP
"""Tokens lie between TOKEN_BASE and so many above it."""
RIDER_NAME = "duratune_rider"
RIDER_TABLE = f"public.{RIDER_NAME}"
"""With its schema, for a script's session may look elsewhere."""
RIDER_SCHEMA = f"CREATE TABLE {RIDER_TABLE} (token bigint NOT NULL)"
RIDER_GRANT = f"GRANT INSERT ON {RIDER_TABLE} TO PUBLIC"
"""A script may take another role."""
COUNTER = "duratune_n"
"""The variable that counts; every client starts with `-D duratune_n=0`."""
_TOKEN = "duratune_token"
_HISTORY_COLUMNS = "(tid, bid, aid, delta, mtime)"
_HISTORY_VALUES = "(:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP)"
_RIDER = Command(f"INSERT INTO {RIDER_TABLE} (token) VALUES (:{_TOKEN})", 0)
_ROLLS_BACK = ("ROLLBACK", "ABORT")
_BEGINS, _ENDS = frozenset(("BEGIN", "START")), frozenset(("COMMIT", "END"))
COMMIT_SETTING = "synchronous_commit"
_ROUTINE = re.compile(r"\b(?:function|procedure|routine)\b", re.IGNORECASE)
_LINES_MAX = 5
_State = TypeVar("_State")


@dataclass(frozen=True)
class Script:
    """A script that pgbench runs, and where its tokens are found.

    ``table`` and ``column`` hold the tokens; both are "" for a script without any write, which decides
    nothing. ``notes`` say what was added to the user's script; ``is_wrapped`` tells that this is a BEGIN at
    its head and an END at its end, ``is_conditional`` that it may end without its token.
    """

    text: str
    table: str = ""
    column: str = ""
    notes: tuple[str, ...] = ()
    is_wrapped: bool = False
    is_conditional: bool = False

    @property
    def writes(self) -> bool:
        """Whether its transactions leave a token."""
        return bool(self.table)


def token(client: int, sequence: int) -> int:
    """The token of a client's transaction, both counted from 1."""
    return TOKEN_BASE + client * CLIENT_STEP + sequence


def identified_builtin(text: str, name: str) -> Script:
    """A built-in script, as pgbench itself shows it, with its token in the history row.

    Raises InvalidInput where it is not of the shape that is known.
    """
    if "pgbench_history" not in text:
        return Script(text)
    if text.count(_HISTORY_COLUMNS) != 1 or text.count(_HISTORY_VALUES) != 1:
        raise InvalidInput(f"pgbench's own script {name} has another shape than is known", where=name)
    row = text.replace(_HISTORY_COLUMNS, _HISTORY_COLUMNS[:-1] + ", filler)")
    row = row.replace(_HISTORY_VALUES, f"{_HISTORY_VALUES[:-1]}, :{_TOKEN})")
    return Script(_counting() + row, "pgbench_history", "filler")


def identified_custom(text: str, where: str, init_sql: str = "") -> Script:
    """A script of the user's, with the rider inside its last transaction, and what was added in words.

    ``init_sql`` is run before it, and defines what the script calls. Raises InvalidInput for a script that
    cannot be read, that holds no SQL, or whose transactions do not match.
    """
    commands = parse(text, where)
    if not any(command.keyword for command in commands):
        raise InvalidInput("the script holds no SQL command", where=where)
    if not any(command.may_write for command in commands):
        return Script(text)
    _refuse_what_no_rider_can_ride(commands, where)
    course = _course(commands, where)
    ridden = _ridden(commands, course, where)
    if not ridden:
        _refuse_ends(commands, where)
        notes = [
            f"{where} has no transaction of its own: it is wrapped in BEGIN and END, with a rider insert"
        ]
        whole = [Command("BEGIN", 0), *commands, _RIDER, Command("END", 0)]
        is_conditional = False
    else:
        at = _lines([commands[index] for index in ridden])
        notes = [f"{where} gets a rider insert at the end of its last transaction ({at})"]
        notes += _unridden(commands, course.outside(ridden), where, init_sql)
        whole = [
            each
            for index, command in enumerate(commands)
            for each in ((_RIDER, command) if index in ridden else (command,))
        ]
        is_conditional = 0 in _riders_sent(commands, ridden, where)
    if is_conditional:
        notes.append(
            f"{where} has branches: a transaction may end without its rider, so pgbench's own log can tell "
            "only of acknowledgements too many"
        )
    body = "".join(f"{command.render()}\n" for command in whole)
    return Script(_counting() + body, RIDER_TABLE, "token", tuple(notes), not ridden, is_conditional)


def _lines(commands: Sequence[Command]) -> str:
    numbers = sorted({command.line for command in commands})
    told, more = ", ".join(map(str, numbers[:_LINES_MAX])), len(numbers) - _LINES_MAX
    return f"line{'s' if len(numbers) > 1 else ''} {told}" + (f" and {more} more" if more > 0 else "")


def _refuse_what_no_rider_can_ride(commands: list[Command], where: str) -> None:
    """Raises InvalidInput for transactions whose commit is not the one that a client sees answered."""
    for command in commands:
        for part in command.parts:
            is_end = _is_end(part)
            what = ""
            if part[:2] == ["PREPARE", "TRANSACTION"] or (is_end and "PREPARED" in part):
                what = "a prepared transaction is committed by another command than the one that it ends with"
            elif is_end and "CHAIN" in part and "NO" not in part:
                what = "AND CHAIN begins another transaction by itself"
            elif is_end and len(command.parts) > 1:
                what = f"a {part[0]} that is joined to other commands is answered with them"
            if what:
                raise InvalidInput(
                    f"line {command.line}: {what}, so a rider insert cannot tell which was lost",
                    where=where,
                    hint="use plain BEGIN and COMMIT",
                )


def _unridden(commands: Sequence[Command], outside: Collection[int], where: str, init_sql: str) -> list[str]:
    """What is said of writes outside of the last transaction, which carry no token. A program that a script
    starts has sessions of its own, so it is outside wherever it stands.

    Raises InvalidInput where something changes what a commit promises: then they may be lost while the last
    one holds.
    """
    writes = [
        command
        for index, command in enumerate(commands)
        if command.may_write and (command.is_meta or index in outside)
    ]
    if not writes:
        return []
    changes = [command for command in commands if COMMIT_SETTING in command.text.lower()]
    calls = [command for command in writes if command.runs_code]
    source = ""
    if changes:
        source = f"line {changes[0].line} sets {COMMIT_SETTING}"
    elif COMMIT_SETTING in init_sql.lower() and (calls or _ROUTINE.search(init_sql)):
        # A trigger or a view calls its function where the script names none.
        source = f"--init-sql sets {COMMIT_SETTING}, perhaps in what the script runs"
    if source:
        raise InvalidInput(
            f"{source}, and line {writes[0].line} writes outside of the last transaction, which is the only "
            "one that is judged",
            where=where,
            hint=f"give each transaction a script of its own, or leave {COMMIT_SETTING} to the settings",
        )
    said = (
        f"what {where} writes outside of that transaction ({_lines(writes)}) is not judged by itself: its "
        "loss cannot be seen"
    )
    if calls:
        said += (
            f"; {_lines(calls)} may run a function, a procedure or a program, whose own writes and commits "
            "are not looked into"
        )
    return [said]


def _refuse_ends(commands: list[Command], where: str) -> None:
    """Raises InvalidInput for a command that would end the transaction which a script is wrapped in: what
    follows it would commit by itself, the rider apart from the script's own writes."""
    for command in commands:
        if any(map(_is_end, command.parts)):
            raise InvalidInput(
                f"the {command.keyword} of line {command.line} would end the transaction that the script is "
                "wrapped in, because it commits none of its own",
                where=where,
                hint="put what it writes into a transaction that it commits",
            )


def _counting() -> str:
    return (
        f"\\set {COUNTER} :{COUNTER} + 1\n"
        f"\\set {_TOKEN} {TOKEN_BASE} + (:client_id + 1) * {CLIENT_STEP} + :{COUNTER}\n"
    )


def _is_end(part: Sequence[str]) -> bool:
    """Whether it ends a transaction; ROLLBACK TO ends none."""
    return part[:1] != [] and (part[0] in _ENDS or (part[0] in _ROLLS_BACK and "TO" not in part))


# The ways through a script: which transaction may be open where, and how many riders each way sends.


@dataclass(frozen=True)
class _Course:
    """The BEGINs (their indexes) that may be open at each command, None for no transaction, and which of
    them each COMMIT may end."""

    open_at: dict[int, frozenset[int | None]]
    ended_by: dict[int, frozenset[int | None]]

    def outside(self, ridden: Collection[int]) -> set[int]:
        """The commands that may run in no transaction, or in one that may commit without a rider."""
        bare: set[int | None] = {None}
        for end, begins in self.ended_by.items():
            if end not in ridden:
                bare |= begins
        return {index for index, begins in self.open_at.items() if begins & bare}


def _course(commands: Sequence[Command], where: str) -> _Course:
    """Raises InvalidInput for a transaction that is never committed, and for a COMMIT of which the branches
    decide whether there is one to end: a rider before it would then commit by itself."""
    course = _Course({}, {})
    none = frozenset((None,))

    def step(index: int, begins: frozenset[int | None]) -> frozenset[int | None]:
        command = commands[index]
        if not _BEGINS.isdisjoint(command.keywords):
            begins = frozenset(index if each is None else each for each in begins)
        course.open_at[index] = begins
        if command.keyword in _ENDS and begins != none:
            if None in begins:
                raise InvalidInput(
                    f"whether the {command.keyword} of line {command.line} ends a transaction depends on the "
                    "branches before it, so no rider insert can tell which was lost",
                    where=where,
                    hint="begin and end each transaction in the same branch, or end it in each: "
                    "\\if, ROLLBACK, \\else, COMMIT, \\endif",
                )
            course.ended_by[index] = begins
        return none if any(map(_is_end, command.parts)) else begins

    left = [begin for begin in _through(commands, none, step, where) if begin is not None]
    if left:
        raise InvalidInput(
            f"the transaction begun in line {commands[min(left)].line} is never committed, or not on every "
            "way through the branches",
            where=where,
        )
    return course


def _ridden(commands: Sequence[Command], course: _Course, where: str) -> list[int]:
    """The COMMITs that get a rider: the last, and of those before it each that no way shares with another."""
    ridden: list[int] = []
    for end in sorted(course.ended_by, reverse=True):
        if ridden and 0 not in _riders_sent(commands, ridden, where):
            break
        if max(_riders_sent(commands, [end, *ridden], where)) == 1:
            ridden.insert(0, end)
    return ridden


def _riders_sent(commands: Sequence[Command], ridden: Collection[int], where: str) -> frozenset[int]:
    """How many riders the ways through a script may send."""

    def step(index: int, sent: frozenset[int]) -> frozenset[int]:
        return frozenset(each + 1 for each in sent) if index in ridden else sent

    return _through(commands, frozenset((0,)), step, where)


def _through(
    commands: Sequence[Command],
    states: frozenset[_State],
    step: Callable[[int, frozenset[_State]], frozenset[_State]],
    where: str,
) -> frozenset[_State]:
    """The states that the ways through a script may end in, given what each command makes of them.

    Every branch counts as one that may be taken, whatever its condition. Raises InvalidInput for a branch
    without its other end.
    """
    # Of each open \if the states at its beginning, while a branch may still be the last, and at its ends.
    open_ifs: list[tuple[frozenset[_State], frozenset[_State]]] = []
    for index, command in enumerate(commands):
        if command.meta == "if":
            open_ifs.append((states, frozenset()))
        elif command.meta in ("elif", "else", "endif"):
            if not open_ifs:
                raise InvalidInput(f"the \\{command.meta} of line {command.line} has no \\if", where=where)
            skipped, done = open_ifs.pop()
            done |= states
            if command.meta == "endif":
                states = done | skipped
            else:
                states = skipped
                open_ifs.append((skipped if command.meta == "elif" else frozenset(), done))
        else:
            states = step(index, states)
    if open_ifs:
        raise InvalidInput("an \\if has no \\endif", where=where)
    return states
