"""Names of settings: what a private cluster never takes over from a CONFIG, and old names.

Old names that a server still maps are in its guc.c (map_old_guc_names); those that were removed are in the
release notes of the version that removed them.
"""

from __future__ import annotations

import re

# What a private cluster states itself: places, network, commands, libraries, identity, log destinations.
OUTSIDE = frozenset(
    {
        # Places.
        *("data_directory", "config_file", "hba_file", "ident_file", "external_pid_file"),
        *("stats_temp_directory", "default_tablespace", "temp_tablespaces"),
        # Network and who may come in.
        *("listen_addresses", "port", "bonjour", "bonjour_name", "krb_server_keyfile", "db_user_namespace"),
        *("krb_caseins_users", "gss_accept_delegation"),
        # Commands, and the mode that waits for one.
        *("archive_mode", "archive_library"),
        # Libraries and where they are looked for.
        *("shared_preload_libraries", "session_preload_libraries", "local_preload_libraries"),
        *("jit_provider", "dynamic_library_path", "extension_control_path", "extension_destdir"),
        *("output_plugin_libraries", "oauth_validator_libraries"),
        # Another server, and recovery to somewhere: both need files beside the data that we do not make.
        *("primary_conninfo", "primary_slot_name", "promote_trigger_file"),
        # Identity, and where the log goes.
        *("cluster_name", "event_source", "log_destination", "logging_collector", "log_directory"),
        *("log_filename", "log_file_mode", "log_rotation_age", "log_rotation_size"),
        "log_truncate_on_rotation",
    }
)

OUTSIDE_WHY = "a path, address, command, library or log destination: the private cluster keeps its own"
EXTENSION_WHY = (
    "a name with a dot is an extension's or an application's own, and is left unset: the private cluster "
    "loads no library that reads it; a script that does needs ALTER ROLE ALL SET (--init-sql)"
)

_OUTSIDE_PATTERN = re.compile(
    r"ssl|ssl_.*|unix_socket_.*|syslog_.*|.*_command|recovery_target|recovery_target_.*|.*_command_supports_reload"
)

# An old name that the servers of 13 to 18 still take, where they do not have it as a setting of its own.
OLD_NAMES = {
    "sort_mem": "work_mem",
    "vacuum_mem": "maintenance_work_mem",
    "ssl_ecdh_curve": "ssl_groups",
}

# Name -> (the version that removed it, what took its place), for those that 13 no longer has or that have a
# new name.
GONE: dict[str, tuple[str, str]] = {
    "force_parallel_mode": ("16", "debug_parallel_query"),
    "checkpoint_segments": ("9.5", "max_wal_size"),
    "wal_keep_segments": ("13", "wal_keep_size"),
    "ssl_renegotiation_limit": ("9.5", ""),
    "custom_variable_classes": ("9.2", ""),
    "unix_socket_directory": ("9.3", "unix_socket_directories"),
    "replication_timeout": ("9.3", "wal_sender_timeout"),
    "max_fsm_pages": ("8.4", ""),
    "max_fsm_relations": ("8.4", ""),
    "sql_inheritance": ("10", ""),
    "min_parallel_relation_size": ("10", "min_parallel_table_scan_size"),
    "replacement_sort_tuples": ("11", ""),
    "standby_mode": ("12", "a standby.signal file"),
    "trigger_file": ("12", ""),
}


def is_outside(name: str) -> bool:
    """Whether a private cluster keeps its own value of the setting, whatever a CONFIG says.

    Settings of extensions are among them: no library that would read them is loaded.
    """
    return "." in name or name in OUTSIDE or _OUTSIDE_PATTERN.fullmatch(name) is not None
