"""The spec of a driver's run: a plan and properties as its keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workloads.workload import Plan
from workloads.ycsb.driver import lifeline


def run_spec(
    properties: Mapping[str, str], plan: Plan, ledger: Path | None, database: Mapping[str, str]
) -> dict[str, str]:
    """All keys of `load` and `run`; ``database`` are those that say which instance."""
    written = {"ledger": "off"} if ledger is None else {"ledger.path": str(ledger)}
    return {**database, **properties, **_plan_spec(plan), **lifeline(), **written}


def _plan_spec(plan: Plan) -> dict[str, str]:
    names = {"target_per_s": "target"}
    spec = {names.get(key, key): str(value) for key, value in vars(plan).items()}
    return spec | {"stop_after": str(plan.stop_after).lower()}
