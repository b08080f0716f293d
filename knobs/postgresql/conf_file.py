"""postgresql.conf: reading it, with what it includes, as the server does.

The grammar is the server's (src/backend/utils/misc/guc-file.l): one `name = value` a line, the `=` optional,
names without regard to case, `#` starts a comment. A value is a word, a number with a unit, or a text in
single quotes, in which '' and a backslash escape; 1.5GB is none of these and needs quotes. Where a name
stands twice the last wins, over all files. `include`, `include_if_exists` and `include_dir` (its *.conf files
in the order of their names) are read in their place, relative to the file that names them.
postgresql.auto.conf, which ALTER SYSTEM writes, lies on top: it is read where it lies beside a
postgresql.conf or in the data_directory that it names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from knobs.catalogue import Settings
from knobs.errors import InvalidInput
from knobs.finding import Finding
from knobs.knob import Source
from knobs.text import decoded

FORM = 'a postgresql.conf, or JSON like {"shared_buffers": "1GB"}'
FILE_NAMES = ("postgresql.conf", "postgresql.auto.conf")
AUTO_CONF = "postgresql.auto.conf"

# CONF_FILE_MAX_DEPTH of src/include/utils/conffiles.h.
_DEPTH_MAX = 10
_BYTES_MAX = 4 * 1024 * 1024

_LETTER = r"A-Za-z_\x80-\U0010ffff"
# The token is the longest of these that fits, the first of equally long ones, as flex chooses.
_TOKENS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("blank", re.compile(r"[ \t\r]+|#.*")),
    ("word", re.compile(rf"[{_LETTER}][{_LETTER}0-9]*")),
    ("dotted", re.compile(rf"[{_LETTER}][{_LETTER}0-9]*\.[{_LETTER}][{_LETTER}0-9]*")),
    ("text", re.compile(r"'(?:[^'\\]|\\.|'')*'")),
    ("bare", re.compile(rf"[{_LETTER}][{_LETTER}0-9\-._:/]*")),
    ("number", re.compile(r"[+-]?[0-9]+[A-Za-z]*")),
    ("number", re.compile(r"[+-]?0x[0-9a-fA-F]+[A-Za-z]*")),
    ("number", re.compile(r"[+-]?[0-9]*\.[0-9]*(?:[eE][+-]?[0-9]+)?")),
    ("equals", re.compile(r"=")),
)
_ESCAPE = re.compile(r"''|\\([0-7]{1,3}|.)")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_FIRST_LINE = re.compile(rf"\s*[{_LETTER}][{_LETTER}0-9.$]*(\s*=\s*|\s+)[^\s=;][^;]*")


@dataclass(frozen=True)
class Assignment:
    """One `name = value` of a file; the name as it is written there, in lower case."""

    name: str
    value: str
    source: Source


@dataclass(frozen=True)
class ConfFile:
    """What a postgresql.conf states with all that it includes: the last of each name."""

    assignments: tuple[Assignment, ...]
    findings: tuple[Finding, ...] = ()
    origins: dict[str, Source] = field(default_factory=dict)

    def settings(self, _part: str = "", /) -> Settings:
        """The value of each name; this file has no parts."""
        return {assignment.name: assignment.value for assignment in self.assignments}


def recognises(text: str) -> bool:
    """Whether the text looks like a postgresql.conf: its first line that is no comment states something."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), None)
    return first is None or _FIRST_LINE.fullmatch(first.partition("#")[0].strip()) is not None


def parse(content: str | bytes, where: str) -> ConfFile:
    """The file at the path ``where``, whose content is given, with what it includes and what lies on top.

    Raises InvalidInput with the file and line for a syntax error, an include that is missing or leads back to
    a file that is being read.
    """
    path = Path(where)
    stated = list(_assignments(decoded(content, where), path, (path,)))
    on_top, findings = _auto_conf(path, stated)
    last: dict[str, Assignment] = {}
    for assignment in (*stated, *on_top):
        last.pop(assignment.name, None)
        last[assignment.name] = assignment
    origins = {name: assignment.source for name, assignment in last.items()}
    return ConfFile(tuple(last.values()), tuple(findings), origins)


def _assignments(text: str, path: Path, chain: tuple[Path, ...]) -> Iterator[Assignment]:
    for number, line in enumerate(text.split("\n"), start=1):
        found = _statement(line, f"{path}:{number}")
        if found is None:
            continue
        name, value = found
        source = Source(str(path), number)
        if name in ("include", "include_if_exists", "include_dir"):
            yield from _included(name, value, source, chain)
        else:
            yield Assignment(name, value, source)


def _statement(line: str, where: str) -> tuple[str, str] | None:
    """Name and value of a line; None of one that states nothing."""
    tokens = list(_tokens(line, where))
    if not tokens:
        return None
    kind, name = tokens[0]
    if kind not in ("word", "dotted"):
        raise _syntax(where, name, "a line begins with the name of a setting")
    rest = tokens[2:] if len(tokens) > 1 and tokens[1][0] == "equals" else tokens[1:]
    if not rest:
        raise _syntax(where, name, "a value is missing after it")
    kind, value = rest[0]
    if kind not in ("text", "number", "word", "bare"):
        raise _syntax(where, value, "put the value in single quotes")
    if len(rest) > 1:
        raise _syntax(where, rest[1][1], "put a value with blanks or signs in single quotes")
    return name.lower(), _unquoted(value) if kind == "text" else value


def _tokens(line: str, where: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(line):
        fitting = [(kind, found[0]) for kind, token in _TOKENS if (found := token.match(line, position))]
        if not fitting:
            if line[position] == "'":
                raise InvalidInput(
                    "the quote is not terminated", where=where, hint="end it with ' in the same line"
                )
            raise _syntax(where, line[position], "put a value with blanks or signs in single quotes")
        kind, text = max(fitting, key=lambda found: len(found[1]))
        position += len(text)
        if kind != "blank":
            yield kind, text


def _unquoted(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escaped: str | None = match[1]
        if escaped is None:
            return "'"
        if escaped[0] in "01234567":
            return chr(int(escaped, 8) & 0xFF)
        return _ESCAPES.get(escaped, escaped)

    return _ESCAPE.sub(plain, text[1:-1])


def _included(kind: str, value: str, source: Source, chain: tuple[Path, ...]) -> Iterator[Assignment]:
    where = str(source)
    if not value:
        raise InvalidInput(f"{kind} names no file", where=where, hint="name one, or remove the line")
    target = Path(source.file).parent / value
    if kind == "include_dir":
        if not target.is_dir():
            raise InvalidInput(
                f"the folder {target} is not there", where=where, hint="make it, or remove the line"
            )
        files = sorted(file for file in target.glob("*.conf") if _is_taken(file))
    else:
        if kind == "include_if_exists" and not target.exists():
            return
        files = [target]
    for file in files:
        yield from _assignments(_content(file, where), file, _lengthened(chain, file, where))


def _is_taken(file: Path) -> bool:
    return not file.name.startswith(".") and not file.is_dir()


def _lengthened(chain: tuple[Path, ...], file: Path, where: str) -> tuple[Path, ...]:
    """The files that are being read, with one more. Raises InvalidInput where that closes a loop."""
    longer = (*chain, file)
    names = " -> ".join(str(link) for link in longer)
    if file.resolve() in {link.resolve() for link in chain}:
        raise InvalidInput(
            f"the includes are a loop: {names}", where=where, hint="remove one of these includes"
        )
    if len(longer) > _DEPTH_MAX + 1:
        raise InvalidInput(
            f"the includes are more than {_DEPTH_MAX} deep: {names}", where=where, hint="flatten them"
        )
    return longer


def _content(file: Path, where: str) -> str:
    try:
        if not file.is_file():
            raise InvalidInput(f"{file} is no file", where=where, hint="include a file that is there")
        if file.stat().st_size > _BYTES_MAX:
            raise InvalidInput(
                f"{file} is too large for a configuration", where=where, hint="is it another file?"
            )
        raw = file.read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"cannot read {file}: {error.strerror}", where=where, hint="include a file that can be read"
        ) from error
    # An included file may be empty.
    return decoded(raw, str(file)) if raw.strip() else ""


def _auto_conf(path: Path, stated: list[Assignment]) -> tuple[list[Assignment], list[Finding]]:
    """What ALTER SYSTEM wrote for this file's cluster, and a finding that it was read, or could not be."""
    if path.name != "postgresql.conf":
        return [], []
    named = [Path(a.value) for a in stated if a.name == "data_directory" and a.value]
    for folder in (*reversed(named), path.parent):
        file = folder / AUTO_CONF
        try:
            if not file.is_file():
                continue
            found = list(_assignments(_content(file, str(path)), file, (file,)))
        except (OSError, InvalidInput) as error:
            if isinstance(error, InvalidInput) and not isinstance(error.__cause__, OSError):
                raise
            return [], [_noticed("auto-conf-unread", file, f"it cannot be read: {error}")]
        return found, [
            _noticed("auto-conf-read", file, "what ALTER SYSTEM wrote lies on top")
        ] if found else []
    return [], []


def _noticed(rule: str, file: Path, why: str) -> Finding:
    return Finding(rule, AUTO_CONF, str(file), "", "nothing", why, str(file))


def _syntax(where: str, token: str, hint: str) -> InvalidInput:
    return InvalidInput(f"syntax error near '{token}'", where=where, hint=hint)
