"""What is in force in the session that runs the load, and where it differs from what was proposed.

A setting may be proposed in postgresql.conf and yet be another in that session: ALTER SYSTEM, ALTER
DATABASE, ALTER ROLE and the connection's own options come later and win, the server sets some by itself,
and a reloaded one may wait for a restart. pg_settings tells each setting's source, as seen by the session
that asks; so it is read in a session of the load's own database, role and options.

What was proposed counts as in force if the server took it from our line of the file: it has parsed it
there, so no spelling of a value needs to be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from engines.postgresql.session import Session
from knobs.errors import Undecided

_CONFIG_FILE = "postgresql.conf"
AUTO_FILE = "postgresql.auto.conf"
"""What ALTER SYSTEM writes; read after postgresql.conf (manual, 20.1.2)."""

_SETTINGS = """
select s.name, s.setting, coalesce(s.unit, ''), s.vartype, s.context, s.source, coalesce(s.sourcefile, ''),
       coalesce(s.sourceline, 0), coalesce(s.boot_val, ''), coalesce(s.reset_val, ''), s.pending_restart
from pg_catalog.pg_settings s order by s.name
"""
_FILE_ERRORS = """
select coalesce(sourcefile, ''), coalesce(sourceline, 0), coalesce(name, ''), coalesce(setting, ''), error
from pg_catalog.pg_file_settings where error is not null order by seqno
"""
_ROLE_SETTINGS = """
select coalesce(d.datname, ''), coalesce(r.rolname, ''), c.entry
from pg_catalog.pg_db_role_setting s
left join pg_catalog.pg_database d on d.oid = s.setdatabase
left join pg_catalog.pg_roles r on r.oid = s.setrole
cross join lateral unnest(s.setconfig) as c(entry) order by 1, 2, 3
"""

_WHY: Mapping[str, str] = {
    "default": "the server uses its default",
    "environment variable": "an environment variable of the server sets it",
    "command line": "duratune sets it on the server's command line",
    "global": "a setting for all databases and roles (ALTER ROLE ALL SET) wins",
    "database": "ALTER DATABASE ... SET wins",
    "user": "ALTER ROLE ... SET wins",
    "database user": "ALTER ROLE ... IN DATABASE ... SET wins",
    "client": "an option of the connection wins",
    "override": "the server chose the value itself",
    "interactive": "it was set interactively",
    "test": "it was set by a test",
    "session": "the session has SET it",
}


@dataclass(frozen=True)
class Effective:
    """One setting as pg_settings shows it; ``value`` is in ``unit``, PostgreSQL's base unit ("8kB", "ms")."""

    name: str
    value: str
    unit: str
    type: str
    context: str
    source: str
    file: str
    line: int
    boot_value: str
    reset_value: str
    pending_restart: bool


@dataclass(frozen=True)
class FileError:
    """A line of a configuration file that the server could not apply (pg_file_settings.error)."""

    file: str
    line: int
    name: str
    value: str
    error: str


@dataclass(frozen=True)
class RoleSetting:
    """What ALTER DATABASE or ALTER ROLE adds; "" for every database, or every role."""

    database: str
    role: str
    name: str
    value: str


@dataclass(frozen=True)
class Readback:
    """Everything that is in force in one session. ``hidden`` are those that its role may not see."""

    database: str
    role: str
    settings: Mapping[str, Effective]
    file_errors: Sequence[FileError]
    role_settings: Sequence[RoleSetting]
    hidden: Sequence[str] = ()

    @property
    def pending_restart(self) -> list[str]:
        """The settings whose value in the file takes effect at the next start only."""
        return [name for name, setting in self.settings.items() if setting.pending_restart]

    def values(self) -> dict[str, str]:
        """Name -> value in the base unit."""
        return {name: setting.value for name, setting in self.settings.items()}


@dataclass(frozen=True)
class Difference:
    """A proposed setting that is not in force; ``effective`` is None where the server does not know it."""

    name: str
    proposed: str
    effective: str | None
    source: str
    why: str


def read(load: Session, superuser: Session | None = None) -> Readback:
    """What is in force in the session ``load``, opened as the load opens its own.

    ``superuser`` is asked for what only a superuser sees (files, other roles' settings, hidden ones);
    without it ``load`` must be one. Raises Undecided if a session cannot tell.
    """
    full = superuser or load
    settings = {setting.name: setting for setting in map(_effective, load.query(_SETTINGS))}
    hidden: tuple[str, ...] = ()
    if superuser is not None:
        seen = {setting.name: setting for setting in map(_effective, superuser.query(_SETTINGS))}
        hidden = tuple(sorted(set(seen) - set(settings)))
        # Where the load's session has a value, its place in the file is still the superuser's to see.
        settings = {name: _located(settings.get(name, found), found) for name, found in seen.items()}
    who = load.query("select current_database(), session_user")[0]
    return Readback(
        database=who[0] or "",
        role=who[1] or "",
        settings=settings,
        file_errors=[
            FileError(_t(f), int(_t(n)), _t(a), _t(v), _t(e)) for f, n, a, v, e in full.query(_FILE_ERRORS)
        ],
        role_settings=[_role_setting(_t(d), _t(r), _t(entry)) for d, r, entry in full.query(_ROLE_SETTINGS)],
        hidden=hidden,
    )


def compare(
    proposed: Mapping[str, str],
    readback: Readback,
    normalise: Callable[[str, str], str] | None = None,
) -> list[Difference]:
    """The proposed settings that are not in force, each with the reason.

    ``normalise`` brings a name's value into the base unit as pg_settings prints it; with it a setting
    that something else has set to the same value is no difference.
    """
    found = []
    for name, value in proposed.items():
        setting = _lookup(readback, name)
        if setting is None:
            found.append(Difference(name, value, None, "", "the server does not know this setting"))
            continue
        why = _reason(setting, readback)
        is_same = normalise is not None and normalise(name, value) == setting.value
        if why and not (is_same and not setting.pending_restart):
            found.append(Difference(name, value, setting.value, setting.source, why))
    return found


def _reason(setting: Effective, readback: Readback) -> str:
    """Why the value in force is not the one of postgresql.conf; "" if it is."""
    if setting.pending_restart:
        # pg_file_settings calls this an error too, in words that say less.
        return "it takes effect at the next start"
    for error in readback.file_errors:
        if error.name.lower() == setting.name.lower():
            return f"line {error.line} of {PurePath(error.file).name} is refused: {error.error}"
    if setting.source != "configuration file":
        why = _WHY.get(setting.source, f"its source is '{setting.source}'")
        return why + _role_named(setting, readback)
    name = PurePath(setting.file).name
    if name == _CONFIG_FILE or not setting.file:
        return ""
    return "ALTER SYSTEM wins" if name == AUTO_FILE else f"line {setting.line} of {name} wins"


def _role_named(setting: Effective, readback: Readback) -> str:
    """Which ALTER ROLE or ALTER DATABASE it is, where that is the source."""
    if setting.source not in ("global", "database", "user", "database user"):
        return ""
    for entry in readback.role_settings:
        is_of_session = entry.database in ("", readback.database) and entry.role in ("", readback.role)
        kind = {
            (False, False): "global",
            (True, False): "database",
            (False, True): "user",
            (True, True): "database user",
        }[bool(entry.database), bool(entry.role)]
        if is_of_session and kind == setting.source and entry.name.lower() == setting.name.lower():
            place = [f"role {entry.role}"] * bool(entry.role) + [f"database {entry.database}"] * bool(
                entry.database
            )
            return f" ({', '.join(place) or 'everywhere'}: {entry.name}={entry.value})"
    return ""


def _lookup(readback: Readback, name: str) -> Effective | None:
    """A setting by its name, whose case does not matter to PostgreSQL."""
    if name in readback.settings:
        return readback.settings[name]
    return next((found for key, found in readback.settings.items() if key.lower() == name.lower()), None)


def _effective(row: Sequence[str | None]) -> Effective:
    name, value, unit, kind, context, source, file, line, boot, reset, pending = map(_t, row)
    return Effective(name, value, unit, kind, context, source, file, int(line), boot, reset, pending == "t")


def _located(own: Effective, seen: Effective) -> Effective:
    """The load's own value with the file's name and line, which only a superuser is shown."""
    if own.source != seen.source or own.file:
        return own
    return Effective(**{**vars(own), "file": seen.file, "line": seen.line})


def _role_setting(database: str, role: str, entry: str) -> RoleSetting:
    name, separator, value = entry.partition("=")
    if not separator:
        raise Undecided(f"'{entry}' is no setting", where="pg_db_role_setting")
    return RoleSetting(database, role, name, value)


def _t(value: str | None) -> str:
    return value or ""
