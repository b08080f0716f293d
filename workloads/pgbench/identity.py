"""The identity of each transaction: a token in its data, by which the lab knows it again.

A token is a decimal integer of 19 digits: 7, six digits of client (from 1), twelve digits of sequence
(from 1). pgbench's variables keep their value from one transaction of a client to the next, so a script
counts its own; a transaction that pgbench tries again has its variables back as they were, and so the
same token.

The built-in scripts keep their shape: the token goes into the history row's filler column, which they
leave empty. A script of the user's gets an insert of its own, the rider, inside its last transaction.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
_WRITES = frozenset(("INSERT", "UPDATE", "DELETE", "MERGE", "COPY", "CALL", "DO", "EXECUTE", "TRUNCATE"))
_READS = frozenset(("SELECT", "WITH", "TABLE", "VALUES"))
_CALLED = re.compile(r"([A-Za-z_][\w$.]*)\s*\(")
_HARMLESS = re.compile(
    "abs|all|and|any|array|as|avg|between|by|case|cast|ceil|char|coalesce|concat|count|date_trunc|decimal|"
    "distinct|else|exists|extract|filter|floor|format|from|generate_series|greatest|grouping|hashtext|having|"
    "in|interval|join|json_agg|jsonb_agg|lateral|least|left|length|limit|lower|max|md5|min|mod|not|now|nullif|"
    "numeric|offset|on|or|order|over|partition|power|random|rank|repeat|replace|right|round|row|row_number|"
    "select|set_config|similar|some|sqrt|string_agg|substr|substring|sum|then|timestamp|to_char|trim|trunc|"
    "union|unnest|upper|using|values|varchar|when|where|with|within"
)
"""What may stand before a parenthesis and writes nothing: keywords and functions of PostgreSQL's own."""
_ROLLS_BACK = ("ROLLBACK", "ABORT")
_BEGINS, _ENDS = frozenset(("BEGIN", "START")), frozenset(("COMMIT", "END"))
COMMIT_SETTING = "synchronous_commit"


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


def client_and_sequence(number: int) -> tuple[int, int]:
    """Who wrote a token; raises ValueError where it is none."""
    if not TOKEN_BASE < number < TOKEN_BASE + TOKENS:
        raise ValueError(f"{number} is no token")
    return divmod(number - TOKEN_BASE, CLIENT_STEP)


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


def identified_custom(text: str, where: str) -> Script:
    """A script of the user's, with the rider inside its last transaction, and what was added in words.

    Raises InvalidInput for a script that cannot be read, that holds no SQL, or whose transactions do not
    match.
    """
    commands = parse(text, where)
    if not any(command.keyword for command in commands):
        raise InvalidInput("the script holds no SQL command", where=where)
    if not any(_may_write(command) for command in commands):
        return Script(text)
    _refuse_what_no_rider_can_ride(commands, where)
    first, last = _last_transaction(commands, where)
    notes: tuple[str, ...]
    if first is None:
        _refuse_ends(commands, where)
        notes = (
            f"{where} has no transaction of its own: it is wrapped in BEGIN and END, with a rider insert",
        )
        whole = [Command("BEGIN", 0), *commands, _RIDER, Command("END", 0)]
    else:
        notes = (
            f"{where} gets a rider insert at the end of its last transaction (line {commands[last].line})",
        )
        notes += _unridden(commands, first, last, where)
        whole = [*commands[:last], _RIDER, *commands[last:]]
    body = "".join(f"{command.render()}\n" for command in whole)
    is_conditional = any(_opens_branch(command) for command in commands)
    if is_conditional:
        notes += (
            f"{where} has branches: a transaction may end without its rider, so pgbench's own log can tell "
            "only of acknowledgements too many",
        )
    return Script(_counting() + body, RIDER_TABLE, "token", notes, first is None, is_conditional)


def _refuse_what_no_rider_can_ride(commands: list[Command], where: str) -> None:
    """Raises InvalidInput for transactions whose commit is not the one that a client sees answered."""
    for command in commands:
        words = command.text.upper().split()
        what = ""
        if command.keyword == "PREPARE" and words[1:2] == ["TRANSACTION"]:
            what = "a prepared transaction is committed by another command than the one that it ends with"
        elif command.keyword in (*_ENDS, *_ROLLS_BACK) and "CHAIN" in words and "NO" not in words:
            what = "AND CHAIN begins another transaction by itself"
        if what:
            raise InvalidInput(
                f"line {command.line}: {what}, so a rider insert cannot tell which was lost",
                where=where,
                hint="use plain BEGIN and COMMIT",
            )


def _unridden(commands: list[Command], first: int, last: int, where: str) -> tuple[str, ...]:
    """What is said of writes outside of the last transaction, which carry no token.

    Raises InvalidInput where the script itself changes what a commit promises: then they may be lost while
    the last one holds.
    """
    outside = [command for command in (*commands[:first], *commands[last:]) if _may_write(command)]
    if not outside:
        return ()
    changes = [command for command in commands if COMMIT_SETTING in command.text.lower()]
    if changes:
        raise InvalidInput(
            f"line {changes[0].line} sets {COMMIT_SETTING}, and line {outside[0].line} writes outside of the "
            "last transaction, which is the only one that is judged",
            where=where,
            hint="give each transaction a script of its own",
        )
    return (
        f"what {where} writes outside of that transaction (line {outside[0].line}) is not judged by itself",
    )


def _refuse_ends(commands: list[Command], where: str) -> None:
    """Raises InvalidInput for a command that would end the transaction which a script is wrapped in: what
    follows it would commit by itself, the rider apart from the script's own writes."""
    for command in commands:
        if command.keyword in (*_ENDS, *_ROLLS_BACK) and "TO" not in command.text.upper().split():
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


def _may_write(command: Command) -> bool:
    """Whether it writes, or calls a function that may."""
    if any(keyword in _WRITES for keyword in command.keywords):
        return True
    if not any(keyword in _READS for keyword in command.keywords):
        return False
    is_changing = any(word in command.text.upper() for word in ("INSERT", "UPDATE", "DELETE", "MERGE"))
    called = {name.lower() for name in _CALLED.findall(command.text)}
    return (is_changing and "WITH" in command.keywords) or any(
        not _HARMLESS.fullmatch(name) for name in called
    )


def _opens_branch(command: Command) -> int:
    """1 where an \\if begins, -1 where one ends."""
    word = command.text.split(maxsplit=1)[0] if command.is_meta else ""
    return {"\\if": 1, "\\endif": -1}.get(word, 0)


def _last_transaction(commands: list[Command], where: str) -> tuple[int | None, int]:
    """The indexes of the BEGIN and of the COMMIT of the script's last transaction; None where it has none."""
    begun: int | None = None
    found: tuple[int | None, int] = (None, -1)
    branches = 0
    for index, command in enumerate(commands):
        branches += _opens_branch(command)
        if command.keyword in _BEGINS:
            begun = index
        elif command.keyword in _ENDS and begun is not None:
            found, begun = (begun, index), None
        elif command.keyword in _ROLLS_BACK and "TO" not in command.text.upper().split():
            # Inside of a branch it is one of two ends.
            begun = begun if branches else None
    if begun is not None:
        raise InvalidInput(
            f"the transaction begun in line {commands[begun].line} is never committed", where=where
        )
    return found
