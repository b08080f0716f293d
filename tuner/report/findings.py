"""Findings as lines for a person. JSON keeps every finding by itself; here one thing is told once."""

from __future__ import annotations

from collections.abc import Sequence

from knobs.finding import Finding

OVERRIDDEN = {
    "outside-overridden": "",
    "overridden": "the private cluster has a value of duratune's own",
}
"""The rules of settings that are not taken over, with the words for several that have no words in common."""


def finding_lines(findings: Sequence[Finding], about: str = "") -> list[str]:
    """What is set, how that comes to matter, what is lost, and where it says so, each cause on one line.

    Findings of one rule about the same values, such as what a setting opens at a kill and at a power cut,
    share a line, and so do the settings that are overridden. ``about`` names what the findings are of.
    """
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        groups.setdefault(_cause(finding), []).append(finding)
    return [f"finding        {about}{_told(group)}" for group in groups.values()]


def _cause(finding: Finding) -> tuple[str, ...]:
    if finding.rule in OVERRIDDEN and not finding.failure:
        return (finding.rule, OVERRIDDEN[finding.rule] or finding.why)
    return (finding.rule, finding.setting, finding.value)


def _told(group: Sequence[Finding]) -> str:
    first = group[0]
    if len({finding.setting for finding in group}) > 1:
        words = OVERRIDDEN[first.rule] or first.why
        sources = dict.fromkeys(_file(finding.source) for finding in group)
        return f"{', '.join(finding.setting for finding in group)}: {words} [{', '.join(sources)}]"
    words = "; ".join(
        dict.fromkeys(
            part
            for finding in group
            for part in (finding.why, finding.loss if finding.failure else "")
            if part
        )
    )
    return f"{first.in_words}: {words} [{'; '.join(dict.fromkeys(each.source for each in group))}]"


def _file(source: str) -> str:
    """The file of a place in it, ``FILE:LINE``."""
    name, _, line = source.rpartition(":")
    return name if name and line.isdigit() else source
