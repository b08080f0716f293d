"""The options that several commands share, so that each is spelled and explained once.

tune, crash and bench all ask for one subject, and take its options as ``Asked``; ``takes_asked`` makes
one typer parameter of each of its fields. An option of one engine or family of workloads is a field that is
marked ``Of`` it, and is refused for any other.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from crashlab.models.names import Metadata
from knobs.errors import InvalidInput
from tuner.recorders import RecorderName

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, everything else on stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Only results and errors.")]
SCALE_MAX = 1_000_000
"""A thousand million records, which take days to load."""
CLIENTS_MAX = 1_024
RUN_TIME_MAX_S = 3_600.0
"""Of one measured run: every write of it has its 64 bytes of shared memory until it is judged."""


def _run_time(option: typer.CallbackParam, text: str) -> str:
    where = option.opts[0]
    if seconds(text, where) > RUN_TIME_MAX_S:
        raise InvalidInput(
            f"'{text}' is longer than the limit of {RUN_TIME_MAX_S:g} s", where=where, hint="use 30s or 5min"
        )
    return text


def _time(text: str | None) -> str | None:
    if text is not None:
        seconds(text)
    return text


def _folder(text: str) -> Path:
    # pathlib takes no name for the folder that one stands in, and what is empty is mostly an unset variable.
    if not text:
        raise InvalidInput(
            "'' names no folder", where="--study, --data or --bindir", hint="name one, or leave it out"
        )
    return Path(text)


def _file(text: str) -> Path:
    if not text:
        raise InvalidInput("'' names no file", where="--init-sql", hint="name one, or leave it out")
    return Path(text)


_RUN_TIME_HELP = "The measured time of one run, as 3s or 1min; at most 1h."
RunTime = Annotated[str, typer.Option("--time", metavar="T", callback=_run_time, help=_RUN_TIME_HELP)]
MeasuredTime = Annotated[str, typer.Option("--measure", metavar="T", callback=_run_time, help=_RUN_TIME_HELP)]
"""Of a command whose --time is that of the whole."""
StatesTime = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="T",
        callback=_time,
        help="How long crash states are judged, as 30s or 5min, the likeliest to break first; what is under "
        "way is finished, and one of each model is judged in any case. With --states: whichever ends first.",
    ),
]

MetadataRule = Annotated[
    Metadata,
    typer.Option(
        "--metadata",
        help="Which names a power cut keeps: ordered, as a journaled file system does, or posix, no more "
        "than a sync of their own folder covered.",
    ),
]
StrictModel = Annotated[
    bool,
    typer.Option(
        "--strict-model",
        help="Lay to a configuration what the engine's own safest settings do not survive either.",
    ),
]
RecordedBy = Annotated[
    RecorderName,
    typer.Option(
        "--recorder",
        help="What observes the recorded run: preload, a library in the engine's processes, or block, a "
        "virtual disk with a real file system on it (root).",
    ),
]
DiskFileSystem = Annotated[
    str | None,
    typer.Option(
        "--file-system",
        metavar="TYPE",
        help="With --recorder block: ext4, xfs or btrfs; default: ext4.",
    ),
]
MountOptions = Annotated[
    str | None,
    typer.Option(
        "--mount-options",
        metavar="OPTIONS",
        help="With --recorder block: options of mount(8), as data=journal,commit=1.",
    ),
]

_POSTGRESQL, _PGBENCH = "Options of postgresql", "Options of pgbench (postgresql)"
QueryProtocol = Literal["simple", "extended", "prepared"]


@dataclass(frozen=True)
class Of:
    """Marks an option of one engine, or of one family of workloads."""

    word: str


@dataclass(frozen=True)
class Asked:
    """What a command is to be done to, where, and how it is told: the options as they were typed."""

    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="postgresql or rocksdb")]
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="[CONFIG]",
            help="A postgresql.conf, a RocksDB OPTIONS file or JSON; several joined by +, the later wins.",
        ),
    ] = None
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting over CONFIG; may be repeated."),
    ] = None
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            metavar="NAME",
            help="ycsb:a to ycsb:f, ycsb:FILE; for postgresql also pgbench:tpcb-like, pgbench:simple-update, "
            "pgbench:select-only, pgbench:FILE.sql. Default: pgbench:tpcb-like for postgresql, ycsb:a for "
            "rocksdb.",
        ),
    ] = None
    properties: Annotated[
        list[str] | None,
        typer.Option("-p", metavar="NAME=VALUE", help="A YCSB property; may be repeated."),
        Of("ycsb"),
    ] = None
    contract: Annotated[
        str | None,
        typer.Option(
            "--contract",
            metavar="CONTRACT",
            help="strict, process or bounded:500ms, with ,recovery=30s. Default, what the engine's own "
            "defaults promise: strict for postgresql, process for rocksdb.",
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            max=2**62,
            help="Seed of data, requests, plan and crash states (threads still race). Default: a new one.",
        ),
    ] = None
    clients: Annotated[
        int | None,
        typer.Option(
            "--clients",
            min=1,
            max=CLIENTS_MAX,
            help="Clients at once; default: a properties file's threadcount, else 8 for postgresql, 16 for "
            "rocksdb.",
        ),
    ] = None
    scale: Annotated[
        int | None,
        typer.Option(
            "--scale",
            min=1,
            max=SCALE_MAX,
            help="How much is loaded: thousands of YCSB's records, or pgbench's scale factor.",
        ),
    ] = None
    target: Annotated[
        float | None,
        typer.Option("--target", min=0, help="Operations per second of all clients; default: no limit."),
    ] = None
    column_family: Annotated[
        str,
        typer.Option(
            "--cf", help="The column family that the load uses.", rich_help_panel="Options of rocksdb"
        ),
        Of("rocksdb"),
    ] = "default"
    bindir: Annotated[
        Path | None,
        typer.Option(
            "--bindir",
            metavar="DIR",
            parser=_folder,
            help="The folder of PostgreSQL's programs; default: the newest that is installed.",
            rich_help_panel=_POSTGRESQL,
        ),
        Of("postgresql"),
    ] = None
    no_data_checksums: Annotated[
        bool,
        typer.Option(
            "--no-data-checksums",
            help="Clusters without data checksums, as where production has none: less damage is seen.",
            rich_help_panel=_POSTGRESQL,
        ),
        Of("postgresql"),
    ] = False
    init_sql: Annotated[
        Path | None,
        typer.Option(
            "--init-sql",
            metavar="FILE",
            parser=_file,
            help="SQL that is run after the load: ALTER ROLE, ALTER DATABASE, indexes.",
            rich_help_panel=_PGBENCH,
        ),
        Of("pgbench"),
    ] = None
    unlogged_tables: Annotated[
        bool,
        typer.Option(
            "--unlogged-tables", help="Tables without WAL, which a crash empties.", rich_help_panel=_PGBENCH
        ),
        Of("pgbench"),
    ] = False
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=1,
            max=CLIENTS_MAX,
            help="pgbench's threads; default: one for each core.",
            rich_help_panel=_PGBENCH,
        ),
        Of("pgbench"),
    ] = None
    protocol: Annotated[
        QueryProtocol,
        typer.Option("--protocol", help="How queries are sent.", rich_help_panel=_PGBENCH),
        Of("pgbench"),
    ] = "simple"
    latency_limit: Annotated[
        float | None,
        typer.Option(
            "--latency-limit",
            metavar="MS",
            min=0,
            help="With --target: skip transactions that are late by more milliseconds than this.",
            rich_help_panel=_PGBENCH,
        ),
        Of("pgbench"),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            parser=_folder,
            help="A new folder for the data; default: inside the study folder.",
        ),
    ] = None
    study: Annotated[
        Path | None,
        typer.Option(
            "--study",
            metavar="DIR",
            parser=_folder,
            help="Folder of results; default: results/ENGINE-WORKLOAD-CONTRACT.",
        ),
    ] = None
    json: Json = False
    quiet: Quiet = False


def takes_asked(command: Callable[..., int]) -> Callable[..., int]:
    """The command with a parameter for each field of Asked in place of its first, which is the whole."""

    @functools.wraps(command)
    def with_options(**words: Any) -> int:
        asked = Asked(**{name: words.pop(name) for name in shared})
        return command(asked, **words)

    shared = {name: _keyword(parameter) for name, parameter in _parameters(Asked).items()}
    own = [_keyword(parameter) for parameter in list(_parameters(command).values())[1:]]
    # typer reads a command's parameters, and inspect knows this as the way to state others.
    with_options.__signature__ = inspect.Signature([*shared.values(), *own])  # type: ignore[attr-defined]
    return with_options


def refuse_foreign(asked: Asked, words: Collection[str]) -> None:
    """Raises InvalidInput for an option that belongs to none of these engines and families."""
    for name, marks in _marks().items():
        owners = [mark.word for mark in marks if isinstance(mark, Of)]
        if owners and _is_given(asked, name) and not {*owners} & {*words}:
            spelled = _spelled(marks)
            raise InvalidInput(
                f"{spelled} is an option of {' and '.join(owners)}, and this is {' with '.join(words)}",
                where=spelled,
                hint="leave it out",
            )


def given(asked: Asked, but: Collection[str]) -> list[str]:
    """What was asked for beside these fields, as it is typed."""
    return [_spelled(marks) for name, marks in _marks().items() if name not in but and _is_given(asked, name)]


def _marks() -> dict[str, tuple[Any, ...]]:
    hints = get_type_hints(Asked, include_extras=True)
    return {field.name: hints[field.name].__metadata__ for field in fields(Asked)}


def _is_given(asked: Asked, name: str) -> bool:
    return bool(getattr(asked, name) != next(field.default for field in fields(Asked) if field.name == name))


def _spelled(marks: Sequence[Any]) -> str:
    """An option's name; an argument's as its help has it."""
    for mark in marks:
        if isinstance(mark, OptionInfo):
            # typer takes the first word of an annotated option for its default, until it reads the command.
            return str(mark.default)
        if isinstance(mark, ArgumentInfo):
            return str(mark.metavar).strip("[]")
    raise AssertionError("every field is an option or an argument")


def _parameters(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function, eval_str=True).parameters)


def _keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


_TIME = re.compile(r"(\d+(?:\.\d+)?)(s|min|h|)")
_SECONDS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}
TIME_MAX_DAYS = 30
"""Longer than any run; what is typed beyond it is a slip, and would never end."""


def seconds(text: str, where: str = "--time") -> float:
    """Seconds of `300s`, `5min`, `1h` or a bare number, which the option ``where`` was given.

    Raises InvalidInput for anything else, and for more than TIME_MAX_DAYS.
    """
    match = _TIME.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise InvalidInput(f"'{text}' is no time", where=where, hint="use 300s, 5min or 1h")
    found = float(match[1]) * _SECONDS[match[2]]
    if found > TIME_MAX_DAYS * 86_400:
        raise InvalidInput(
            f"'{text}' is longer than {TIME_MAX_DAYS} days", where=where, hint="use 300s, 5min or 1h"
        )
    return found
