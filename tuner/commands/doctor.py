"""`duratune doctor`: what this machine can do, what it lacks and how to get it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from engines.provenance import provenance
from engines.scratch import left_behind, sweep
from knobs.errors import MachineLacks, Undecided
from tuner import options
from tuner.checks import CHECKS, Check, Look
from tuner.control_check import controls
from tuner.output import Output

RESULTS_FOLDER = Path("results")
NAME_WIDTH = 23
"""The column of the names; one that is longer pushes its own line to the right."""


def command(
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove what dead duratune processes have left behind.")
    ] = False,
    json: options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only what is not in order.")] = False,
) -> int:
    """What this machine can do, what it lacks and how to get it.

    Exit code 0: everything that is needed is here; 3: something is missing; 4: a control came out wrong.
    """
    output = Output(json=json, quiet=quiet)
    look = Look(folder=RESULTS_FOLDER)
    checks = []
    # Each line is told as soon as it is known: some checks, the controls above all, take their time.
    for found in _found(look, clean):
        checks.append(found)
        if not quiet or found.state != "ok":
            output.result(_line(found))
    output.document(
        {
            "schema": 1,
            "provenance": provenance(look.folder, seed=None),
            "checks": [asdict(found) for found in checks],
        }
    )
    return exit_code(checks)


def _found(look: Look, clean: bool) -> Iterator[Check]:
    for check in [*CHECKS, controls]:
        yield from check(look)
    yield from _swept() if clean else _left()


def exit_code(checks: list[Check]) -> int:
    """4 for a wrong control, else 3 if something is missing, else 0."""
    states = {found.state for found in checks}
    if "wrong" in states:
        return Undecided.exit_code
    return MachineLacks.exit_code if "lacks" in states else 0


def _line(found: Check) -> str:
    line = f"{found.state:<8}{found.name:<{NAME_WIDTH}}  {found.what}"
    return f"{line}\n{'':<{NAME_WIDTH + 10}}{found.hint}" if found.hint else line


def _left() -> list[Check]:
    paths = left_behind()
    if not paths:
        return [Check("left behind", "ok", "nothing")]
    hint = "duratune doctor --clean removes it; so does the next tune, crash or bench"
    return [Check("left behind", "warning", str(path), hint) for path in paths]


def _swept() -> list[Check]:
    report = sweep()
    checks = [Check("left behind", "ok", f"removed {path}") for path in report.removed]
    checks += [
        Check(
            "left behind", "warning", f"{kept.path} stays: {kept.reason}", "remove it by hand if it is yours"
        )
        for kept in report.kept
    ]
    return checks or [Check("left behind", "ok", "nothing")]
