"""A pgbench script as the commands that pgbench makes of it (pgbench(1), "Custom Scripts").

A line that begins with a backslash is a meta command, and a backslash at its end goes on with the next
line. Everything else is SQL up to a semicolon that stands in no quotes, comment or dollar quotes, or with the
line of a \\gset or \\aset in its place. A semicolon behind a backslash ends no command but joins two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from knobs.errors import InvalidInput

_BLANKS_AND_COMMENTS = re.compile(r"(?:\s+|--[^\n]*)+")
_DOLLAR_TAG = re.compile(r"\$(?:[A-Za-z_\x80-\uffff][\w\x80-\uffff]*)?\$")
_WORD = re.compile(r"[A-Za-z_]+")
_TAKES_RESULT = re.compile(r"\\[ga]set\b[^\n]*")
_JOINT = "\\;"


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
        if self.is_meta:
            return []
        words = (_WORD.match(_without_comments(part)) for part in self.text.split(_JOINT))
        return [word[0].upper() for word in words if word]

    def render(self) -> str:
        """The command as a script states it."""
        if self.is_meta or self.takes_result:
            # At the end of a line a backslash would take in the next.
            return f"{self.text} " if self.text.endswith("\\") else self.text
        # A comment at its end would swallow the semicolon, and a backslash would join it to the next.
        is_apart = "--" in self.text.rpartition("\n")[2] or self.text.endswith("\\")
        return f"{self.text}\n;" if is_apart else f"{self.text};"


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
        is_meta, takes_result = script[at] == "\\", False
        if is_meta:
            end = _meta_end(script, at)
        else:
            end, takes_result = _sql_end(script, at, line, where)
        text = script[at:end].strip()
        if text:
            commands.append(Command(text, line, is_meta, takes_result))
        at = end + 1
    return commands


def _meta_end(script: str, at: int) -> int:
    while True:
        end = script.find("\n", at)
        if end < 0:
            return len(script)
        if not script[at:end].rstrip("\r").endswith("\\"):
            return end
        at = end + 1


def _sql_end(script: str, at: int, line: int, where: str) -> tuple[int, bool]:
    """Where the semicolon stands, or the line of a \\gset in its place ends, and whether it is that; a last
    command may do without either."""
    while at < len(script):
        character = script[at]
        if character == ";":
            return at, False
        if (result := _TAKES_RESULT.match(script, at)) is not None:
            return result.end(), True
        if script.startswith(_JOINT, at):
            at += len(_JOINT)
        elif character in "'\"":
            at = _after_quoted(script, at, line, where)
        elif script.startswith("--", at):
            newline = script.find("\n", at)
            at = len(script) if newline < 0 else newline
        elif script.startswith("/*", at):
            at = _after_comment(script, at, line, where)
        elif character == "$" and (tag := _DOLLAR_TAG.match(script, at)) is not None:
            end = script.find(tag[0], tag.end())
            if end < 0:
                raise _unended(f"{tag[0]} quotes", line, where)
            at = end + len(tag[0])
        else:
            at += 1
    return len(script), False


def _after_quoted(script: str, at: int, line: int, where: str) -> int:
    """Past the closing quote. A doubled quote opens the next text at once, which comes to the same."""
    escapes = script[at] == "'" and at > 0 and script[at - 1] in "eE" and not script[max(0, at - 2)].isalnum()
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


def _without_comments(text: str) -> str:
    """The text from its first word on."""
    at = 0
    while at < len(text):
        blank = _BLANKS_AND_COMMENTS.match(text, at)
        if blank is not None:
            at = blank.end()
        elif text.startswith("/*", at):
            at = _after_comment(text, at, 1, "script")
        else:
            break
    return text[at:]
