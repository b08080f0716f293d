"""Generates the catalogue data of a PostgreSQL server: `python -m knobs.postgresql.snapshot BINDIR [SOURCE]`.

Everything but two things is what the server itself says in pg_settings: a private cluster is made with
initdb, asked once in single-user mode, and removed. `postgres --describe-config` would need no cluster, but
prints uninitialised values instead of the defaults (15.18: fsync FALSE). The two things: enum spellings that
a server takes and does not list are found by trying words, and the page of the manual follows from the
category. The data ships, so that static checks need no server; a test compares it with the installed one.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from knobs.errors import MachineLacks, Undecided
from knobs.postgresql.server import ask, major_of, version_text

FOLDER = Path(__file__).parent / "snapshots"

# What a running server answers too: rows for `from_rows`. Flags exist from 15 on and are not needed.
QUERY = (
    "SELECT name, vartype, coalesce(unit, '') AS unit, context, min_val, max_val, enumvals, "
    "coalesce(boot_val, '') AS boot_val, category, short_desc, coalesce(extra_desc, '') AS extra_desc "
    "FROM pg_settings WHERE position('.' in name) = 0 ORDER BY name"
)

# Category, or the part before " / ", -> page of the manual. Checked against the manual by the tests.
PAGES: dict[str, str] = {
    "Autovacuum": "autovacuum",
    "Client Connection Defaults": "client",
    "Connections and Authentication": "connection",
    "Customized Options": "custom",
    "Developer Options": "developer",
    "Error Handling": "error-handling",
    "File Locations": "file-locations",
    "Lock Management": "locks",
    "Preset Options": "preset",
    "Process Title": "logging",
    "Query Tuning": "query",
    "Replication": "replication",
    "Reporting and Logging": "logging",
    "Resource Usage": "resource",
    "Statistics": "statistics",
    "Vacuuming": "vacuum",
    "Version and Platform Compatibility": "compatible",
    "Write-Ahead Log": "wal",
}

# Described together with others, under no anchor of their own (15's manual).
_WITHOUT_ANCHOR = frozenset(
    {
        *("debug_print_parse", "debug_print_rewritten", "debug_print_plan", "debug_pretty_print"),
        *("log_statement_stats", "log_parser_stats", "log_planner_stats", "log_executor_stats"),
    }
)

# Debian's own addition.
_NOT_IN_THE_MANUAL = frozenset({"extension_destdir"})

# Words of the enums that no server lists although it takes them, and those that stand for on and off.
_WORDS = (
    *("true", "false", "yes", "no", "1", "0", "on", "off"),
    *("debug", "info", "archive", "hot_standby", "md5", "none", "auto"),
)

# Settings that initdb's postgresql.conf states: what people who changed nothing run with.
INITDB_STATES = (
    "dynamic_shared_memory_type",
    "max_connections",
    "max_wal_size",
    "min_wal_size",
    "shared_buffers",
)


def generate(bindir: Path, source: str) -> dict[str, Any]:
    """The snapshot of the server in ``bindir``; ``source`` says in words where that server came from.

    Raises MachineLacks without a server or an unprivileged user, Undecided if the server does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="duratune-snapshot-") as scratch:
        folder = Path(scratch)
        user = _unprivileged(folder)
        data = folder / "data"
        _run(
            [
                str(bindir / "initdb"),
                "-D",
                str(data),
                "-U",
                "duratune",
                "--no-sync",
                "--no-locale",
                "-E",
                "UTF8",
            ],
            user,
        )
        answer = folder / "settings.json"
        command = f"COPY (SELECT json_agg(t) FROM ({QUERY}) t) TO '{answer}'\n"
        _run([str(bindir / "postgres"), "--single", "-D", str(data), "template1"], user, command)
        rows = json.loads(copied(answer.read_text(encoding="utf-8")))
        stated = _stated(data / "postgresql.conf")
    return from_rows(rows, version_text(bindir), source, _hidden(bindir, rows), stated)


def from_rows(
    rows: Iterable[Mapping[str, Any]],
    version: str,
    source: str,
    hidden: Mapping[str, Mapping[str, str]] | None = None,
    initdb: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The snapshot made of the rows of QUERY, as a running server answers them."""
    return {
        "schema": 1,
        "engine": "postgresql",
        "version": version,
        "source": source,
        "initdb": dict(initdb or {}),
        "settings": [_entry(row, (hidden or {}).get(row["name"], {})) for row in rows],
    }


def render(snapshot: Mapping[str, Any]) -> str:
    """The snapshot as the text that ships: one setting a line, so that versions can be compared."""
    head = {key: value for key, value in snapshot.items() if key != "settings"}
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in snapshot["settings"])
    return f'{json.dumps(head, ensure_ascii=False)[:-1]}, "settings": [\n{lines}\n]}}\n'


def anchor(name: str, category: str) -> str:
    """Page and anchor of the manual for a setting, "" where the category has no page of its own."""
    page = PAGES.get(category.partition(" / ")[0])
    if page is None or name in _NOT_IN_THE_MANUAL:
        return ""
    if name in _WITHOUT_ANCHOR:
        return f"runtime-config-{page}.html"
    # The manual spells this one as no other.
    word = "PLAN-CACHE_MODE" if name == "plan_cache_mode" else name.upper().replace("_", "-")
    return f"runtime-config-{page}.html#GUC-{word}"


def _entry(row: Mapping[str, Any], hidden: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": row["name"],
        "vartype": row["vartype"],
        "unit": row["unit"],
        "context": row["context"],
        "min": row["min_val"],
        "max": row["max_val"],
        "enumvals": list(row["enumvals"] or ()),
        "hidden": dict(hidden),
        "boot": row["boot_val"],
        "category": row["category"],
        "short_desc": row["short_desc"],
        "extra_desc": row["extra_desc"],
        "anchor": anchor(row["name"], row["category"]),
    }


def copied(text: str) -> str:
    """The text that COPY wrote, without COPY's own escapes."""
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t", "r": "\r"}.get(found[1], found[1]), text)


def _stated(file: Path) -> dict[str, str]:
    """What initdb wrote, of the settings that do not depend on the host's locale."""
    found = re.findall(r"^(\w+) = ('[^']*'|\S+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: value.strip("'") for name, value in found if name in INITDB_STATES}


def _hidden(bindir: Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Spellings of an enum that the server prints as another value, listed or not, with that value.

    One run tries a word on every enum: a server names every setting of its file that it refuses.
    """
    enums = {row["name"]: list(row["enumvals"]) for row in rows if row["vartype"] == "enum"}
    usable = {name: values for name, values in enums.items() if not _is_unfixed(rows, name)}
    words = sorted({*_WORDS, *(value for values in usable.values() for value in values if value)})
    found: dict[str, dict[str, str]] = {}
    for word in words:
        asked = list(usable)
        refused = ask(bindir, dict.fromkeys(asked, word), "port").error
        for name in asked:
            if f'"{name}"' in refused:
                continue
            answer = ask(bindir, {name: word}, name)
            is_itself = answer.value == word and word in usable[name]
            if answer.value is not None and not is_itself:
                found.setdefault(name, {})[word] = answer.value
    return found


def _is_unfixed(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Whether no file can set it, or each transaction begins with its own value of it."""
    return name == "transaction_isolation" or any(
        row["name"] == name and row["context"] == "internal" for row in rows
    )


def _unprivileged(folder: Path) -> str | None:
    """The user to run the server as; None where we are no root ourselves. ``folder`` becomes theirs."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        return name
    raise MachineLacks(
        "PostgreSQL refuses to run as root and there is no other user",
        where="snapshot",
        hint="run it as a user",
    )


def _run(command: list[str], user: str | None, text: str = "") -> None:
    done = subprocess.run(
        command,
        input=text,
        capture_output=True,
        encoding="utf-8",
        user=user,
        group=_group(user),
        env={"LC_ALL": "C"},
        cwd="/",
    )
    if done.returncode != 0 or "ERROR:" in done.stderr:
        raise Undecided(
            done.stderr.strip().splitlines()[-1] if done.stderr else "no answer", where=command[0]
        )


def _group(user: str | None) -> int | None:
    return None if user is None else pwd.getpwnam(user).pw_gid


def main(arguments: list[str]) -> int:
    """Writes the snapshot of the server in BINDIR beside this module, under its major version."""
    bindir = Path(arguments[0])
    source = arguments[1] if len(arguments) > 1 else f"PostgreSQL {version_text(bindir)}"
    snapshot = generate(bindir, source)
    file = FOLDER / f"{major_of(snapshot['version'])}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(render(snapshot), encoding="utf-8")
    print(f"{file}: {len(snapshot['settings'])} settings of PostgreSQL {snapshot['version']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
