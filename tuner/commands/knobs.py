"""`duratune knobs`: the catalogue; what a knob does, its durability meaning, its source."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, cast

import typer

from knobs import render
from knobs.catalogue import Catalogue, Manual, Notes, load
from knobs.knob import Knob
from tuner import options
from tuner.output import Output


def command(
    engine: Annotated[str, typer.Argument(help="postgresql or rocksdb")],
    name: Annotated[str, typer.Argument(help="One knob, by its short or full name; all without it.")] = "",
    engine_version: Annotated[
        str, typer.Option("--engine-version", help="Of that version; the installed one without it.")
    ] = "",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """What may be set, what it does, what it means for durability, and where that is written.

    Exit code 0; 2 for an unknown engine, version or knob.
    """
    output = Output(json=json, quiet=quiet)
    catalogue = load(engine, engine_version or None)
    chosen = [_described(catalogue, name)] if name else list(catalogue.knobs())
    notes = cast("Notes", catalogue).notes
    output.document(
        {
            "schema": 1,
            "engine": engine,
            "version": catalogue.version,
            "knobs": [render.document(knob, notes(knob.name)) for knob in chosen],
        }
    )
    if not json:
        one = (
            render.page(chosen[0], catalogue.version, notes(chosen[0].name)) if name else render.table(chosen)
        )
        output.result(one)
    return 0


def _described(catalogue: Catalogue, name: str) -> Knob:
    """The knob with the manual's text where that is installed, else with the engine's own short one."""
    knob = catalogue.knob(name)
    text = catalogue.manual(name) if isinstance(catalogue, Manual) else ""
    return replace(knob, documentation=text) if text else knob
