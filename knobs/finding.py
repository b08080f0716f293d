"""Something worth telling about a setting, with the rule that found it and its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Failure = Literal[
    "",
    "process-crash",
    "power-cut",
    "torn-page",
    "failover",
    "recovery",
    "hidden-corruption",
    "does-not-start",
]

_JOINT = " + "


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; ``failure`` is "" where nothing is lost or damaged.

    ``setting`` holds full names joined by " + ", ``value`` their values joined by " + ". ``loss`` says
    in plain words what is lost, ``why`` how that comes about, ``source`` where it is written.
    """

    rule: str
    setting: str
    value: str
    failure: Failure
    loss: str
    why: str
    source: str

    @property
    def settings(self) -> list[str]:
        """The full names of the settings that it is about."""
        return self.setting.split(_JOINT)

    @property
    def in_words(self) -> str:
        """The settings as people write them: ``a=x, b=y``."""
        names, values = self.settings, self.value.split(_JOINT)
        if len(names) == 1 or len(names) != len(values):
            return f"{self.setting}={self.value}"
        return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))

    def as_dict(self) -> dict[str, str]:
        """The finding for JSON output."""
        return {name: getattr(self, name) for name in self.__slots__}
