"""PostgreSQL as the commands ask for it: private clusters of one installation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from crashlab.recording.recorded import Facts
from engines.postgresql import binaries, server_user
from engines.postgresql import configuration as conf
from engines.postgresql.engine import PostgresqlEngine
from engines.postgresql.log_reader import PostgresqlLogReader
from knobs import configuration
from knobs.catalogue import Catalogue, Settings
from knobs.contract import Contract
from knobs.errors import InvalidInput
from knobs.finding import Finding
from knobs.knob import Source, TuningRange
from knobs.postgresql import durability, tuning, values
from knobs.postgresql.build import installed
from knobs.postgresql.catalogue import PostgresqlCatalogue, load
from knobs.postgresql.rules import CHANGES
from tuner.kinds.kind import Chosen, Kind, MemoryNeed, TunedCatalogue, TunedEngine, checked
from tuner.options import Asked
from tuner.proposers import postgresql_rules
from tuner.proposers.pgtune import Pgtune
from tuner.proposers.proposal import HostLimits, Proposal, Proposer
from workloads.postgresql.sync_count import COUNTS_SINCE

CONF_NAME = "postgresql.conf"
CONNECTIONS_BESIDE = 10
"""Connections that duratune opens beside the clients' (read-back, provocations, counters), and those that
PostgreSQL keeps for superusers (superuser_reserved_connections, 3 by default)."""
_NUMBERS = ("integer", "real", "size")
UNCOUNTED = (
    f"PostgreSQL before {COUNTS_SINCE} does not count its log's syncs, so no recording of it can be believed"
)


class PostgresqlKindRules:
    """Of the version that the request's server has."""

    def breaking(self, catalogue: Catalogue, stated: Mapping[str, str], contract: Contract) -> list[Finding]:
        """What breaks the contract, by prediction."""
        return durability.breaking(stated, contract, catalogue.version)

    def caveats(self, catalogue: Catalogue, stated: Mapping[str, str]) -> list[Finding]:
        """What is risky although it breaks no contract."""
        return durability.caveats(stated, catalogue.version)

    def promised(self, catalogue: Catalogue, stated: Mapping[str, str]) -> Sequence[Finding]:
        """Everything that weakens what settings promise by themselves."""
        return durability.promise(stated, catalogue.version).findings

    def differences(
        self, catalogue: Catalogue, engine: TunedEngine, settings: Mapping[str, str], effective: str
    ) -> list[Finding]:
        """What was not in force in the session that ran the load, what came from elsewhere, and what the
        server changed."""
        found = _of_postgresql(engine).differences(effective)
        known = {finding.setting for finding in found}
        return [*found, *_changed(catalogue, settings, engine.in_force(effective), known)]

    def memory(self, catalogue: TunedCatalogue, stated: Mapping[str, str], clients: int) -> MemoryNeed:
        """Shared memory, and what each client's backend may take."""
        wanted, terms = tuning.memory_bytes(catalogue.in_force(stated), clients)
        return MemoryNeed(wanted, f"the server with {clients} clients", terms)


class PostgresqlSearch:
    """What weakens an acknowledged commit is left out; an audit puts it back. Under `bounded` a commit need
    not wait for its flush: that is what the contract pays for, so it is searched."""

    rivals: Sequence[str] = (Pgtune.name,)

    def proposers(self, catalogue: Catalogue) -> Sequence[Proposer]:
        """The rules, and PGTune's for the same host."""
        known = _of_server(catalogue)
        return [postgresql_rules.PostgresqlRules(known), Pgtune(known)]

    def ranges(
        self, catalogue: Catalogue, host: HostLimits, window_ms: float | None, is_audit: bool
    ) -> dict[str, TuningRange]:
        """The ranges for this host and server."""
        found = tuning.ranges(host.memory_bytes, host.cores, _of_server(catalogue))
        found |= tuning.UNSAFE_RANGES if is_audit else {}
        return found if window_ms is None else found | tuning.bounded_ranges(window_ms)

    def speed_alone(self, catalogue: Catalogue, reference: Mapping[str, str]) -> list[Proposal]:
        """What somebody who looks at speed alone tries first."""
        return postgresql_rules.speed_alone(_of_server(catalogue), reference)


class PostgresqlWriting:
    """With units: 128MB, not 16384 pages."""

    def files(self, engine: TunedEngine, settings: Mapping[str, str]) -> Mapping[str, str]:
        """A postgresql.conf of what is set over the defaults."""
        known = load(_of_postgresql(engine).major)
        spelled = {name: known.spelled(name, value) for name, value in settings.items()}
        return {CONF_NAME: conf.render(spelled)}


class PostgresqlKind:
    """PostgreSQL, driven by pgbench or YCSB."""

    name = "postgresql"
    title = "PostgreSQL"
    package = "postgresql"
    families: Sequence[str] = ("pgbench", "ycsb")
    default_workload = "pgbench:tpcb-like"
    clients = 8
    effective_name = "effective.json"
    beyond_files = ""
    state_s = 0.5
    trial_share = 0.5
    recorded = 2_000  # a transaction of pgbench writes about 20 kB of write log, and a trial reads all of it
    label = "postgresql "
    log_reader = PostgresqlLogReader()
    rules = PostgresqlKindRules()
    search = PostgresqlSearch()
    writing = PostgresqlWriting()

    def choose(self, asked: Asked) -> Chosen:
        """Find the programs and the user, read CONFIG and --set as settings of that version."""
        programs = binaries.find(asked.bindir)
        user = server_user.choose()
        engine = PostgresqlEngine(programs, user, not asked.no_data_checksums)
        known = installed(programs.folder, engine.major)
        read = configuration.Configuration(self.name, {})
        if asked.config is not None:
            read = configuration.read(self.name, asked.config, version=engine.major)
        given = configuration.parse_settings(self.name, asked.sets or [], engine.major)
        read = configuration.with_settings(read, given, engine.major)
        settings = checked(known, read.settings, read.origins)
        conf.refuse_unwritable(settings)
        options = [] if asked.bindir is None else ["--bindir", str(asked.bindir)]
        options += ["--no-data-checksums"] if asked.no_data_checksums else []
        return Chosen(
            engine,
            known,
            settings,
            read.sources,
            (*read.findings, *engine.notes(settings)),
            tuple(options),
            tuple(filter(None, (programs.note, user.note))),
            UNCOUNTED if programs.version.major < COUNTS_SINCE else "",
        )

    def parse(self, asked: Asked, pairs: Sequence[str], where: str) -> Settings:
        """The values of NAME=VALUE words under the names of the version that is asked for."""
        programs = binaries.find(asked.bindir)
        known = installed(programs.folder, str(programs.version.major))
        found = configuration.parse_settings(self.name, pairs, known.version, where=where)
        # A rule over several settings is for all that are stated together, and so not asked here.
        wrong = {name: value for name, value in found.items() if values.fault(known.knob(name), value)}
        checked(known, wrong, dict.fromkeys(wrong, Source(where, 0)))
        return found

    def refuse(self, chosen: Chosen, clients: int) -> None:
        """Raises InvalidInput where the clients and duratune's own connections are more than there may be."""
        allowed = int(chosen.catalogue.in_force(chosen.settings)["max_connections"])
        if allowed < clients + CONNECTIONS_BESIDE:
            raise InvalidInput(
                f"max_connections={allowed} is less than {clients} clients + {CONNECTIONS_BESIDE} that "
                f"duratune and superusers need = {clients + CONNECTIONS_BESIDE}",
                where="max_connections",
                hint=f"--set max_connections={clients + CONNECTIONS_BESIDE}, or fewer --clients",
            )

    def again(self, folder: Path, facts: Facts, asked: Asked) -> Chosen:
        """The same programs or those of --bindir, and the same user where duratune may choose one.

        Raises InvalidInput for programs of another major version: it keeps its data in another form (manual,
        "Upgrading a PostgreSQL Cluster").
        """
        named = {} if asked.bindir is None else {"bindir": str(asked.bindir)}
        engine = PostgresqlEngine.of_recording(folder, {**facts.engine_parameters, **named})
        recorded_major = facts.engine_version.partition(".")[0]
        if engine.major != recorded_major:
            raise InvalidInput(
                f"this is PostgreSQL {engine.version()}, and the recording is of {facts.engine_version}, "
                f"which only PostgreSQL {recorded_major} recovers",
                where=str(engine.binaries.folder),
                hint=f"name the folder of PostgreSQL {recorded_major}'s programs with --bindir",
            )
        return Chosen(engine, installed(engine.binaries.folder, engine.major), facts.settings)


def _changed(
    catalogue: Catalogue, settings: Mapping[str, str], in_force: Mapping[str, str], known: Collection[str]
) -> list[Finding]:
    """Numbers that the server took from its file and then replaced; -1 asks it to choose."""
    whys = {change.name: change for change in CHANGES}
    found = []
    for name, value in settings.items():
        got = in_force.get(name, value)
        kind = catalogue.knob(name).kind
        if name in known or kind not in _NUMBERS or got == value or value == "-1":
            continue
        if kind == "real" and f"{float(value):g}" == f"{float(got):g}":
            continue  # pg_settings prints six digits of it (guc.c, ShowGUCOption)
        change = whys.get(name)
        why, source = (change.why, change.source) if change else ("the server says no reason", "read back")
        what = f"the server changes it to {got}: {why}"
        found.append(Finding("not-in-force", name, value, "", "nothing", what, source))
    return found


def _of_server(catalogue: Catalogue) -> PostgresqlCatalogue:
    assert isinstance(catalogue, PostgresqlCatalogue), f"this is the catalogue of {catalogue.engine}"
    return catalogue


def _of_postgresql(engine: TunedEngine) -> PostgresqlEngine:
    assert isinstance(engine, PostgresqlEngine), f"{engine.name} is another engine"
    return engine


KIND: Kind = PostgresqlKind()
