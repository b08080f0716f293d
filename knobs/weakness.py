"""A way in which settings weaken what an acknowledged write is worth, and whether a contract allows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from knobs.catalogue import Catalogue
from knobs.contract import Contract
from knobs.finding import Failure, Finding

Level = Literal["kept", "weakened", "unknown"]

# Every setting under its full name, normalised, defaults included.
InForce = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Weakness:
    """One way in which settings weaken a promise.

    ``holds`` looks at every option (normalised, defaults included). ``window_ms`` bounds how much is lost,
    None where nothing bounds it; it means nothing for failures other than a crash. ``only_newest`` says that
    the loss is the newest acknowledged writes and leaves no hole.
    """

    rule: str
    names: tuple[str, ...]
    failure: Failure
    holds: Callable[[InForce], bool]
    loss: str
    why: str
    window_ms: Callable[[InForce], float | None] = lambda _: None
    only_newest: bool = False

    def finding(self, catalogue: Catalogue, in_force: InForce) -> Finding:
        """The finding for settings under which this weakness holds, with the bound of the loss."""
        window = self.window_ms(in_force)
        loss = self.loss if window is None else f"{self.loss}, those of the last {window:g} ms at most"
        return Finding(
            rule=self.rule,
            setting=" + ".join(self.names),
            value=" + ".join(catalogue.spelled(name, in_force[name]) for name in self.names),
            failure=self.failure,
            loss=loss,
            why=self.why,
            source="; ".join(str(catalogue.knob(name).source) for name in self.names),
        )

    def breaks(self, in_force: InForce, contract: Contract) -> bool:
        """Whether the loss is more than the contract allows. A contract is about one host: `failover`, the
        loss when another takes over, breaks none."""
        if self.failure == "failover":
            return False
        if self.failure not in ("process-crash", "power-cut") or not self.only_newest:
            return True
        if contract.kind == "process":
            return self.failure == "process-crash"
        if contract.kind == "bounded":
            window = self.window_ms(in_force)
            return window is None or window > (contract.window_ms or 0.0)
        return True


def findings_of(
    weaknesses: Iterable[Weakness], catalogue: Catalogue, in_force: InForce, contract: Contract | None = None
) -> list[Finding]:
    """The findings of those that hold, and of these only what breaks the contract where one is given."""
    return [
        weakness.finding(catalogue, in_force)
        for weakness in weaknesses
        if weakness.holds(in_force) and (contract is None or weakness.breaks(in_force, contract))
    ]
