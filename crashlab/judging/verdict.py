"""The three-valued verdict, and what a judgement of one crash state carries.

BROKEN > UNKNOWN > HELD: the worst wins. An exception inside a judgement is UNKNOWN, never HELD.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

CrashKind = Literal["process-crash", "power-cut"]

Reason = Literal[
    "lost-ack",  # an acknowledged write is gone that the contract keeps
    "corrupt",  # a record that fails its checksum, or stands under another key
    "phantom",  # content that nobody wrote
    "hole",  # a write survived that began after a lost one had been acknowledged
    "unrecoverable",  # the engine does not come back
    "over-bound",  # more is lost than the contract allows
    "slow-recovery",  # over the contract's recovery limit
]


class Verdict(Enum):
    """HELD, UNKNOWN or BROKEN, ordered by how bad it is."""

    HELD = "HELD"
    UNKNOWN = "UNKNOWN"
    BROKEN = "BROKEN"

    @property
    def badness(self) -> int:
        return ("HELD", "UNKNOWN", "BROKEN").index(self.value)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of the verdicts; UNKNOWN where there are none, because nothing was judged."""
    return max(verdicts, key=lambda verdict: verdict.badness, default=Verdict.UNKNOWN)


@dataclass(frozen=True)
class LostWrite:
    """One acknowledged write that a recovered state does not hold."""

    register: int
    client: int
    sequence: int
    ack_position: int
    ack_ns: int

    def as_json(self) -> dict[str, Any]:
        return {
            "register": self.register,
            "client": self.client,
            "sequence": self.sequence,
            "ack_position": self.ack_position,
        }


@dataclass(frozen=True)
class Judgement:
    """What one recovered state was judged to be, with its evidence.

    ``acks`` counts the acknowledged writes before the cut, ``decidable`` those of them whose loss
    alone would be visible, ``lost`` those that are gone. ``loss_ms`` is the time from the oldest
    lost acknowledgement to the cut (0 where nothing is lost). ``lost_initial`` counts records of
    the loaded base that are gone. ``unknown_why`` is set only where the verdict is UNKNOWN.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...] = ()
    acks: int = 0
    decidable: int = 0
    lost: int = 0
    lost_initial: int = 0
    loss_ms: float = 0.0
    first_lost: LostWrite | None = None
    evidence: tuple[str, ...] = ()
    unknown_why: str = ""
    lost_indices: tuple[int, ...] = field(default=(), repr=False)

    @staticmethod
    def unknown(why: str, acks: int = 0) -> Judgement:
        """A judgement that could not be made, and why."""
        return Judgement(Verdict.UNKNOWN, acks=acks, unknown_why=why)
