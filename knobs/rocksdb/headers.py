"""Reads RocksDB's installed headers: the members of an option struct and the constants of an enum.

This is no C++ parser. It knows the shape of RocksDB's public headers: one member per statement, its
documentation in the `//` lines directly above. Statements that are functions, constructors, static
members or nested types are no members. What it reads is checked against the library by the snapshot
(every option that the library prints must have been found here, and takes a value of its type).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from knobs.errors import InvalidInput, MachineLacks


@dataclass(frozen=True, slots=True)
class Member:
    """One data member: its C++ type, the comment above it, and where it is declared."""

    name: str
    type: str
    documentation: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class _Statement:
    text: str
    line: int
    comment: str


_LINE_COMMENT = re.compile(r"//.*$")
_FUNCTION_POINTER = re.compile(r"^(?P<type>.+)\(\s*\*\s*(?P<name>\w+)\s*\)\s*\(")
_MEMBER = re.compile(r"^(?P<type>[\w:<>,\s\*&]+?[\s\*&>])(?P<name>[A-Za-z_]\w*)$")
_ENUM = re.compile(r"^enum\s+(?:class\s+)?(?P<name>\w+)")
_NO_MEMBER = re.compile(r"^(static|using|typedef|friend|template|enum|struct|class|explicit|virtual)\b")


def find_headers() -> Path:
    """The folder of RocksDB's installed headers.

    Raises MachineLacks where they are not installed.
    """
    for folder in (Path("/usr/include/rocksdb"), Path("/usr/local/include/rocksdb")):
        if (folder / "options.h").is_file():
            return folder
    raise MachineLacks(
        "RocksDB's headers are not installed",
        where="rocksdb/options.h",
        hint="install librocksdb-dev",
    )


def read_members(header: Path, struct: str) -> list[Member]:
    """The data members of ``struct``, in the order of the header.

    Raises InvalidInput if the header does not define it.
    """
    file = f"rocksdb/{header.name}"
    members: dict[str, Member] = {}
    enum_comments: dict[str, str] = {}
    previous = _Statement("", 0, "")
    for statement in _statements(header, rf"^(?:struct|class)\s+{struct}\b[^;]*$"):
        enum = _ENUM.match(statement.text)
        if enum is not None:
            enum_comments[enum["name"]] = statement.comment
        found = _member(statement.text)
        if found is None:
            continue
        type_, name = found
        comment = statement.comment or enum_comments.get(type_, "")
        if not comment and statement.line == previous.line + 1:
            comment = previous.comment  # one comment above two members that belong together
        previous = _Statement(statement.text, statement.line, comment)
        members.setdefault(name, Member(name, type_, comment, file, statement.line))
    return list(members.values())


def read_enum(header: Path, enum: str) -> tuple[str, ...]:
    """The constants of ``enum`` in the order of the header; () if the header does not define it."""
    text = "\n".join(_LINE_COMMENT.sub("", line) for line in _lines(header))
    match = re.search(rf"\benum\s+(?:class\s+)?{enum}\b[^{{;]*\{{(?P<body>[^}}]*)\}}", text)
    if match is None:
        return ()
    constants = [part.partition("=")[0].strip() for part in match["body"].split(",")]
    return tuple(name for name in constants if re.fullmatch(r"\w+", name))


def _lines(header: Path) -> list[str]:
    try:
        return header.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise MachineLacks(
            f"cannot read {header.name}: {error.strerror}", where=str(header), hint="install librocksdb-dev"
        ) from error


def _statements(header: Path, opening: str) -> list[_Statement]:
    lines = _lines(header)
    start = next((i for i, line in enumerate(lines) if re.match(opening, line)), None)
    if start is None:
        raise InvalidInput("no such struct in this header", where=str(header), hint=f"looked for {opening}")
    return _Reader(lines, start).read()


class _Reader:
    """Collects the statements at the first brace level of one struct."""

    def __init__(self, lines: list[str], start: int) -> None:
        self._lines = lines
        self._start = start
        self._depth = 0
        self._text = ""
        self._first_line = 0
        self._comment: list[str] = []
        self._statements: list[_Statement] = []

    def read(self) -> list[_Statement]:
        for index in range(self._start, len(self._lines)):
            self._take(index, self._lines[index].strip())
            if self._depth == 0 and index > self._start:
                return self._statements
        raise InvalidInput("the struct has no end", where=self._lines[self._start].strip())

    def _take(self, index: int, line: str) -> None:
        if line.startswith("//"):
            if self._depth == 1 and not self._text:
                self._comment.append(line[2:].removeprefix(" ").rstrip())
        elif not line:
            # A comment that a blank line parts from what follows is about something else.
            if self._depth == 1 and not self._text:
                self._comment = []
        elif not line.startswith("#"):
            self._take_code(index, _LINE_COMMENT.sub("", line).strip())

    def _take_code(self, index: int, code: str) -> None:
        before = self._depth
        self._depth += code.count("{") - code.count("}")
        opens_struct = before == 0 and not self._text
        if (
            opens_struct
            or (before == 1 and self._depth == 0)
            or re.fullmatch(r"(public|private|protected):", code)
        ):
            self._text, self._comment = "", []
            return
        if not self._text:
            self._first_line = index + 1
        self._text = f"{self._text} {code}".strip()
        if self._depth == 1 and (code.endswith((";", "}"))):
            comment = "\n".join(self._comment).strip()
            self._statements.append(_Statement(self._text, self._first_line, comment))
            self._text, self._comment = "", []


def _member(statement: str) -> tuple[str, str] | None:
    """Type and name, or None for a statement that declares no data member."""
    if _NO_MEMBER.match(statement) or not statement.endswith(";"):
        return None
    pointer = _FUNCTION_POINTER.match(statement)
    if pointer is not None:
        return f"{pointer['type'].strip()} (*)(...)", pointer["name"]
    declaration = re.split(r"[={]", statement.rstrip("; "), maxsplit=1)[0].strip()
    if "(" in declaration:
        return None
    match = _MEMBER.match(declaration)
    if match is None:
        return None
    return re.sub(r"\s+", " ", match["type"]).strip(), match["name"]
