"""What the catalogue predicts of settings before anything runs: told, never a verdict."""

from __future__ import annotations

from collections.abc import Mapping

from knobs.catalogue import Settings
from knobs.finding import Finding
from knobs.rocksdb import durability
from tuner.request import Request


def stated_settings(request: Request, settings: Mapping[str, str]) -> Settings:
    """Everything that is stated: the user's OPTIONS file with the settings over it."""
    return request.engine.stated(settings)


def predicted(request: Request, settings: Mapping[str, str]) -> list[Finding]:
    """The findings that break the request's contract by the catalogue, and what is risky besides."""
    stated = stated_settings(request, settings)
    return [*durability.breaking(stated, request.contract), *durability.caveats(stated)]


def recovery_ignores(request: Request, settings: Mapping[str, str]) -> list[str]:
    """The settings by which a recovery leaves durable bytes out, as `name=value`."""
    findings = durability.promise(stated_settings(request, settings)).findings
    return [f"{finding.setting}={finding.value}" for finding in findings if finding.failure == "recovery"]
