"""RocksDB's OPTIONS file: reading, changing and writing it as RocksDB itself does.

The grammar is the library's: `[Section]` and `[Section "argument"]` titles, `name=value` lines, `#` starts a
comment unless a backslash stands before it, blanks around names and values mean nothing, quotes are part of
a value. Where a name stands twice in one section, RocksDB keeps the first and says nothing (seen on 7.8.3);
so do we, with a finding. We are stricter in one point: `[Version]` must come first, because a file without it
cannot say which RocksDB it was made for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from knobs.catalogue import Settings
from knobs.errors import InvalidInput
from knobs.finding import Finding
from knobs.rocksdb.catalogue import RocksdbCatalogue, load, version_key, versions
from knobs.text import decoded

FORM = 'an OPTIONS file, or JSON like {"DBOptions.max_open_files": 512}'
FILE_NAMES = ("OPTIONS-*",)

BLOCK_BASED = "BlockBasedTable"
FILE_VERSION = "1.1"

_HEADER = "# This is a RocksDB option file.\n"
_WRITTEN_BY_ROCKSDB = "This is a RocksDB option file"
_TITLE = re.compile(r'\[\s*(?P<kind>[\w/]+)(?:\s+"(?P<argument>(?:[^"\\]|\\.)*)")?\s*\]')


@dataclass(frozen=True)
class ColumnFamily:
    """One column family: its CFOptions, its table factory's name and options."""

    name: str
    options: Settings = field(default_factory=dict)
    table_factory: str = BLOCK_BASED
    table: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class OptionsFile:
    """One OPTIONS file; names are the file's own (without a section), values RocksDB's text.

    ``findings`` tells what reading it noticed and did not refuse.
    """

    rocksdb_version: str
    options_file_version: str
    db: Settings
    column_families: tuple[ColumnFamily, ...]
    findings: tuple[Finding, ...] = ()

    def column_family(self, name: str = "default") -> ColumnFamily:
        """The column family of that name; raises InvalidInput with the names that there are."""
        for family in self.column_families:
            if family.name == name:
                return family
        known = ", ".join(family.name for family in self.column_families)
        raise InvalidInput(f"no column family '{name}'", where="--cf", hint=f"the file has: {known}")

    def settings(self, column_family: str = "default") -> Settings:
        """What the file states for one column family, under full names.

        Options of another table factory than the block-based one have no full name and stay in the file.
        """
        family = self.column_family(column_family)
        stated = {f"DBOptions.{name}": value for name, value in self.db.items()}
        stated |= {f"CFOptions.{name}": value for name, value in family.options.items()}
        if family.table_factory == BLOCK_BASED:
            stated |= {f"BlockBasedTableOptions.{name}": value for name, value in family.table.items()}
        return stated

    def apply(self, settings: Mapping[str, str], column_family: str = "default") -> OptionsFile:
        """This file with ``settings`` (full names) laid over it; other column families stay as they are.

        `WriteOptions.*` and `Application.*` have no place in the file and are left out. Raises InvalidInput
        if the column family is not in the file or uses another table factory than the settings are for.
        """
        db, options, table = dict(self.db), {}, {}
        for name, value in settings.items():
            section, _, short = name.partition(".")
            if section == "DBOptions":
                db[short] = value
            elif section == "CFOptions":
                options[short] = value
            elif section == "BlockBasedTableOptions":
                table[short] = value
        changed = _change(self.column_family(column_family), options, table)
        families = tuple(changed if f.name == column_family else f for f in self.column_families)
        return replace(self, db=db, column_families=families)

    def without(self, names: Collection[str]) -> OptionsFile:
        """This file without these options (full names), in every column family."""
        sections: dict[str, set[str]] = {}
        for name in names:
            section, _, short = name.partition(".")
            sections.setdefault(section, set()).add(short)

        def kept(section: str, options: Settings) -> Settings:
            dropped = sections.get(section, set())
            return {name: value for name, value in options.items() if name not in dropped}

        families = tuple(
            replace(
                family,
                options=kept("CFOptions", family.options),
                table=kept("BlockBasedTableOptions", family.table)
                if family.table_factory == BLOCK_BASED
                else family.table,
            )
            for family in self.column_families
        )
        return replace(self, db=kept("DBOptions", self.db), column_families=families)

    def render(self) -> str:
        """The text of the file, as RocksDB accepts it."""
        lines = [
            _HEADER,
            "[Version]",
            f"  rocksdb_version={self.rocksdb_version}",
            f"  options_file_version={self.options_file_version}",
            "",
            "[DBOptions]",
            *_lines(self.db),
        ]
        for family in self.column_families:
            name = _escape(family.name)
            lines += ["", f'[CFOptions "{name}"]', *_lines(family.options)]
            lines += ["", f'[TableOptions/{family.table_factory} "{name}"]', *_lines(family.table)]
        return "\n".join(lines) + "\n"


def from_default(version: str | None = None) -> OptionsFile:
    """The file of a database that nobody configured, for a shipped version (None: the newest).

    Raises InvalidInput for a version without a catalogue.
    """
    catalogue = load(version)
    family = ColumnFamily(
        "default",
        catalogue.defaults("CFOptions"),
        BLOCK_BASED,
        catalogue.defaults("BlockBasedTableOptions"),
    )
    return OptionsFile(catalogue.version, FILE_VERSION, catalogue.defaults("DBOptions"), (family,))


def parse(content: str | bytes, where: str, catalogue: RocksdbCatalogue | None = None) -> OptionsFile:
    """Reads the text of an OPTIONS file; ``where`` names it in messages.

    Without a ``catalogue`` the one of the file's own version is used where it ships, else the newest.
    Raises InvalidInput with the line of each fault: a binary, truncated or incomplete file, options that
    the version does not know (with the nearest name), sections out of order or twice.
    """
    return _Parser(decoded(content, where), where, catalogue).parse()


def recognises(content: str) -> bool:
    """Whether the text looks like an OPTIONS file (its first statement is a section title)."""
    for line in content.splitlines():
        statement = _uncommented(line)
        if statement:
            return _TITLE.fullmatch(statement) is not None
    return False


def _change(family: ColumnFamily, options: Settings, table: Settings) -> ColumnFamily:
    factory = options.get("table_factory", family.table_factory)
    if table and factory != BLOCK_BASED:
        raise InvalidInput(
            f"column family '{family.name}' uses the table factory {factory}",
            where=", ".join(f"BlockBasedTableOptions.{name}" for name in table),
            hint=f"leave these out, or set CFOptions.table_factory={BLOCK_BASED}",
        )
    kept = family.table if factory == family.table_factory else {}
    return ColumnFamily(family.name, {**family.options, **options}, factory, {**kept, **table})


def _lines(options: Settings) -> list[str]:
    return [f"  {name}={_escape(value)}" for name, value in options.items()]


def _escape(value: str) -> str:
    return re.sub(r"[\\#\n\r]", lambda m: "\\" + {"\n": "n", "\r": "r"}.get(m[0], m[0]), value)


def _unescape(value: str) -> str:
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "r": "\r"}.get(m[1], m[1]), value)


def _uncommented(line: str) -> str:
    for match in re.finditer("#", line):
        if match.start() == 0 or line[match.start() - 1] != "\\":
            return line[: match.start()].strip()
    return line.strip()


@dataclass
class _Section:
    kind: str
    argument: str
    line: int
    options: Settings = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


class _Parser:
    """One reading of one file: sections first, then their order, then their names."""

    def __init__(self, text: str, where: str, catalogue: RocksdbCatalogue | None) -> None:
        self._text = text
        self._where = where
        self._catalogue = catalogue
        self._faults: list[str] = []
        self._hint = "RocksDB writes such a file itself: OPTIONS-nnnnnn in the database folder"
        self._findings: list[Finding] = []
        self._sections: list[_Section] = []

    def parse(self) -> OptionsFile:
        self._read()
        self._check_whole()
        self._stop_if_faulty()
        self._check_order()
        self._stop_if_faulty()
        version = self._sections[0].options.get("rocksdb_version", "")
        catalogue = self._catalogue or load(version if version in versions() else None)
        self._check_names(catalogue, version)
        self._stop_if_faulty()
        return self._assemble(version)

    def _stop_if_faulty(self) -> None:
        if self._faults:
            raise InvalidInput("; ".join(self._faults), where=self._where, hint=self._hint)

    def _read(self) -> None:
        for number, line in enumerate(self._text.split("\n"), start=1):
            statement = _uncommented(line)
            if not statement:
                continue
            if statement.startswith("["):
                self._open_section(number, statement)
            elif not self._sections:
                self._faults.append(f"line {number} stands before the first section")
            else:
                self._take_option(number, statement)

    def _open_section(self, number: int, statement: str) -> None:
        match = _TITLE.fullmatch(statement)
        if match is None:
            self._faults.append(f"line {number}: '{statement}' is no section title")
            # What follows belongs to no known section; an own one keeps its lines out of the last.
            self._sections.append(_Section("?", "", number))
            return
        self._sections.append(_Section(match["kind"], _unescape(match["argument"] or ""), number))

    def _take_option(self, number: int, statement: str) -> None:
        name, equals, value = (part.strip() for part in statement.partition("="))
        section = self._sections[-1]
        if not equals or not name:
            self._faults.append(f"line {number}: '{statement}' is no name=value")
        elif name in section.options:
            first = section.lines[name]
            self._findings.append(
                Finding(
                    "given-twice",
                    name,
                    _unescape(value),
                    "",
                    "nothing",
                    f"line {number} repeats line {first} ({section.options[name]}); RocksDB keeps the first",
                    f"{self._where}:{number}",
                )
            )
        else:
            section.options[name] = _unescape(value)
            section.lines[name] = number

    def _check_whole(self) -> None:
        """A file that RocksDB wrote ends with a line end and with the last family's table options."""
        if _WRITTEN_BY_ROCKSDB not in self._text:
            return
        last = self._text.count("\n") + 1
        cut = not self._text.endswith("\n")
        if cut or (self._sections and not self._sections[-1].kind.startswith("TableOptions/")):
            self._faults = [f"the file is truncated: it ends at line {last} in the middle"]
            self._hint = "copy it again from the database folder"

    def _check_order(self) -> None:
        kinds = [section.kind for section in self._sections]
        if kinds[0] != "Version":
            self._faults.append(f"line {self._sections[0].line}: the first section must be [Version]")
        if "DBOptions" not in kinds:
            self._faults.append("there is no [DBOptions] section")
        families = [section for section in self._sections if section.kind == "CFOptions"]
        if not families:
            self._faults.append('there is no [CFOptions "default"] section')
        elif families[0].argument != "default":
            self._faults.append(f'line {families[0].line}: the first CFOptions section must be "default"')
        seen: dict[tuple[str, str], int] = {}
        for section in self._sections:
            self._check_section(section, seen)

    def _check_section(self, section: _Section, seen: dict[tuple[str, str], int]) -> None:
        title = f"{section.kind} {section.argument}".strip()
        is_table = section.kind.startswith("TableOptions/")
        if section.kind not in ("Version", "DBOptions", "CFOptions") and not is_table:
            self._faults.append(f"line {section.line}: there is no section '{title}' in an OPTIONS file")
            return
        key = ("TableOptions" if is_table else section.kind, section.argument)
        if key in seen:
            self._faults.append(
                f"line {section.line}: section '{title}' stands twice (first in line {seen[key]})"
            )
        seen.setdefault(key, section.line)
        if is_table and ("CFOptions", section.argument) not in seen:
            self._faults.append(f"line {section.line}: '{title}' has no CFOptions section before it")

    def _check_names(self, catalogue: RocksdbCatalogue, version: str) -> None:
        if not re.fullmatch(r"\d+(\.\d+)*", version):
            self._faults.append(f"line {self._sections[0].line}: rocksdb_version='{version}' is no version")
            return
        unknown = [
            f"line {section.lines[name]}: {_unknown(catalogue, section.kind, name)}"
            for section in self._sections
            for name in section.options
            if not _is_known(catalogue, section.kind, name)
        ]
        self._faults += unknown
        if unknown and version_key(version) > version_key(catalogue.version):
            self._faults.insert(0, f"the file is of RocksDB {version}, newer than {catalogue.version}")
            self._hint = "remove these options, or use the RocksDB that wrote the file"
        elif unknown:
            self._hint = "`duratune knobs rocksdb` lists every name"

    def _assemble(self, version: str) -> OptionsFile:
        families: dict[str, ColumnFamily] = {}
        db: Settings = {}
        for section in self._sections:
            if section.kind == "DBOptions":
                db = section.options
            elif section.kind == "CFOptions":
                factory = section.options.get("table_factory", BLOCK_BASED)
                families[section.argument] = ColumnFamily(section.argument, section.options, factory)
            elif section.kind.startswith("TableOptions/"):
                factory = section.kind.partition("/")[2]
                families[section.argument] = replace(
                    families[section.argument], table_factory=factory, table=section.options
                )
        file_version = self._sections[0].options.get("options_file_version", FILE_VERSION)
        return OptionsFile(version, file_version, db, tuple(families.values()), tuple(self._findings))


_SECTION_OF_KIND = {
    "DBOptions": "DBOptions",
    "CFOptions": "CFOptions",
    f"TableOptions/{BLOCK_BASED}": "BlockBasedTableOptions",
}


def _is_known(catalogue: RocksdbCatalogue, kind: str, name: str) -> bool:
    section = _SECTION_OF_KIND.get(kind)
    if section is None:  # Version, and table factories that the catalogue does not describe
        return kind != "Version" or name in ("rocksdb_version", "options_file_version")
    return catalogue.has(f"{section}.{name}")


def _unknown(catalogue: RocksdbCatalogue, kind: str, name: str) -> str:
    section = _SECTION_OF_KIND.get(kind, kind)
    near = catalogue.nearest(name)
    exact = next((full for full in near if full.partition(".")[2] == name), None)
    if exact is not None and exact.partition(".")[0] == section:
        return f"RocksDB reads no {name} from an OPTIONS file, only a program can set it"
    if exact is not None:
        return f"{name} is no option of {section}, it belongs to {exact.partition('.')[0]}"
    closest = f"; nearest: {', '.join(near)}" if near else ""
    return f"RocksDB {catalogue.version} has no {section}.{name}{closest}"
