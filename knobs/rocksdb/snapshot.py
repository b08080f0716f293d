"""Generates the catalogue data of the installed RocksDB: `python -m knobs.rocksdb.snapshot [FILE]`.

Names and defaults are what the library prints; types and documentation come from the headers; every
type is checked by setting values of it and reading them back. Names that the library takes but neither
prints nor documents (deprecated ones) are found by asking it about every word in its own binary. The
snapshot ships as data, so that static checks need neither library nor headers; a test compares it with
the installed library.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from knobs import native
from knobs.errors import MachineLacks, Undecided
from knobs.rocksdb import headers, library
from knobs.rocksdb.values import INTEGER_TYPES

FOLDER = Path(__file__).parent / "snapshots"

SECTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "DBOptions": (("options.h", "DBOptions"),),
    "CFOptions": (
        ("options.h", "ColumnFamilyOptions"),
        ("advanced_options.h", "AdvancedColumnFamilyOptions"),
    ),
    "BlockBasedTableOptions": (("table.h", "BlockBasedTableOptions"),),
    "WriteOptions": (("options.h", "WriteOptions"),),
}

_ENUM_HEADERS = (
    "options.h",
    "advanced_options.h",
    "table.h",
    "env.h",
    "universal_compaction.h",
    "compression_type.h",
)

# WriteOptions have no parser in the library; its header names the only two that are allowed.
_WRITE_CHOICES = {"rate_limiter_priority": ("IO_USER", "IO_TOTAL")}

# Values to check a type with where the library itself would change or choke on the ordinary ones (7.8.3):
# it allocates num_levels numbers while it reads the value; the block-based table rewrites deviations
# outside 0..100, intervals below 1 and partition_filters without a two-level index; and it forgets
# write_dbid_to_manifest=true whenever it copies DBOptions.
_SAMPLES: dict[str, tuple[str, ...]] = {
    "CFOptions.num_levels": ("1", "7", "64"),
    "DBOptions.write_dbid_to_manifest": ("false",),
    "BlockBasedTableOptions.block_size_deviation": ("0", "7", "100"),
    "BlockBasedTableOptions.block_restart_interval": ("1", "7", "2147483647"),
    "BlockBasedTableOptions.index_block_restart_interval": ("1", "7", "2147483647"),
    "BlockBasedTableOptions.partition_filters": ("false",),
}

# Spellings that the library takes in option strings for members of another name (rocksdb/convenience.h).
_ALIASES = frozenset(
    {"memtable", "block_based_table_factory", "plain_table_factory", "rate_limiter_bytes_per_sec"}
)

_BYTES = re.compile(
    r"(_size|_bytes|_bytes_limit|^bytes_per_sync|_bytes_per_sync|size_base|level_base|buffer_size"
    r"|delayed_write_rate|^ttl_bytes|_size_to_maintain|bytes_per_key|size_bytes)$"
)
_UNITS = (
    (re.compile(r"(_seconds|_sec|^ttl|_time_to_roll)$"), "s"),
    (re.compile(r"(_micros|_usec|resume_retry_interval)$"), "us"),
    (re.compile(r"_MB$"), "MiB"),
    (re.compile(r"_percent$"), "%"),
    (_BYTES, "bytes"),
)


def generate() -> dict[str, Any]:
    """The snapshot of the installed library and headers.

    Raises MachineLacks where one is missing, Undecided if library and headers disagree.
    """
    printed = library.options()
    folder = headers.find_headers()
    entries: list[dict[str, Any]] = []
    for section, structs in SECTIONS.items():
        members = [m for header, struct in structs for m in headers.read_members(folder / header, struct)]
        entries += _section(section, members, printed, folder)
    _check_types(entries)
    return {
        "schema": 1,
        "engine": "rocksdb",
        "version": printed["version"],
        "linked_compressions": printed["linked_compressions"],
        "options": entries,
    }


def render(snapshot: dict[str, Any]) -> str:
    """The snapshot as the text that ships, one option per paragraph, in a stable order."""
    return json.dumps(snapshot, indent=1, ensure_ascii=False) + "\n"


def _section(
    section: str, members: list[headers.Member], printed: dict[str, Any], folder: Path
) -> list[dict[str, Any]]:
    defaults: dict[str, str] = dict(printed[section])
    if section == "BlockBasedTableOptions":
        defaults["block_cache"] = printed["block_cache_bytes"]
    by_name = {member.name: member for member in members}
    unknown = sorted(set(defaults) - set(by_name))
    if unknown:
        raise Undecided(f"the headers do not declare {', '.join(unknown)}", where=section)
    if section == "WriteOptions":
        registered, dynamic = set(defaults), set(defaults)
    else:
        registered = _registered(section, set(by_name) | set(defaults))
        dynamic = set(printed["dynamic"][section])
    names = [member.name for member in members] + sorted(registered - set(by_name))
    return [_entry(section, name, by_name.get(name), defaults, registered, dynamic, folder) for name in names]


def _entry(
    section: str,
    name: str,
    member: headers.Member | None,
    defaults: dict[str, str],
    registered: set[str],
    dynamic: set[str],
    folder: Path,
) -> dict[str, Any]:
    type_ = member.type if member is not None else ""
    unit = _unit(name, type_)
    choices = _choices(section, name, type_, folder) if name in registered else ()
    documentation = member.documentation if member is not None else ""
    return {
        "name": f"{section}.{name}",
        "type": type_,
        "kind": _kind(type_, unit, choices),
        "default": defaults.get(name, ""),
        "unit": unit,
        "choices": list(choices),
        "dynamic": name in dynamic,
        "settable": name in registered,
        "printed": name in defaults and name != "block_cache",
        "deprecated": name not in _ALIASES
        and (member is None or documentation.lower().startswith("deprecated")),
        "documentation": documentation,
        "file": member.file if member is not None else "",
        "line": member.line if member is not None else 0,
    }


def _unit(name: str, type_: str) -> str:
    if "<Cache>" in type_:
        return "bytes"
    if type_ not in INTEGER_TYPES:
        return ""
    return next((unit for pattern, unit in _UNITS if pattern.search(name)), "")


def _kind(type_: str, unit: str, choices: tuple[str, ...]) -> str:
    if choices:
        return "enum"
    if type_ == "bool":
        return "bool"
    if type_ in INTEGER_TYPES:
        return "size" if unit == "bytes" else "integer"
    if "<Cache>" in type_:
        return "size"
    return {"double": "real", "std::string": "string"}.get(
        type_, "list" if type_.startswith("std::vector") else "object"
    )


def _choices(section: str, name: str, type_: str, folder: Path) -> tuple[str, ...]:
    """The constants of the option's enum that the library takes for it, in the header's order."""
    if section == "WriteOptions":
        return _WRITE_CHOICES.get(name, ())
    if not re.fullmatch(r"\w+", type_) or type_ in INTEGER_TYPES or type_ in ("bool", "double"):
        return ()
    constants = next((c for header in _ENUM_HEADERS if (c := headers.read_enum(folder / header, type_))), ())
    answers = library.probe((section, name, constant) for constant in constants)
    return tuple(c for c, answer in zip(constants, answers, strict=True) if answer.accepted)


def _registered(section: str, names: set[str]) -> set[str]:
    words = sorted(names | _library_words())
    answers = library.probe((section, word, "") for word in words)
    return {word for word, answer in zip(words, answers, strict=True) if answer.registered}


@functools.cache
def _library_words() -> frozenset[str]:
    """Every string of the library's binary that could be an option's name; it is read once a process."""
    listed = subprocess.run(
        ["ldd", str(native.find(library.TOOL))], capture_output=True, encoding="utf-8", check=True
    )
    match = re.search(r"librocksdb\S*\s+=>\s+(\S+)", listed.stdout)
    if match is None:
        raise MachineLacks("the tool is not linked to a shared librocksdb", where=library.TOOL)
    words = re.findall(
        rb"(?<=\x00)[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*(?=\x00)", Path(match[1]).read_bytes()
    )
    return frozenset(word.decode("ascii") for word in words if 3 <= len(word) <= 64)


def _check_types(entries: list[dict[str, Any]]) -> None:
    """Sets values of each option's type and compares what the library prints for them."""
    wanted: list[tuple[str, str, str]] = []
    for entry in entries:
        section, _, name = entry["name"].partition(".")
        if entry["printed"] and section != "WriteOptions":
            wanted += [(section, name, value) for value in _samples(entry)]
    for (section, name, value), answer in zip(wanted, library.probe(wanted), strict=True):
        if not answer.accepted or answer.text != value:
            raise Undecided(
                f"the library reads {name}={value} back as {answer.text}", where=f"{section}.{name}"
            )


def _samples(entry: dict[str, Any]) -> list[str]:
    if entry["name"] in _SAMPLES:
        return list(_SAMPLES[entry["name"]])
    if entry["kind"] == "enum":
        return list(entry["choices"])
    if entry["kind"] == "bool":
        return ["true", "false"]
    if entry["kind"] == "real":
        return ["0.500000", "3.250000"]
    low, high = INTEGER_TYPES.get(entry["type"], (0, -1))
    return [str(low), "7", str(high)] if high > low else []


def main(arguments: list[str]) -> int:
    """Writes the snapshot to FILE, or beside this module under the library's version."""
    snapshot = generate()
    file = Path(arguments[0]) if arguments else FOLDER / f"{snapshot['version']}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(render(snapshot), encoding="utf-8")
    print(f"{file}: {len(snapshot['options'])} options of RocksDB {snapshot['version']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
