"""What the catalogue predicts of settings before anything runs: told, never a verdict."""

from __future__ import annotations

from collections.abc import Mapping

from knobs.catalogue import Settings
from knobs.finding import Finding
from tuner.request import Request


def stated_settings(request: Request, settings: Mapping[str, str]) -> Settings:
    """Everything that is stated: the user's file with the settings over it."""
    return request.engine.stated(settings)


def breaking(request: Request, settings: Mapping[str, str]) -> list[Finding]:
    """The findings that break the request's contract by the catalogue."""
    stated = stated_settings(request, settings)
    return request.kind.rules.breaking(request.catalogue, stated, request.contract)


def predicted(request: Request, settings: Mapping[str, str]) -> list[Finding]:
    """The same, and what is risky besides."""
    stated = stated_settings(request, settings)
    return [*breaking(request, settings), *request.kind.rules.caveats(request.catalogue, stated)]


def recovery_ignores(request: Request, settings: Mapping[str, str]) -> list[str]:
    """The settings by which a recovery leaves durable bytes out, as people write them."""
    findings = request.kind.rules.promised(request.catalogue, stated_settings(request, settings))
    return [finding.in_words for finding in findings if finding.failure == "recovery"]


def differences(request: Request, settings: Mapping[str, str], effective: str) -> list[Finding]:
    """What was proposed and is not in force, of the text that a run left of the settings."""
    return request.kind.rules.differences(request.catalogue, request.engine, settings, effective)
