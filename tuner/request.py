"""What a command was asked for, resolved once: the subject, its contract, its findings, where it runs."""

from __future__ import annotations

import resource
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from crashlab.preload.recorder import PreloadRecorder
from crashlab.subject import Subject
from crashlab.validate import Lab
from engines import host
from engines.rocksdb.engine import RocksdbEngine
from engines.scratch import Scratch
from engines.supervisor import Supervisor
from knobs import configuration
from knobs.catalogue import Settings
from knobs.contract import Contract
from knobs.errors import InvalidInput, MachineLacks
from knobs.finding import Finding
from knobs.rocksdb.catalogue import RocksdbCatalogue
from knobs.rocksdb.installed import load_installed
from knobs.rocksdb.options_file import from_default
from tuner import folders, room
from tuner.options import Asked
from tuner.proposers.proposal import HostLimits
from workloads import registry
from workloads.ycsb.properties import CORE, DEFAULTS, IGNORED, PROPORTIONS
from workloads.ycsb.workload import YcsbWorkload

ENGINES: Mapping[str, type[RocksdbEngine]] = {"rocksdb": RocksdbEngine}
RECORDERS: Mapping[str, type[PreloadRecorder]] = {"preload": PreloadRecorder}
SEED_MAX = 2**31
CLIENTS, CLIENTS_MAX = 16, 1024
FILE_BYTES_MIN = 1 << 30
"""Room for the write log, for the ledger and for RocksDB's own files, none of which is ever split."""
PROPORTION_SLACK = 1e-6
"""By which a sum of proportions may miss 1: thirds are written with a few digits."""
OPERATIONS_PER_RECORD = 10
OPEN_FILES_BESIDE = 64
"""Descriptors that the driver needs beside RocksDB's table files."""


@dataclass(frozen=True)
class Request:
    """One resolved command line. ``settings`` hold what CONFIG and --set state, normalised."""

    engine: RocksdbEngine
    catalogue: RocksdbCatalogue
    settings: Settings
    workload: YcsbWorkload
    contract: Contract
    seed: int
    clients: int
    sources: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = field(default=())

    def subject(self, settings: Mapping[str, str] | None = None) -> Subject:
        """The subject with the request's settings, or with others."""
        chosen = self.settings if settings is None else settings
        return Subject(self.engine, self.workload, dict(chosen), self.clients)

    def with_seed(self, seed: int) -> Request:
        """The same request under another seed."""
        return replace(self, seed=seed)

    def stated_by(self, other: str) -> Settings:
        """The settings of another CONFIG for the same engine, checked like the request's own."""
        read = configuration.read(self.engine.name, other, column_family=self.engine.column_family)
        return checked(self.catalogue, read.settings)


def resolve(
    engine: str,
    config: str | None,
    sets: Sequence[str] | None,
    workload: str,
    properties: Sequence[str] | None,
    contract: str | None,
    seed: int | None,
    clients: int | None,
    scale: int | None,
    column_family: str,
    records: int,
) -> Request:
    """Resolve what the options say; ``records`` is the command's own record count.

    Raises InvalidInput for anything that cannot be run, MachineLacks where a limit on this process is low.
    """
    if engine not in ENGINES:
        raise InvalidInput(f"'{engine}' is no engine", where="ENGINE", hint=f"use {' or '.join(ENGINES)}")
    _check_file_size()
    room.check_address_space()
    known = load_installed()
    read = configuration.Configuration(engine, {})
    if config is not None:
        read = configuration.read(engine, config, column_family=column_family)
    read = configuration.with_settings(read, configuration.parse_settings(engine, sets or []))
    settings = checked(known, read.settings)
    _check_open_files(known, settings)
    base = read.options_file or from_default()
    base.apply(settings, column_family)  # what has no place in the file is refused before anything runs
    chosen = ENGINES[engine](base, column_family)
    load = _workload(workload, properties, scale, records)
    return Request(
        engine=chosen,
        catalogue=known,
        settings=settings,
        workload=load,
        contract=Contract.parse(contract) if contract else chosen.default_contract,
        seed=secrets.randbelow(SEED_MAX) if seed is None else seed,
        clients=clients or _clients_of(load),
        sources=read.sources,
        findings=(*read.findings, *_unused_properties(load), *_scaled_proportions(load)),
    )


def resolve_asked(asked: Asked, records: int) -> Request:
    """Resolve a command's options; the same errors."""
    return resolve(
        asked.engine,
        asked.config,
        asked.sets,
        asked.workload,
        asked.properties,
        asked.contract,
        asked.seed,
        asked.clients,
        asked.scale,
        asked.column_family,
        records,
    )


def _clients_of(workload: YcsbWorkload) -> int:
    """The threadcount of a properties file, else CLIENTS. Raises InvalidInput where it is no number."""
    stated = workload.properties.ignored.get("threadcount", str(CLIENTS))
    if not stated.isdigit() or not 1 <= int(stated) <= CLIENTS_MAX:
        raise InvalidInput(
            f"threadcount={stated} is no number from 1 to {CLIENTS_MAX}", where=workload.properties.where
        )
    return int(stated)


def _unused_properties(workload: YcsbWorkload) -> list[Finding]:
    """What a properties file says of a run's pace and end, which duratune's own options decide."""
    return [
        Finding(
            "property-not-used",
            name,
            value,
            "",
            "nothing",
            "duratune's own options set the rate (bench --target) and the length (--time) of a run",
            workload.properties.where,
        )
        for name, value in workload.properties.ignored.items()
        if name in ("target", "maxexecutiontime")
    ]


def _scaled_proportions(workload: YcsbWorkload) -> list[Finding]:
    """YCSB takes proportions as weights (DiscreteGenerator.java divides by their sum); so does the driver."""
    weights = {name: float(workload.properties[name]) for name in PROPORTIONS}
    total = sum(weights.values())
    if abs(total - 1.0) < PROPORTION_SLACK:
        return []
    shares = ", ".join(f"{name} {weight / total:.3g}" for name, weight in weights.items() if weight)
    return [
        Finding(
            "proportions-scaled",
            "the proportions' sum",
            f"{total:g}",
            "",
            "nothing",
            f"YCSB divides by it; what runs is {shares}",
            workload.properties.where,
        )
    ]


def checked(known: RocksdbCatalogue, settings: Mapping[str, str]) -> Settings:
    """The settings in the catalogue's own spelling. Raises InvalidInput with every fault."""
    known.validate(settings)
    return {name: known.normalise(name, value) for name, value in settings.items()}


@contextmanager
def open_lab(request: Request, results: Path, data: Path | None) -> Iterator[tuple[Lab, Request]]:
    """A lab, and the request bound to it: scratch paths and processes are gone afterwards, however the
    command ends.

    ``data`` must not exist; it is made and removed. Raises InvalidInput where it exists or its file
    system cannot be measured on.
    """
    room.check_shared_memory()
    with Supervisor() as supervisor, Scratch() as scratch:
        parent = _data_folder(data, results, scratch)
        host.refuse_unsafe_data_folder(parent, request.contract)
        room.check_disk(request.workload, parent)
        watched = replace(request, workload=replace(request.workload, watcher=supervisor))
        yield Lab(RECORDERS["preload"](), scratch, parent), watched


def _data_folder(data: Path | None, results: Path, scratch: Scratch) -> Path:
    if data is None:
        return scratch.folder(results, "data")
    folders.refuse_unreadable(data)
    if data.exists():
        raise InvalidInput(
            "the data folder exists already",
            where=str(data),
            hint="name a new folder; it is removed at the end",
        )
    return scratch.folder(data.absolute().parent, data.name)


def _workload(name: str, properties: Sequence[str] | None, scale: int | None, records: int) -> YcsbWorkload:
    found = registry.find(name)
    given = _pairs(properties or [])
    _refuse_two_counts(given, scale)
    from_file = name.removeprefix("ycsb:") not in CORE
    values: dict[str, str] = {}
    if scale is not None:
        values["recordcount"] = str(scale * 1_000)
    elif not (from_file and "recordcount" in found.properties.stated):
        values["recordcount"] = str(records)
    try:
        whole = found.with_values(values | given)
    except InvalidInput as error:
        raise InvalidInput(
            error.what, where="-p" if given else error.where, hint=_property_hint(given)
        ) from None
    room.refuse_too_much(whole, "-p" if given else whole.properties.where)
    if "operationcount" in given or (from_file and "operationcount" in found.properties.stated):
        return whole
    # D and E size their key space by it (CoreWorkload: expected new keys); the run itself is bounded in time.
    return whole.with_values({"operationcount": str(OPERATIONS_PER_RECORD * whole.properties.record_count)})


def _refuse_two_counts(given: Mapping[str, str], scale: int | None) -> None:
    for name in ("recordcount", "insertcount"):
        if scale is not None and given.get(name, str(scale * 1_000)) != str(scale * 1_000):
            raise InvalidInput(
                f"-p {name}={given[name]} contradicts --scale {scale}, which is {scale * 1_000} records",
                where="--scale",
                hint="leave one of them out",
            )


def _property_hint(given: Mapping[str, str]) -> str:
    """The nearest names to those that are none, else where the properties are told."""
    known = [*DEFAULTS, *IGNORED]
    near = [found for name in given if name not in known for found in get_close_matches(name, known, n=1)]
    return (
        f"did you mean {', '.join(near)}?"
        if near
        else "as in -p fieldlength=200; they are YCSB's core properties"
    )


def _pairs(properties: Sequence[str]) -> dict[str, str]:
    wrong = [pair for pair in properties if "=" not in pair]
    if wrong:
        raise InvalidInput(f"'{wrong[0]}' is no NAME=VALUE", where="-p", hint="as in -p fieldlength=200")
    return dict(pair.split("=", 1) for pair in properties)


def _check_open_files(known: RocksdbCatalogue, settings: Mapping[str, str]) -> None:
    """RocksDB opens up to max_open_files tables; a process that may not fails in the middle of a run."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    name = "DBOptions.max_open_files"
    wanted = int(settings.get(name, known.knob(name).default))
    if max(wanted, 0) + OPEN_FILES_BESIDE > limit:
        raise MachineLacks(
            f"{name}={wanted} needs more file descriptors than the {limit} that this process may open",
            where="RLIMIT_NOFILE",
            hint=f"ulimit -n {max(wanted, 0) + OPEN_FILES_BESIDE}",
        )


def _check_file_size() -> None:
    """Who writes past RLIMIT_FSIZE is killed by SIGXFSZ (setrlimit(2)), in the middle of a run."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and limit < FILE_BYTES_MIN:
        raise MachineLacks(
            f"a file may have {limit >> 10} KiB at most, and {FILE_BYTES_MIN >> 10} are needed",
            where="RLIMIT_FSIZE",
            hint="ulimit -f unlimited",
        )


def host_limits() -> HostLimits:
    """Cores and memory of this host, or of the control group that limits them."""
    machine = host.describe()
    memory = min(machine.memory_bytes, machine.limits.memory_bytes or machine.memory_bytes)
    cores = min(machine.cpus, int(machine.limits.cpus or machine.cpus) or 1)
    return HostLimits(cores, memory)
