"""The options that several commands share, so that each is spelled and explained once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from knobs.errors import InvalidInput

Engine = Annotated[str, typer.Argument(metavar="ENGINE", help="rocksdb")]
Config = Annotated[
    str | None,
    typer.Argument(
        metavar="[CONFIG]", help="A RocksDB OPTIONS file or JSON; several joined by +, the later wins."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting over CONFIG; may be repeated."),
]
Workload = Annotated[str, typer.Option("--workload", metavar="NAME", help="ycsb:a to ycsb:f, or ycsb:FILE.")]
Property = Annotated[
    list[str] | None, typer.Option("-p", metavar="NAME=VALUE", help="A YCSB property; may be repeated.")
]
ContractText = Annotated[
    str | None,
    typer.Option(
        "--contract", metavar="CONTRACT", help="strict, process or bounded:500ms, with ,recovery=30s."
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        min=0,
        max=2**62,
        help="Seed of data, requests, plan and crash states (threads still race). Default: a new one.",
    ),
]
Clients = Annotated[
    int | None,
    typer.Option(
        "--clients",
        min=1,
        max=1024,
        help="Client threads; default: a properties file's threadcount, else 16.",
    ),
]
Scale = Annotated[int | None, typer.Option("--scale", min=1, help="Thousands of records that are loaded.")]
ColumnFamily = Annotated[str, typer.Option("--cf", help="The column family that the load uses.")]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="A new folder for the data; default: inside the study folder."
    ),
]
Study = Annotated[
    Path | None,
    typer.Option(
        "--study", metavar="DIR", help="Folder of results; default: results/ENGINE-WORKLOAD-CONTRACT."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, everything else on stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Only results and errors.")]

_TIME = re.compile(r"(\d+(?:\.\d+)?)(s|min|h|)")
_SECONDS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """Seconds of `300s`, `5min`, `1h` or a bare number. Raises InvalidInput for anything else."""
    match = _TIME.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise InvalidInput(f"'{text}' is no time", where="--time", hint="use 300s, 5min or 1h")
    return float(match[1]) * _SECONDS[match[2]]
