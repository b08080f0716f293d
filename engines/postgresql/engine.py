"""PostgreSQL as the lab sees it: private clusters that duratune starts and kills; its controls."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from engines.engine import ControlSettings, LongestReplay, Replay
from engines.postgresql import binaries, configuration, replay, server_user
from engines.postgresql import cluster as clusters
from engines.postgresql.binaries import Binaries
from engines.postgresql.launch import PostgresqlLaunch, Servers
from engines.postgresql.log_reader import PostgresqlLogReader
from engines.postgresql.server_user import ServerUser
from engines.postgresql.session_settings import SessionSettings
from engines.process import Watcher
from engines.scratch import Scratch
from knobs.catalogue import Settings
from knobs.contract import Contract
from knobs.finding import Finding

# Written WAL is flushed only after a gigabyte or ten seconds, so that whatever moment is taken loses some.
_LATE = {"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}
_UNSYNCED = ControlSettings(lossy={"fsync": "off"}, honest={})
_OF_FOLDERS = ControlSettings(lossy={}, honest={}, forgets_folders=True)
_TORN = ControlSettings(lossy={"full_page_writes": "off"}, honest={})
CONTROLS: Mapping[str, ControlSettings] = {
    "cache": ControlSettings(lossy=_LATE, honest={}),
    "synced": _UNSYNCED,
    "torn": _TORN,
    "torn-512": _TORN,
    "reordered": _UNSYNCED,
    **dict.fromkeys(("synced-posix", "torn-posix", "reordered-posix"), _OF_FOLDERS),
}


@dataclass(frozen=True)
class PostgresqlEngine:
    """One installation of PostgreSQL, and the user that its servers run as.

    Without ``servers`` it is in no lab yet, and launches nothing.
    """

    binaries: Binaries
    user: ServerUser
    checksums: bool = True
    servers: Servers | None = None
    controls: Mapping[str, ControlSettings] = field(default_factory=lambda: CONTROLS)

    name: ClassVar[str] = "postgresql"
    default_contract: ClassVar[Contract] = Contract("strict")
    log_reader: ClassVar[PostgresqlLogReader] = PostgresqlLogReader()
    control_workload: ClassVar[str] = "pgbench:tpcb-like"
    stamps_in_server: ClassVar[bool] = True
    recovers_in_memory: ClassVar[bool] = True
    limit_states: ClassVar[int] = 24
    stays_down: ClassVar[Mapping[str, str]] = {"restart_after_crash": "off"}

    @property
    def major(self) -> str:
        """The major version, by which the catalogue is chosen."""
        return str(self.binaries.version.major)

    @property
    def runs_as(self) -> tuple[int, int] | None:
        """The server's user, where duratune is root."""
        return (self.user.uid, self.user.gid) if self.user.is_other else None

    def version(self) -> str:
        """The version of the programs, as they print it."""
        return str(self.binaries.version)

    def reference_settings(self, contract: Contract) -> dict[str, str]:
        """None: PostgreSQL's defaults hold every contract."""
        del contract
        return {}

    @property
    def parameters(self) -> dict[str, str]:
        """What `of_recording` must be told."""
        return {
            "bindir": str(self.binaries.folder),
            "user": self.user.name,
            "checksums": str(self.checksums).lower(),
        }

    @staticmethod
    def of_recording(folder: Path, parameters: Mapping[str, str]) -> PostgresqlEngine:
        """The engine of a recorded run. Raises as `binaries.find` and `server_user.choose` do."""
        del folder
        asked = parameters["user"] if os.geteuid() == 0 else None
        return PostgresqlEngine(
            binaries.find(Path(parameters["bindir"])),
            server_user.choose(asked),
            parameters["checksums"] == "true",
        )

    def plain(self) -> PostgresqlEngine:
        """Itself: what a user's files state is all in the settings."""
        return self

    def bound(self, scratch: Scratch, watcher: Watcher | None, folder: Path) -> PostgresqlEngine:
        """The same in a lab, whose templates are made in ``folder``; it is opened for the server's user."""
        clusters.let_pass(folder, self.user)
        servers = Servers(self.binaries, self.user, scratch, watcher, folder, self.checksums)
        return replace(self, servers=servers)

    def reaches(self, folder: Path) -> bool:
        """Whether the server's user may pass ``folder``, or the first one above it that exists."""
        if not self.user.is_other:
            return True
        existing = next(place for place in (folder, *folder.parents) if place.is_dir())
        return self.user.may(existing, "x")

    def stated(self, settings: Mapping[str, str]) -> Settings:
        """The settings themselves; what is not stated has PostgreSQL's default."""
        return dict(settings)

    def taken(self, settings: Mapping[str, str]) -> Settings:
        """The settings as a private cluster runs with them (configuration.py)."""
        return configuration.taken(settings)

    def in_force(self, effective: str) -> Settings:
        """The settings in force in the session that ran the load."""
        return dict(SessionSettings.parse(effective).values)

    def differences(self, effective: str) -> list[Finding]:
        """What was in force otherwise than it was proposed, and what came from elsewhere, with the reason."""
        return SessionSettings.parse(effective).findings()

    def notes(self, settings: Mapping[str, str]) -> list[Finding]:
        """What is overridden in these settings, because it is a private cluster's own."""
        return configuration.override_findings(settings)

    def longest_replay(self, effective: str, seen: Replay) -> LongestReplay:
        """How much WAL a recovery may have to replay under these settings (engines/postgresql/replay.py)."""
        return replay.longest(self.in_force(effective), seen)

    def launch(self, settings: Mapping[str, str], folder: Path) -> PostgresqlLaunch:
        """How to start a cluster with these settings in ``folder/db``.

        Raises InvalidInput where a setting has no place in a postgresql.conf.
        """
        assert self.servers is not None, "only an engine in a lab launches"
        configuration.refuse_unwritable(settings)
        return PostgresqlLaunch(self.servers, folder / "db", dict(settings))
