"""How one PostgreSQL instance is to be started: what the engine makes and a workload starts servers from.

`Servers` is what all instances of one lab have in common: programs, user, and where duratune notes what it
makes. Loaded clusters are kept there as templates, one for each way of loading, and every instance is a
clone of one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from engines.postgresql import cluster as clusters
from engines.postgresql import server as servers
from engines.postgresql.binaries import Binaries
from engines.postgresql.cluster import Cluster, Seen
from engines.postgresql.server import START_DEADLINE_S, Server
from engines.postgresql.server_user import ServerUser
from engines.postgresql.session import Session
from engines.process import Watcher
from engines.scratch import Scratch

LOAD_SETTINGS: Mapping[str, str] = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_wal_size": "4GB",
    "autovacuum": "off",
}
"""For loading a template, whose files are all synced when it is done (manual, 14.4 and 14.5)."""

UNSYNCED_SETTINGS: Mapping[str, str] = {"fsync": "off", "wal_sync_method": "fdatasync"}
"""For recovering crash states in memory; some file systems there refuse O_DIRECT, which open_datasync may ask
for."""

NEUTRAL_SETTINGS: Mapping[str, str] = {
    "fsync": "off",
    "autovacuum": "off",
    "synchronous_commit": "off",
    "shared_buffers": "16MB",
}
"""For reading what a recovery left: nothing hides damage, and nothing else is at work meanwhile. A scan of
a table that is larger than the buffers uses a few of them again and again, which takes less time."""

NEUTRAL_OPTIONS = "-c zero_damaged_pages=off -c ignore_checksum_failure=off -c ignore_system_indexes=off"
"""The same for the connections by which it is read, where ALTER SYSTEM, ROLE and DATABASE come after them."""

_TEMPLATES = ("template0", "template1")
"""The databases that CREATE DATABASE copies (manual, 23.3)."""

_SIZES = frozenset(
    ("max_prepared_transactions", "max_locks_per_transaction", "max_connections", "max_worker_processes")
)
"""What a cluster may hold more of than the defaults have room for: prepared transactions, and their locks."""


@dataclass(frozen=True)
class Servers:
    """Whose programs, run as whom, and who cleans up. ``folder`` takes the templates."""

    binaries: Binaries
    user: ServerUser
    scratch: Scratch
    watcher: Watcher | None
    folder: Path
    checksums: bool = True
    _templates: dict[str, Cluster] = field(default_factory=dict, compare=False, repr=False)

    def template(self, key: str, load: Callable[[Server], None], deadline_s: float) -> Cluster:
        """The loaded cluster that ``key`` describes; made by ``load`` when it is first asked for.

        ``load`` is given a server of an empty cluster; the server is stopped cleanly and everything synced
        afterwards. Raises what `create`, `start` and ``load`` raise, and leaves nothing behind then.
        """
        name = hashlib.sha256(key.encode()).hexdigest()
        if name not in self._templates:
            place = self.scratch.folder(self.folder, "template")
            try:
                cluster = clusters.create(self.binaries, self.user, place, checksums=self.checksums)
                with self.start(cluster, LOAD_SETTINGS) as server:
                    load(server)
                    _drop_templates(server)
                    server.stop(deadline_s=deadline_s)
                cluster.sync()
                cluster.log.unlink(missing_ok=True)
            except BaseException:
                # An interrupt included; what is raised goes on.
                self.scratch.remove(place)
                raise
            self._templates[name] = cluster
        return self._templates[name]

    def start(
        self,
        cluster: Cluster,
        settings: Mapping[str, str],
        *,
        deadline_s: float = START_DEADLINE_S,
        environment: Callable[[Seen], Mapping[str, str]] = lambda _: {},
        checks_memory: bool = False,
    ) -> Server:
        """Start a server of a cluster (`engines.postgresql.server.start`, which raises the same)."""
        return servers.start(
            cluster,
            dict(settings),
            scratch=self.scratch,
            watcher=self.watcher,
            deadline_s=deadline_s,
            environment=environment,
            checks_memory=checks_memory,
        )


@dataclass(frozen=True)
class PostgresqlLaunch:
    """One instance: a cluster in ``database``, its data in ``database/data``, under some settings."""

    servers: Servers
    database: Path
    settings: Mapping[str, str]

    def at(self, database: Path) -> PostgresqlLaunch:
        """The same settings on another folder."""
        return replace(self, database=database)

    def hurried(self) -> PostgresqlLaunch:
        """The same without syncs, which change nothing of what a recovery brings back, but take its time."""
        return replace(self, settings={**self.settings, **UNSYNCED_SETTINGS})

    @property
    def cluster(self) -> Cluster:
        """The cluster as the programs see it."""
        return Cluster(self.servers.binaries, self.servers.user, self.database)

    def adopt(self) -> Cluster:
        """The cluster, its files given to the server's user: a copy or a rebuilt state is duratune's own."""
        cluster = self.cluster
        cluster.adopt()
        return cluster

    def start(
        self,
        *,
        deadline_s: float = START_DEADLINE_S,
        environment: Callable[[Seen], Mapping[str, str]] = lambda _: {},
        checks_memory: bool = False,
    ) -> Server:
        """Start a server with the candidate's settings; recovery, if one is due, is part of it."""
        return self.servers.start(
            self.adopt(),
            self.settings,
            deadline_s=deadline_s,
            environment=environment,
            checks_memory=checks_memory,
        )

    def start_neutral(self, *, deadline_s: float = START_DEADLINE_S) -> Server:
        """Start a server with settings that hide nothing, in a cluster that one has run in before."""
        kept = {name: value for name, value in self.settings.items() if name.lower() in _SIZES}
        server = self.servers.start(self.cluster, {**kept, **NEUTRAL_SETTINGS}, deadline_s=deadline_s)
        own = f"{server.address.own_options} {NEUTRAL_OPTIONS}"
        server.address = replace(server.address, own_options=own)
        return server


def _drop_templates(server: Server) -> None:
    """Drop the databases that nobody connects to: two thirds of the files of every clone and crash state.

    Once a cluster is loaded, nothing makes a database in it.
    """
    with Session(server.address) as session:
        for name in _TEMPLATES:
            session.query(
                "update pg_catalog.pg_database set datistemplate = false where datname = $1", [name]
            )
            session.query(f"DROP DATABASE IF EXISTS {name}")
