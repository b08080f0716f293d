"""RocksDB as the commands ask for it."""

from __future__ import annotations

import json
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path

from crashlab.recording.recorded import Facts
from engines.rocksdb.engine import RocksdbEngine
from engines.rocksdb.log_reader import RocksdbLogReader
from knobs import configuration
from knobs.catalogue import Catalogue, Settings
from knobs.contract import Contract
from knobs.errors import MachineLacks
from knobs.finding import Finding
from knobs.knob import TuningRange
from knobs.rocksdb import durability, tuning
from knobs.rocksdb.changes import differences
from knobs.rocksdb.installed import load_installed
from knobs.rocksdb.options_file import from_default
from tuner.kinds.kind import Chosen, Kind, MemoryNeed, TunedCatalogue, TunedEngine, checked
from tuner.options import Asked
from tuner.proposers import rules
from tuner.proposers.proposal import HostLimits, Proposal, Proposer

OPTIONS_NAME = "OPTIONS"
OUTSIDE_NAME = "write-options.json"
OPEN_FILES_BESIDE = 64
"""Descriptors that the driver needs beside RocksDB's table files."""
_NOT_IN_THE_FILE = ("WriteOptions.", "Application.")


class RocksdbKindRules:
    """Of the version that the catalogue's own data are for: what is installed may be none that ships."""

    def breaking(self, catalogue: Catalogue, stated: Mapping[str, str], contract: Contract) -> list[Finding]:
        """What breaks the contract, by prediction."""
        del catalogue
        return durability.breaking(stated, contract)

    def caveats(self, catalogue: Catalogue, stated: Mapping[str, str]) -> list[Finding]:
        """What is risky although it breaks no contract."""
        del catalogue
        return durability.caveats(stated)

    def promised(self, catalogue: Catalogue, stated: Mapping[str, str]) -> Sequence[Finding]:
        """Everything that weakens what settings promise by themselves."""
        del catalogue
        return durability.promise(stated).findings

    def differences(
        self, catalogue: Catalogue, engine: TunedEngine, settings: Mapping[str, str], effective: str
    ) -> list[Finding]:
        """What the open database did not take, by the OPTIONS file that it wrote."""
        return differences(catalogue, settings, engine.in_force(effective))

    def memory(self, catalogue: TunedCatalogue, stated: Mapping[str, str], clients: int) -> MemoryNeed:
        """The block cache and the memtables."""
        del clients
        wanted = tuning.memory_bytes(catalogue.in_force(stated))
        return MemoryNeed(wanted, "block cache and memtables")


class RocksdbSearch:
    """What weakens an acknowledged write is left out; an audit puts it back. Under `bounded` an application
    may sync the WAL by itself every so often instead of at each write: that is what the contract pays for,
    so both are searched."""

    rivals: Sequence[str] = ()

    def proposers(self, catalogue: Catalogue) -> Sequence[Proposer]:
        """The rules."""
        del catalogue
        return [rules.RocksdbRules()]

    def ranges(
        self, catalogue: Catalogue, host: HostLimits, window_ms: float | None, is_audit: bool
    ) -> dict[str, TuningRange]:
        """The ranges for this host."""
        del catalogue
        found = dict(tuning.ranges(host.memory_bytes, host.cores))
        found |= tuning.UNSAFE_RANGES if is_audit else {}
        return found if window_ms is None else found | tuning.bounded_ranges(window_ms)

    def speed_alone(self, catalogue: Catalogue, reference: Mapping[str, str]) -> list[Proposal]:
        """What somebody who looks at speed alone tries first; the same in every version."""
        del catalogue
        return rules.speed_alone(reference)


class RocksdbWriting:
    """In RocksDB's own spelling."""

    def files(self, engine: TunedEngine, settings: Mapping[str, str]) -> Mapping[str, str]:
        """An OPTIONS file, and what lives outside of it, as JSON."""
        assert isinstance(engine, RocksdbEngine), f"{engine.name} is another engine"
        outside = {name: value for name, value in settings.items() if name.startswith(_NOT_IN_THE_FILE)}
        return {
            OPTIONS_NAME: engine.base.apply(settings, engine.column_family).render(),
            OUTSIDE_NAME: json.dumps({"settings": outside}, indent=1) + "\n",
        }


class RocksdbKind:
    """RocksDB, driven by YCSB."""

    name = "rocksdb"
    title = "RocksDB"
    package = "librocksdb"
    families: Sequence[str] = ("ycsb",)
    default_workload = "ycsb:a"
    clients = 16
    effective_name = "effective.OPTIONS"
    beyond_files = "WriteOptions are in no OPTIONS file (rocksdb/options.h)"
    state_s = 0.1
    trial_share = 1.0
    recorded = 4_000
    label = ""
    log_reader = RocksdbLogReader()
    rules = RocksdbKindRules()
    search = RocksdbSearch()
    writing = RocksdbWriting()

    def choose(self, asked: Asked) -> Chosen:
        """Read CONFIG and --set for the installed library; --cf is the column family that the load uses.

        What has no place in the OPTIONS file is refused before anything runs.
        """
        known = load_installed()
        read = configuration.Configuration(self.name, {})
        if asked.config is not None:
            read = configuration.read(self.name, asked.config, column_family=asked.column_family)
        read = configuration.with_settings(read, self.parse(asked, asked.sets or [], "--set"))
        settings = checked(known, read.settings)
        base = read.options_file or from_default()
        base.apply(settings, asked.column_family)
        return Chosen(
            RocksdbEngine(base, asked.column_family),
            known,
            settings,
            read.sources,
            read.findings,
            ("--cf", asked.column_family) if asked.column_family != "default" else (),
        )

    def parse(self, asked: Asked, pairs: Sequence[str], where: str) -> Settings:
        """The values of NAME=VALUE words under full names."""
        del asked
        return configuration.parse_settings(self.name, pairs, where=where)

    def refuse(self, chosen: Chosen, clients: int) -> None:
        """RocksDB opens up to max_open_files tables; a process that may not fails in the middle of a run."""
        del clients
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        name = "DBOptions.max_open_files"
        wanted = int(chosen.settings.get(name, chosen.catalogue.knob(name).default))
        if max(wanted, 0) + OPEN_FILES_BESIDE > limit:
            raise MachineLacks(
                f"{name}={wanted} needs more file descriptors than the {limit} that this process may open",
                where="RLIMIT_NOFILE",
                hint=f"ulimit -n {max(wanted, 0) + OPEN_FILES_BESIDE}",
            )

    def again(self, folder: Path, facts: Facts, asked: Asked) -> Chosen:
        """From the OPTIONS file that the recording keeps, with the library that is installed."""
        del asked
        engine = RocksdbEngine.of_recording(folder, facts.engine_parameters)
        return Chosen(engine, load_installed(), facts.settings)


KIND: Kind = RocksdbKind()
