"""What a command was asked for, resolved once: the subject, its contract, its findings, where it runs."""

from __future__ import annotations

import resource
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crashlab.judging.evidence import Terms
from crashlab.judging.verdict import LostWrite
from crashlab.models.names import Metadata
from crashlab.subject import Subject
from crashlab.validate import Lab, split_states
from engines import host
from engines.scratch import Scratch
from engines.supervisor import Supervisor
from knobs.catalogue import Settings
from knobs.contract import Contract
from knobs.errors import InvalidInput, MachineLacks
from knobs.finding import Finding
from tuner import folders, options, room
from tuner.kinds import registry
from tuner.kinds.family import Described, Family, Size
from tuner.kinds.kind import Kind, TunedCatalogue, TunedEngine
from tuner.options import Asked
from tuner.proposers.proposal import HostLimits
from tuner.recorders import RecorderChoice
from workloads.workload import Workload

SEED_MAX = 2**31
FILE_BYTES_MIN = 1 << 30
"""Room for the write log, for the ledger and for the engine's own files, none of which is ever split."""
REACHABLE = Path("/var/tmp")
"""Where data lie that the engine's processes cannot reach below the results: kept on a disk (hier(7))."""


@dataclass(frozen=True)
class Request:
    """One resolved command line. ``settings`` hold what CONFIG and --set state, normalised.

    ``target_per_s`` is the pace of measured runs, 0 for none; ``idle`` why no crash decides anything, ""
    where it does; ``options`` the engine's own ones, as they would be typed again; ``notes`` what the user
    did not ask for and is told; ``unheld`` why no configuration of this engine can be held, "" where one can.
    """

    kind: Kind
    engine: TunedEngine
    catalogue: TunedCatalogue
    settings: Settings
    workload: Workload[Any]
    contract: Contract
    seed: int
    clients: int
    sources: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = field(default=())
    target_per_s: float = 0.0
    idle: str = ""
    options: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unheld: str = ""
    metadata: Metadata = "ordered"
    strict_model: bool = False
    recorder: RecorderChoice = field(default_factory=RecorderChoice)

    @property
    def terms(self) -> Terms:
        """By what its runs are judged."""
        return Terms(self.contract, self.metadata, self.strict_model)

    @property
    def models(self) -> list[str]:
        """The crash models that judge it."""
        return self.recorder.judging(list(self.engine.controls))

    def states(self, total: int) -> dict[str, int]:
        """So many crash states, shared out among the models that judge the engine."""
        return split_states(self.models, total, self.metadata)

    @property
    def judging_options(self) -> list[str]:
        """The options by which it is judged otherwise than by default, as they would be typed again."""
        named = [] if self.metadata == "ordered" else ["--metadata", self.metadata]
        return [*named, *(["--strict-model"] if self.strict_model else []), *self.recorder.options]

    def subject(self, settings: Mapping[str, str] | None = None) -> Subject:
        """The subject with the request's settings, or with others."""
        chosen = self.settings if settings is None else settings
        return Subject(self.engine, self.workload, dict(chosen), self.clients)

    def with_seed(self, seed: int) -> Request:
        """The same request under another seed."""
        return replace(self, seed=seed)

    @property
    def family(self) -> Family:
        """What is known of the workload's family."""
        return registry.family(self.workload.name)

    def described(self) -> Described:
        """The workload in words and bytes."""
        return self.family.describe(self.workload)

    def name_of(self, lost: LostWrite) -> str:
        """What a user calls a write of the workload."""
        return self.family.name_of(lost, self.workload.parameters)

    def in_words(self) -> str:
        """Engine, workload, clients and pace, for the line that says what is run."""
        pace = f", {self.target_per_s:g} operations/s" if self.target_per_s else ""
        return (
            f"{self.engine.name} {self.engine.version()}, {self.workload.name}, "
            f"{self.described().in_words}, {self.clients} clients{pace}"
        )


def resolve_asked(asked: Asked, size: Size) -> Request:
    """Resolve a command's options; ``size`` is what the command loads by itself.

    Raises InvalidInput for anything that cannot be run, MachineLacks where a limit on this process is low or
    the engine is not there.
    """
    kind = registry.kind(asked.engine)
    _check_file_size()
    room.check_address_space()
    name = asked.workload or kind.default_workload
    word = registry.family_word(name)
    options.refuse_foreign(asked, (kind.name, word))
    if word not in kind.families:
        raise InvalidInput(
            f"{word} does not drive {kind.name}",
            where="--workload",
            hint=f"{' and '.join(kind.families)} does; {kind.default_workload} without the option",
        )
    chosen = kind.choose(asked)
    made = registry.family(name).make(asked, name, size)
    clients = asked.clients or made.clients or kind.clients
    kind.refuse(chosen, clients)
    return Request(
        kind=kind,
        engine=chosen.engine,
        catalogue=chosen.catalogue,
        settings=chosen.settings,
        workload=made.workload,
        contract=Contract.parse(asked.contract) if asked.contract else chosen.engine.default_contract,
        seed=secrets.randbelow(SEED_MAX) if asked.seed is None else asked.seed,
        clients=clients,
        sources=chosen.sources,
        findings=(*chosen.findings, *made.findings),
        target_per_s=made.target_per_s,
        idle=made.idle,
        options=(*made.options, *chosen.options),
        notes=chosen.notes,
        unheld=chosen.unheld,
    )


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
    """The same, of the options that are mostly given; ``records`` is the command's own record count."""
    asked = Asked(
        engine,
        config,
        list(sets or []),
        workload,
        list(properties) if properties else None,
        contract,
        seed,
        clients,
        scale,
        column_family=column_family,
    )
    return resolve_asked(asked, Size(records))


@contextmanager
def open_lab(
    request: Request,
    results: Path,
    data: Path | None,
    beside: Sequence[Request] = (),
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[Lab, Request, list[Request]]]:
    """A lab, and the request bound to it: scratch paths and processes are gone afterwards, however the
    command ends. ``beside`` are requests that differ in settings only, bound to the same lab.

    ``data`` must not exist; it is made and removed. Raises InvalidInput where it exists, its file
    system cannot be measured on, or the engine's processes cannot reach it.
    """
    room.check_shared_memory()
    with Supervisor() as supervisor, Scratch() as scratch:
        if data is None:
            parent = data_folder(request.engine, results, scratch, say)
        else:
            parent = _named_folder(request.engine, data, scratch)
        host.refuse_unsafe_data_folder(parent, request.contract)
        room.check_disk(request.described(), parent)
        workload = request.family.watched(request.workload, supervisor)
        first = replace(request, workload=workload, engine=request.engine.bound(scratch, supervisor, parent))
        others = [
            replace(
                other,
                workload=workload,
                engine=first.engine
                if other.engine == request.engine
                else other.engine.bound(scratch, supervisor, parent),
            )
            for other in beside
        ]
        yield Lab(request.recorder.made(supervisor), scratch, parent), first, others


def data_folder(engine: TunedEngine, results: Path, scratch: Scratch, say: Callable[[str], None]) -> Path:
    """A folder for data below ``results``, or where the engine's processes can reach it, which is said."""
    if engine.reaches(results.absolute()):
        return scratch.folder(results, "data")
    say(f"the data lie in {REACHABLE}: the user that {engine.name} runs as cannot reach {results}")
    return scratch.folder(REACHABLE, "data")


def _named_folder(engine: TunedEngine, data: Path, scratch: Scratch) -> Path:
    folders.refuse_unreadable(data)
    if data.exists():
        raise InvalidInput(
            "the data folder exists already",
            where=str(data),
            hint="name a new folder; it is removed at the end",
        )
    parent = data.absolute().parent
    if not engine.reaches(parent):
        raise InvalidInput(
            f"the user that {engine.name} runs as cannot reach this folder",
            where=f"--data {data}",
            hint=f"name one below {REACHABLE}, or leave --data out",
        )
    return scratch.folder(parent, data.name)


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
