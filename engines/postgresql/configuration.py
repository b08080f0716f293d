"""A candidate's settings as a postgresql.conf, and the settings that are duratune's own.

A candidate keeps its tuning values. What names a path, a host, a port, a command or a library, and where
messages go, belongs to the private cluster: such a setting is left out of the file, and a finding tells it
(`override_findings`). duratune's own values stand on the server's command line, which beats postgresql.conf
and what ALTER SYSTEM may say later (manual, "Setting Parameters"); what a role or a database sets for its
sessions comes after both, and only a connection's own options after that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engines.postgresql.server_log import LINE_PREFIX
from knobs.catalogue import Settings
from knobs.errors import InvalidInput
from knobs.finding import Failure, Finding

STANDBY_NAMES = "synchronous_standby_names"
PORT = 5432
"""Of the socket's name only: there is no TCP, and each server has a folder of its own."""

SOCKET_PATH_BYTES_MAX = 107
"""struct sockaddr_un has 108 bytes for the path and its closing zero (unix(7))."""

_OWN: Mapping[str, str] = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_group": "",
    "unix_socket_permissions": "0700",
    "bonjour": "off",
    "ssl": "off",
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_line_prefix": LINE_PREFIX,
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "log_error_verbosity": "default",
    "lc_messages": "C",
    "archive_mode": "off",
    "archive_command": "",
    "restore_command": "",
    "archive_cleanup_command": "",
    "recovery_end_command": "",
    "primary_conninfo": "",
    "primary_slot_name": "",
    "shared_preload_libraries": "",
    "session_preload_libraries": "",
    "local_preload_libraries": "",
    "dynamic_shared_memory_type": "posix",
    "synchronous_standby_names": "",
}

_OF_EACH_START = ("unix_socket_directories", "cluster_name")
"""Settings of which every start has a value of its own."""

# What a setting is that the candidate may not have, by its name; the first that fits.
_PRIVATE: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (what, re.compile(pattern))
    for what, pattern in (
        (
            "names a path",
            r"data_directory|config_file|hba_file|ident_file|external_pid_file|stats_temp_directory"
            r"|promote_trigger_file|log_directory|log_filename|krb_server_keyfile|hosts_file",
        ),
        (
            "names an address",
            r"listen_addresses|port|bonjour(_name)?|unix_socket_.*|primary_(conninfo|slot_name)|cluster_name",
        ),
        ("belongs to TCP connections", r"ssl(_.*)?|oauth_validator_libraries"),
        (
            "names a command",
            r"archive_(mode|command|library|cleanup_command)|restore_command|recovery_end_command",
        ),
        (
            "names a library",
            r".*_preload_libraries|dynamic_library_path|extension_control_path|jit_provider",
        ),
        (
            "says where messages go",
            r"logging_collector|log_destination|log_line_prefix|log_timezone|log_min_messages"
            r"|log_error_verbosity|log_file_mode|log_(rotation_.*|truncate_on_rotation)|syslog_.*"
            r"|event_source|lc_messages",
        ),
        (
            "says where shared memory is kept, which duratune must find after a kill",
            r"dynamic_shared_memory_type",
        ),
        ("lets commits wait for a standby, and a private cluster has none", r"synchronous_standby_names"),
    )
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)*")


@dataclass(frozen=True)
class Configuration:
    """What a server is started with: the file's text, and the command line's settings over it."""

    text: str
    sockets: Path
    proposed: Mapping[str, str]
    own: Mapping[str, str]

    def arguments(self) -> list[str]:
        """The command line's settings, as `postgres` takes them."""
        return [part for name, value in self.own.items() for part in ("-c", f"{name}={value}")]


def configure(settings: Settings, sockets: Path, cluster_name: str) -> Configuration:
    """The configuration of a private cluster with these settings.

    Raises InvalidInput, naming every fault, for a name or value that a postgresql.conf cannot hold, and
    for a socket path of more than 107 bytes.
    """
    refuse_long_socket_path(sockets)
    refuse_unwritable(settings)
    own = {**_OWN, "unix_socket_directories": _listed(sockets), "cluster_name": cluster_name}
    proposed = {name: value for name, value in settings.items() if _private(name) is None}
    return Configuration(render(proposed), sockets, proposed, own)


def render(settings: Settings) -> str:
    """The text of a postgresql.conf with these settings, in their order."""
    lines = [f"{name} = {_quoted(value)}\n" for name, value in settings.items()]
    return "# Written by duratune.\n" + "".join(lines)


def socket_path(sockets: Path) -> Path:
    """The socket that the server makes in this folder."""
    return sockets / f".s.PGSQL.{PORT}"


def refuse_long_socket_path(sockets: Path) -> None:
    """Raises InvalidInput if the socket's path in this folder is longer than the kernel takes."""
    path = str(socket_path(sockets))
    length = len(path.encode())
    if length > SOCKET_PATH_BYTES_MAX:
        raise InvalidInput(
            f"the path of a Unix socket has at most {SOCKET_PATH_BYTES_MAX} bytes, this one {length}",
            where=path,
            hint="set TMPDIR to a folder with a shorter path",
        )


def _private(name: str) -> str | None:
    for what, pattern in _PRIVATE:
        if pattern.fullmatch(name.lower()):
            return what
    return None


def taken(settings: Mapping[str, str]) -> Settings:
    """The settings as a private cluster runs with them: what is duratune's own has duratune's value.

    Without those that have the server's default there, or a value of each start's own.
    """
    found: Settings = {}
    for name, value in settings.items():
        used = value if _private(name) is None else _OWN.get(name.lower())
        if used is not None:
            found[name] = used
    return found


def override_findings(settings: Mapping[str, str]) -> list[Finding]:
    """A finding for each setting that a private cluster does not take from a candidate.

    It has no standby, so a commit would wait for ever: it runs with the names of standbys empty, and what
    they promise of a failover is unknown.
    """
    found = []
    for name, value in settings.items():
        reason = _private(name)
        own = _OWN.get(name.lower())
        if reason is None or own == value:
            continue
        used = "the server's default is used"
        if own is not None:
            used = f"'{value}' was asked for, '{own}' is used"
        if name.lower() in _OF_EACH_START:
            used = "one of duratune's is used"
        loss = "nothing"
        if name.lower() == STANDBY_NAMES and value.strip():
            loss = "what a failover loses is unknown: a private cluster has no standby"
        failure: Failure = "failover" if loss != "nothing" else ""
        why = f"it {reason}; {used} in the private cluster"
        found.append(Finding("overridden", name, value, failure, loss, why, "duratune"))
    return found


def refuse_unwritable(settings: Mapping[str, str]) -> None:
    """Raises InvalidInput, naming every fault, for a name or value that a postgresql.conf cannot hold."""
    faults = [f"'{name}' is no name of a setting" for name in settings if not _NAME.fullmatch(name)]
    faults += [f"the value of {name} holds a zero byte" for name, value in settings.items() if "\0" in value]
    if faults:
        raise InvalidInput("; ".join(faults), where="postgresql.conf")


def _quoted(value: str) -> str:
    """A value as a quoted string: quotes doubled, backslashes and line ends escaped (guc-file.l)."""
    inner = value.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{inner}'"


def _listed(folder: Path) -> str:
    """A folder as the only item of a list; one with a comma, space or quote in it is quoted."""
    text = str(folder)
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if re.search(r'[\s,"]', text) else text
