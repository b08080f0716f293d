"""A pgbench script as the commands that pgbench makes of it (pgbench(1), "Custom Scripts").

A backslash begins a meta command, which ends with its line; a backslash at the end of that goes on with the
next. Everything else is SQL up to a semicolon or a meta command outside of quotes, comments and dollar
quotes, or with the line of a \\gset or \\aset at its end. A semicolon behind a backslash ends no command but
joins two.

What a command writes is told by its words alone. Only what is known to write nothing counts as that: a
statement or a function that is not listed here may write. Not seen is code that runs without being called by
its name: behind a view that is read, an operator or a cast.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from knobs.errors import InvalidInput

_BLANKS_AND_COMMENTS = re.compile(r"(?:\s+|--[^\n]*)+")
_DOLLAR_TAG = re.compile(r"\$(?:[A-Za-z_\x80-\uffff][\w\x80-\uffff]*)?\$")
_WORD = re.compile(r"[A-Za-z_\x80-\U0010ffff][\w$\x80-\U0010ffff]*")
"""Every character beyond ASCII is a letter to PostgreSQL (manual, 4.1.1)."""
_NUMBER = re.compile(r"[0-9][\w.]*")
_TAKES_RESULT = re.compile(r"\\[ga]set\b[^\n]*")
_JOINT, _COLON = "\\;", "\\:"
_TEXT = "'"

_READS = frozenset(("SELECT", "WITH", "TABLE", "VALUES", "DECLARE"))
_KEEPS_NOTHING = frozenset(
    (
        *("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "LOCK"),
        *("SET", "RESET", "SHOW", "DISCARD", "PREPARE", "DEALLOCATE", "FETCH", "MOVE", "CLOSE"),
        *("LISTEN", "UNLISTEN", "NOTIFY", "CHECKPOINT", "VACUUM", "ANALYZE", "ANALYSE"),
    )
)
"""Statements of which a crash can lose nothing: they change no row. What a cursor or a prepared statement
does counts where it is declared or executed."""
_KEEPS_NOTHING_META = frozenset(
    (
        *("set", "sleep", "gset", "aset", "if", "elif", "else", "endif"),
        *("startpipeline", "syncpipeline", "endpipeline"),
    )
)
"""The others run a program (pgbench(1), \\shell and \\setshell)."""
_CHANGES = frozenset(("INSERT", "UPDATE", "DELETE", "MERGE", "INTO"))
_RUNS_CODE = frozenset(("CALL", "DO", "EXECUTE"))
_NAMES = frozenset(("AS", "INTO", "WITH", "RECURSIVE"))
"""A name behind one of these is given or filled, and its parenthesis holds columns."""
_HARMLESS = re.compile(
    "abs|all|and|any|array|as|avg|between|by|case|cast|ceil|char|coalesce|concat|count|date_trunc|decimal|"
    "distinct|else|except|exists|extract|filter|floor|format|from|generate_series|greatest|grouping|hashtext|"
    "having|ilike|in|intersect|interval|join|json_agg|jsonb_agg|lateral|least|left|length|like|limit|lower|"
    "materialized|max|md5|min|mod|not|now|nullif|numeric|offset|on|only|or|order|over|partition|power|random|"
    "rank|repeat|replace|right|round|row|row_number|select|set_config|similar|some|sqrt|string_agg|substr|"
    "substring|sum|then|timestamp|to_char|trim|trunc|union|unnest|upper|using|values|varchar|when|where|with|"
    "within"
)
"""What may stand before a parenthesis and writes nothing: keywords and functions of PostgreSQL's own."""


@dataclass(frozen=True)
class Command:
    """One command: its text as written, without the semicolon; ``line`` counts from 1. One that
    ``takes_result`` ends with the \\gset or \\aset that its text ends with."""

    text: str
    line: int
    is_meta: bool = False
    takes_result: bool = False

    @property
    def keyword(self) -> str:
        """The first word of an SQL command in capitals, comments left out; "" for a meta command."""
        return next(iter(self.keywords), "")

    @property
    def keywords(self) -> list[str]:
        """The same of each of the commands that are joined to one."""
        return [word for part in self.parts if (word := _head(part))]

    @property
    def meta(self) -> str:
        """The name of a meta command, which pgbench takes in any case; "" for SQL."""
        words = self.text[1:].split(maxsplit=1) if self.is_meta else []
        return words[0].lower() if words else ""

    @cached_property
    def parts(self) -> list[list[str]]:
        """The tokens of each of the commands that are joined to one: words in capitals, names in double
        quotes with them, a single quote for a text, other characters each for itself, no comments.

        A word with other letters than ASCII's is a name, and is in double quotes here.
        """
        found: list[list[str]] = [[]]
        if self.is_meta:
            return []
        for lexeme in _lexemes(self.text, 0, self.line, "script"):
            text = self.text[lexeme.start : lexeme.end]
            if lexeme.kind == _JOINT:
                found.append([])
            elif lexeme.kind == "word":
                found[-1].append(text.upper() if text.isascii() else f'"{text}"')
            elif lexeme.kind in (_TEXT, "other", '"'):
                found[-1].append(_TEXT if lexeme.kind == _TEXT else text)
        return found

    @property
    def may_write(self) -> bool:
        """Whether it may write what a crash can lose, itself or by what it calls: all that is not known to
        write nothing may."""
        if self.is_meta:
            return self.meta not in _KEEPS_NOTHING_META
        return any(_may_write(part) for part in self.parts)

    @property
    def runs_code(self) -> bool:
        """Whether it runs a function, a procedure or a program, of which nothing is known here."""
        if self.is_meta:
            return self.may_write
        return any(_head(part) in _RUNS_CODE or _calls_unknown(part) for part in self.parts)

    def render(self) -> str:
        """The command as a script states it."""
        if self.is_meta or self.takes_result:
            # At the end of a line a backslash would take in the next.
            return f"{self.text} " if self.text.endswith("\\") else self.text
        # A comment at its end would swallow the semicolon.
        return f"{self.text}\n;" if "--" in self.text.rpartition("\n")[2] else f"{self.text};"


@dataclass(frozen=True)
class _Lexeme:
    kind: str
    start: int
    end: int


def parse(script: str, where: str) -> list[Command]:
    """The commands of a script. Raises InvalidInput for quotes or a comment that never end."""
    commands: list[Command] = []
    at = 0
    while at < len(script):
        blank = _BLANKS_AND_COMMENTS.match(script, at)
        if blank is not None:
            at = blank.end()
            continue
        line = script.count("\n", 0, at) + 1
        is_meta = script[at] == "\\" and not script.startswith((_JOINT, _COLON), at)
        if is_meta:
            end, after, takes_result = _meta_end(script, at), 1, False
        else:
            end, after, takes_result = _sql_end(script, at, line, where)
        text = script[at:end].strip()
        if text:
            commands.append(Command(text, line, is_meta, takes_result))
        at = end + after
    return commands


def _meta_end(script: str, at: int) -> int:
    while True:
        end = script.find("\n", at)
        if end < 0:
            return len(script)
        if not script[at:end].rstrip("\r").endswith("\\"):
            return end
        at = end + 1


def _sql_end(script: str, at: int, line: int, where: str) -> tuple[int, int, bool]:
    """Where a command ends, how many characters more its end takes, and whether it is the line of a \\gset;
    a last command may do without any end."""
    for lexeme in _lexemes(script, at, line, where):
        if lexeme.kind == ";":
            return lexeme.start, 1, False
        if lexeme.kind == "result":
            return lexeme.end, 1, True
        if lexeme.kind == "\\":
            return lexeme.start, 0, False
    return len(script), 0, False


def _lexemes(script: str, at: int, line: int, where: str) -> Iterator[_Lexeme]:
    """What psql's scanner, which is pgbench's too, tells apart. Its kind is the character that it begins
    with, but for a "word", a "blank" or comment, the "result" of a \\gset, and "other" characters."""
    before = ""
    while at < len(script):
        kind, end = _lexeme(script, at, before, line, where)
        before = script[at:end]
        yield _Lexeme(kind, at, end)
        at = end


def _lexeme(script: str, at: int, before: str, line: int, where: str) -> tuple[str, int]:
    """The kind and the end of what begins here; ``before`` is what stands right before it."""
    for kind, pattern in (("blank", _BLANKS_AND_COMMENTS), ("word", _WORD), ("other", _NUMBER)):
        if (found := pattern.match(script, at)) is not None:
            return kind, found.end()
    character = script[at]
    if character == "\\":
        if (result := _TAKES_RESULT.match(script, at)) is not None:
            return "result", result.end()
        pair = script[at : at + 2]
        return (pair, at + 2) if pair in (_JOINT, _COLON) else ("\\", at + 1)
    if character in "'\"":
        escapes = character == "'" and before in ("e", "E")
        return character, _after_quoted(script, at, escapes, line, where)
    if script.startswith("/*", at):
        return "blank", _after_comment(script, at, line, where)
    if character == "$" and (tag := _DOLLAR_TAG.match(script, at)) is not None:
        end = script.find(tag[0], tag.end())
        if end < 0:
            raise _unended(f"{tag[0]} quotes", line, where)
        return _TEXT, end + len(tag[0])
    return (";" if character == ";" else "other"), at + 1


def _after_quoted(script: str, at: int, escapes: bool, line: int, where: str) -> int:
    """Past the closing quote. A doubled quote opens the next text at once, which comes to the same."""
    quote, at = script[at], at + 1
    while at < len(script):
        if escapes and script[at] == "\\":
            at += 2
        elif script[at] == quote:
            return at + 1
        else:
            at += 1
    raise _unended(f"{quote} quotes", line, where)


def _after_comment(script: str, at: int, line: int, where: str) -> int:
    depth, at = 1, at + 2
    while depth and at < len(script):
        if script.startswith("/*", at):
            depth, at = depth + 1, at + 2
        elif script.startswith("*/", at):
            depth, at = depth - 1, at + 2
        else:
            at += 1
    if depth:
        raise _unended("a comment", line, where)
    return at


def _unended(what: str, line: int, where: str) -> InvalidInput:
    return InvalidInput(f"{what} in the command of line {line} do not end", where=where)


def _head(part: Sequence[str]) -> str:
    """The first word; a query may stand in parentheses."""
    return next((token for token in part if token != "("), "")


def _may_write(part: Sequence[str]) -> bool:
    head = _head(part)
    if not part or head in _KEEPS_NOTHING:
        return False
    if head == "EXPLAIN":
        return not {"ANALYZE", "ANALYSE"}.isdisjoint(part) and _may_write(_explained(part))
    return head not in _READS or _changes(part) or _calls_unknown(part)


def _explained(part: Sequence[str]) -> Sequence[str]:
    """The statement that an EXPLAIN runs: what stands behind its options."""
    at = 1
    if part[1:2] == ["("]:
        at = part.index(")") + 1 if ")" in part else len(part)
    while part[at : at + 1] and part[at] in ("ANALYZE", "ANALYSE", "VERBOSE"):
        at += 1
    # Nothing that can be made out is nothing that is known to be harmless.
    return part[at:] or ["?"]


def _changes(part: Sequence[str]) -> bool:
    """Whether a query has INTO or a part that modifies data; FOR UPDATE and FOR NO KEY UPDATE only lock."""
    return any(
        token in _CHANGES and not (token == "UPDATE" and before in ("FOR", "KEY"))
        for before, token in zip(["", *part], part, strict=False)
    )


def _calls_unknown(part: Sequence[str]) -> bool:
    """Whether a function is called that is none of those which are known to write nothing."""
    for at, token in enumerate(part):
        if token != "(" or at == 0 or not _is_name(part[at - 1]):
            continue
        first = at - 1
        while first >= 2 and part[first - 1] == "." and _is_name(part[first - 2]):
            first -= 2
        name = part[first:at]
        if name[:-1] == ["PG_CATALOG", "."]:
            name = name[2:]
        is_given = first > 0 and part[first - 1] in _NAMES
        if not is_given and (len(name) > 1 or not _HARMLESS.fullmatch(name[0].lower())):
            return True
    return False


def _is_name(token: str) -> bool:
    return token[0].isalpha() or token[0] in '_"'
