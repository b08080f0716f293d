"""The durability that the user demands of a configuration.

`strict`       no acknowledged write is lost, neither at a process crash nor at a power cut.
`process`      none is lost at a process crash; at a power cut the newest may be, without a hole.
`bounded:N`    at either crash only acknowledgements of the last N may be lost, without a hole.

None of them ever allows corruption, phantoms or holes. Each may add `,recovery=T`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from knobs.errors import InvalidInput

ContractKind = Literal["strict", "process", "bounded"]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min)")
_MILLISECONDS = {"ms": 1.0, "s": 1_000.0, "min": 60_000.0}


@dataclass(frozen=True)
class Contract:
    """One contract: ``window_ms`` only where ``bounded``, ``recovery_s`` where a limit was named."""

    kind: ContractKind
    window_ms: float | None = None
    recovery_s: float | None = None

    @staticmethod
    def parse(text: str) -> Contract:
        """Read `strict`, `process`, `bounded:500ms`, each with an optional `,recovery=30s`.

        Raises InvalidInput for anything else.
        """
        head, *conditions = [part.strip() for part in text.split(",")]
        recovery_s = None
        for condition in conditions:
            name, _, value = condition.partition("=")
            if name != "recovery" or recovery_s is not None:
                raise _invalid(text)
            recovery_s = _duration_ms(value, text) / 1_000.0
        kind, _, window = head.partition(":")
        if kind == "strict" and not _:
            return Contract("strict", None, recovery_s)
        if kind == "process" and not _:
            return Contract("process", None, recovery_s)
        if kind == "bounded":
            return Contract("bounded", _duration_ms(window, text), recovery_s)
        raise _invalid(text)

    def __str__(self) -> str:
        head: str = self.kind
        if self.window_ms is not None:
            head = f"{self.kind}:{_text(self.window_ms)}"
        if self.recovery_s is not None:
            head += f",recovery={_text(self.recovery_s * 1_000.0)}"
        return head

    def in_words(self) -> str:
        """The contract as one sentence, for the first line of every output."""
        sentence = {
            "strict": "no acknowledged write is lost at a process crash or a power cut",
            "process": "no acknowledged write is lost at a process crash; "
            "at a power cut only the newest, without a hole",
            "bounded": f"only acknowledgements of the last {_text(self.window_ms or 0.0)} "
            "may be lost at a crash, without a hole",
        }[self.kind]
        if self.recovery_s is not None:
            sentence += f"; recovery within {_text(self.recovery_s * 1_000.0)}"
        return sentence


def _duration_ms(text: str, whole: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise _invalid(whole)
    return float(match[1]) * _MILLISECONDS[match[2]]


def _text(milliseconds: float) -> str:
    if milliseconds % 1_000.0 == 0:
        return f"{milliseconds / 1_000.0:g}s"
    return f"{milliseconds:g}ms"


def _invalid(text: str) -> InvalidInput:
    return InvalidInput(
        f"'{text}' is no contract",
        where="--contract",
        hint="use strict, process or bounded:500ms, each with an optional ,recovery=30s",
    )
