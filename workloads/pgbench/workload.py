"""pgbench as a workload that duratune can load, run, kill and verify."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from engines.postgresql.launch import PostgresqlLaunch
from engines.postgresql.server import Server
from engines.postgresql.session import Session
from engines.process import Child, LaunchSpec, Watcher
from knobs.errors import InvalidInput, MachineLacks, Undecided
from workloads.ledger import Ledger
from workloads.pgbench import tables
from workloads.pgbench.identity import (
    RIDER_GRANT,
    RIDER_SCHEMA,
    RIDER_TABLE,
    Script,
    identified_builtin,
    identified_custom,
)
from workloads.pgbench.options import BUILTINS, BYTES_PER_SCALE, PgbenchOptions
from workloads.pgbench.reader import PgbenchReader
from workloads.pgbench.run import FIRST, RUN, PgbenchRun, log_prefix
from workloads.postgresql.preparation import (
    EACH_BEFORE,
    FIRST_LOAD_DEADLINE_S,
    add_amcheck,
    check_behind,
    settings_in_force,
)
from workloads.postgresql.sync_count import sample_syncs
from workloads.postgresql.verifier import PostgresqlVerifier
from workloads.workload import EFFECTIVE_NAME, Event, Plan, Recovered

LOAD_DEADLINE_S = 3600.0
SHORT_DEADLINE_S = 60.0
FOREVER_S = 10_000_000
"""How long pgbench is told to run: it is its server that ends."""
TRIAL, TRIAL_FROM, TRIAL_TRANSACTIONS = "duratune_trial", "template1", 20
TRIAL_SETTINGS = f"""
insert into pg_catalog.pg_db_role_setting select copy.oid, s.setrole, s.setconfig
from pg_catalog.pg_db_role_setting s join pg_catalog.pg_database d on d.oid = s.setdatabase,
pg_catalog.pg_database copy where d.datname = 'postgres' and copy.datname = '{TRIAL}'
"""
"""What ALTER DATABASE sets is no part of a copy."""
COUNTING = "-c track_counts=on"
_BRANCH = re.compile(r"\\\s*(el)?if\b", re.IGNORECASE)


@dataclass(frozen=True)
class PgbenchWorkload:
    """One script of pgbench on tables of one scale. ``watcher`` ends its processes if duratune is killed."""

    name: str
    options: PgbenchOptions = field(default_factory=PgbenchOptions)
    watcher: Watcher | None = None

    initial_records: ClassVar[int] = 0
    """Every transaction is a register of its own, so there are none before a run."""
    register_per_write: ClassVar[bool] = True

    def with_options(self, **changes: Any) -> Self:
        """The same with other options. Raises InvalidInput with every fault."""
        return replace(self, options=replace(self.options, **changes))

    @property
    def builtin(self) -> str:
        """The name of pgbench's own script, "" for one of the user's."""
        return "" if self.options.script else self.name.partition(":")[2]

    @property
    def parameters(self) -> Mapping[str, str]:
        """Everything that makes this load what it is, beside its name."""
        return self.options.texts()

    @staticmethod
    def of_parameters(name: str, parameters: Mapping[str, str], watcher: Watcher | None) -> PgbenchWorkload:
        """The workload that has these. Raises InvalidInput for anything else."""
        return PgbenchWorkload(name, PgbenchOptions.of_texts(parameters), watcher)

    @property
    def data_bytes(self) -> int:
        """About what the loaded tables and indexes take."""
        return self.options.scale * BYTES_PER_SCALE

    @cached_property
    def _custom(self) -> Script | None:
        if not self.options.script:
            return None
        return identified_custom(self.options.script, self.name, self.options.init_sql)

    @property
    def writes(self) -> bool:
        """Whether its transactions write at all, so that a crash can lose something."""
        return self._custom.writes if self._custom is not None else self.builtin != "select-only"

    @property
    def notes(self) -> tuple[str, ...]:
        """What was added to a script of the user's."""
        return self._custom.notes if self._custom is not None else ()

    def at_most(self, records: int) -> Self:
        """The same at scale 1, the smallest there is, where ``records`` is less than its accounts."""
        del records
        return self.with_options(scale=1)

    # ---- loading ----

    def load(
        self, launch: PostgresqlLaunch, folder: Path, seed: int, *, deadline_s: float = LOAD_DEADLINE_S
    ) -> Event:
        """Create the instance's data: a clone of this scale's template, which is loaded when first asked.

        pgbench's tables have the same content whatever the seed. Raises InvalidInput where --init-sql or the
        load fails, MachineLacks where there is no room or no pgbench.
        """
        del seed
        key = json.dumps(
            {
                "workload": "pgbench",
                "scale": self.options.scale,
                "unlogged": self.options.unlogged_tables,
                "init": self.options.init_sql,
                # Whether its rider is logged depends on what is written beside it.
                "script": self.options.script if self.options.init_sql else "",
            }
        )
        template = launch.servers.template(
            key, lambda server: self._fill(server, folder, deadline_s), deadline_s
        )
        launch.database.mkdir()
        template.clone(launch.database)
        return {"event": "loaded", "records": self.options.scale}

    def _fill(self, server: Server, folder: Path, deadline_s: float) -> None:
        arguments = ["--initialize", "--quiet", f"--scale={self.options.scale}"]
        if self.options.unlogged_tables:
            arguments.append("--unlogged-tables")
        self._to_end(server, "pgbench", arguments, folder / "load", deadline_s)
        with Session(server.address) as session:
            unlogged = "UNLOGGED " if self.options.unlogged_tables else ""
            session.query(RIDER_SCHEMA.replace("CREATE TABLE", f"CREATE {unlogged}TABLE"))
            session.query(RIDER_GRANT)
        add_amcheck(server)
        if self.options.init_sql:
            path = folder / "init.sql"
            path.write_text(self.options.init_sql, encoding="utf-8")
            arguments = ["--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", "-f", str(path)]
            try:
                self._to_end(server, "psql", arguments, folder / "init", deadline_s)
            except InvalidInput:
                # SQL that failed may have made a tablespace before it did.
                with Session(server.address) as session:
                    tables.refuse_tablespaces(session)
                raise
            with Session(server.address) as session:
                tables.refuse_tablespaces(session)
                unlogged_tables = tables.unlogged_tables(session)
            # The rider shares the fate of what the script writes: of a table that a crash empties too.
            if self._custom is not None and unlogged_tables and self._writes_unlogged(server, folder):
                with Session(server.address) as session:
                    session.query(f"ALTER TABLE {RIDER_TABLE} SET UNLOGGED")

    def _writes_unlogged(self, server: Server, folder: Path) -> bool:
        """Whether the script changes rows of an unlogged table, directly or by a trigger, a view, a partition
        or a function: seen in a trial on a copy of the database.

        Raises Undecided where the trial fails and the script names none: then nobody can tell.
        """
        assert self._custom is not None
        path = folder / "trial.sql"
        path.write_text(self._custom.text, encoding="utf-8")
        with Session(server.address, TRIAL_FROM) as session:
            session.query(f"CREATE DATABASE {TRIAL} TEMPLATE postgres")
            session.query(TRIAL_SETTINGS)
            arguments = [
                "--no-vacuum",
                f"--scale={self.options.scale}",
                f"--protocol={self.options.protocol}",
                f"--transactions={TRIAL_TRANSACTIONS}",
                "--define=duratune_n=0",
                f"--file={path}",
                TRIAL,
            ]
            try:
                self._to_end(server, "pgbench", arguments, folder / "trial", FIRST_LOAD_DEADLINE_S, COUNTING)
                with Session(server.address, TRIAL) as trial:
                    changed = tables.unlogged_changed(trial, server.cluster.binaries.version.major)
            except InvalidInput as error:
                with Session(server.address) as whole:
                    unlogged = tables.unlogged_tables(whole)
                if tables.named_in(self.options.script, unlogged):
                    return True
                raise Undecided(
                    f"the script fails in a trial, so nobody can tell whether it writes to {unlogged[0]}, an "
                    f"unlogged table: {error.what}",
                    where=self.name,
                    hint="leave unlogged tables out of --init-sql, or try the script by hand",
                ) from error
            finally:
                session.query(f"DROP DATABASE {TRIAL} WITH (FORCE)")
            return bool(changed) or self._may_still_write(server)

    def _may_still_write(self, server: Server) -> bool:
        """False after a trial without such a write; raises Undecided where the script may do otherwise."""
        with Session(server.address) as session:
            unlogged = tables.unlogged_tables(session)
        named = tables.named_in(self.options.script, unlogged)
        if named and _BRANCH.search(self.options.script):
            raise Undecided(
                f"the script names {named[0]}, an unlogged table, and wrote nothing to it in "
                f"{TRIAL_TRANSACTIONS} transactions: its branches may do so later",
                where=self.name,
                hint="leave unlogged tables out of --init-sql, or give the branch a script of its own",
            )
        return False

    def _to_end(
        self,
        server: Server,
        program: str,
        arguments: list[str],
        log: Path,
        deadline_s: float,
        options: str = "",
    ) -> None:
        command = [str(server.cluster.binaries.program(program)), *arguments]
        spec = LaunchSpec(
            command,
            log.with_suffix(".log"),
            environment={
                **server.cluster.environment(),
                **server.address.environment(),
                "PGOPTIONS": options,
            },
            inherits=False,
        )
        with Child(spec, self.watcher) as child:
            code = child.wait(deadline_s, f"{program} {arguments[0]}")
            said = child.log_tail()
        if code != 0:
            check_behind(server, said)
            lines = [line for line in said.splitlines() if "rror" in line] or said.splitlines()
            if "No space left" in said:
                raise MachineLacks(
                    f"the load found no space left: {lines[-1]}",
                    where=str(server.cluster.data),
                    hint="free space there, name another folder with --data, or a smaller --scale",
                )
            where = "--init-sql" if program == "psql" else "pgbench --initialize"
            raise InvalidInput(f"{program} failed: {' / '.join(lines[-3:])}", where=where)

    # ---- running ----

    def start(
        self,
        launch: PostgresqlLaunch,
        plan: Plan,
        folder: Path,
        ledger: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> PgbenchRun:
        """Start a server with the launch's settings, read back what is in force, and start pgbench.

        ``folder`` takes script, logs and the settings in force; ``environment`` is for the server alone.
        With a ticker in the plan the engine's count of syncs is sampled into the ledger behind a short first
        load. Raises what `server.start` raises, InvalidInput for a script that cannot be read.
        """
        recorded = dict(environment or {})
        server = launch.start(environment=lambda _: recorded, checks_memory=True)
        book: Ledger | None = None
        try:
            script = self._script(server)
            (folder / "script.sql").write_text(script.text, encoding="utf-8")
            (folder / EFFECTIVE_NAME).write_text(settings_in_force(server), encoding="utf-8")
            book = None if ledger is None else Ledger.open(ledger)
            each_before = 0
            if book is not None and plan.ticker_ms and script.writes and recorded:
                each_before = EACH_BEFORE
                with self._pgbench(
                    server, plan, folder, FIRST, 0, [f"--transactions={EACH_BEFORE}"]
                ) as first:
                    first.wait(FIRST_LOAD_DEADLINE_S, "a short first load")
                    _check_first_load(book, each_before, first.log_tail())
                sample_syncs(server, book)
            client = self._pgbench(server, plan, folder, RUN, each_before, [f"--time={FOREVER_S}"])
        except BaseException:
            # Whatever it was, an interrupt included: the caller never sees this run.
            if book is not None:
                book.close()
            server.__exit__(None, None, None)
            raise
        return PgbenchRun(
            server,
            client,
            plan,
            log_prefix(folder, RUN),
            book,
            script.writes,
            each_before,
            script.is_wrapped,
            script.is_conditional,
        )

    def _pgbench(
        self, server: Server, plan: Plan, folder: Path, name: str, each_before: int, until: list[str]
    ) -> Child:
        jobs = self.options.jobs or os.cpu_count() or 1
        rate = plan.target_per_s or self.options.rate_per_s
        arguments = [
            "--no-vacuum",
            f"--scale={self.options.scale}",
            f"--client={plan.threads}",
            f"--jobs={min(jobs, plan.threads)}",
            f"--protocol={self.options.protocol}",
            f"--file={folder / 'script.sql'}",
            f"--random-seed={plan.seed}",
            f"--define=duratune_n={each_before}",
            "--log",
            f"--log-prefix={log_prefix(folder, name)}",
            *until,
        ]
        if rate:
            arguments.append(f"--rate={rate:g}")
        if rate and self.options.latency_limit_ms:
            arguments.append(f"--latency-limit={self.options.latency_limit_ms:g}")
        spec = LaunchSpec(
            [str(server.cluster.binaries.program("pgbench")), *arguments],
            folder / f"{name}.log",
            environment={**server.cluster.environment(), **server.address.environment()},
            inherits=False,
        )
        return Child(spec, self.watcher)

    def _script(self, server: Server) -> Script:
        if self._custom is not None:
            return self._custom
        if self.builtin not in BUILTINS:
            raise InvalidInput(f"'{self.builtin}' is no script of pgbench's own", where=self.name)
        with server.cluster.seen() as seen:
            shown = server.cluster.run("pgbench", [f"--show-script={self.builtin}"], seen, SHORT_DEADLINE_S)
        text = "\n".join(
            line for line in (shown.stdout or shown.stderr).splitlines() if not line.startswith("--")
        )
        return identified_builtin(text, self.builtin)

    # ---- verifying ----

    def verify(self, launch: PostgresqlLaunch, folder: Path, deadline_s: float) -> Recovered:
        """Recover the instance that ``launch`` names, which is changed by it, and read it back.

        Its recovery is timed with the syncs that the settings ask for.
        """
        del folder
        return self._verifier(is_hurried=False).verify(launch, deadline_s)

    def verifier(self, folder: Path) -> PostgresqlVerifier:
        """For many states, recovered without syncs."""
        del folder
        return self._verifier(is_hurried=True)

    def _verifier(self, is_hurried: bool) -> PostgresqlVerifier:
        table, column = ("pgbench_history", "filler")
        if self._custom is not None:
            table, column = self._custom.table, self._custom.column
        return PostgresqlVerifier(PgbenchReader(self.options, self.builtin, table, column), is_hurried)


def _check_first_load(ledger: Ledger, each: int, said: str) -> None:
    """Raises Undecided where tokens are found that nobody sent, or none at all.

    A client may have fewer: of what fails, or writes only sometimes, no token is acknowledged, nor counted.
    """
    entries = ledger.entries()
    counts = [int((entries.client == client).sum()) for client in range(1, ledger.clients + 1)]
    if max(counts) > each:
        raise Undecided(
            f"the script sends numbers that look like duratune's tokens: 7, then 18 digits ({max(counts)} "
            f"transactions of a client that did {each})",
            where="pgbench",
            hint="let its own numbers have another length",
        )
    if not entries.acknowledged.any():
        raise Undecided(
            f"none of the {each} transactions of each client of a short first load was acknowledged with a "
            "write",
            where="pgbench",
            hint=said[-500:],
        )
