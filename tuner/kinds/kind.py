"""What the commands must know of one engine, beside what the lab knows of it.

Everything here is a question that a command, a search or a report asks in the same way of every engine; an
engine's answers are one file beside this one, and a line in the registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from crashlab.recording.recorded import Facts
from engines.engine import Engine, LogReader
from engines.process import Watcher
from engines.scratch import Scratch
from knobs.catalogue import Catalogue, Settings
from knobs.contract import Contract
from knobs.errors import InvalidInput
from knobs.finding import Finding
from knobs.knob import Source, TuningRange
from tuner.options import Asked
from tuner.proposers.proposal import HostLimits, Proposal, Proposer


class TunedCatalogue(Catalogue, Protocol):
    """A catalogue that also knows every default."""

    def in_force(self, settings: Mapping[str, str]) -> dict[str, str]: ...


class TunedEngine(Engine, Protocol):
    """An engine that can be searched as well as crashed."""

    def stated(self, settings: Mapping[str, str]) -> Settings:
        """Everything that is stated: the user's files with the settings over it."""

    def bound(self, scratch: Scratch, watcher: Watcher | None, folder: Path) -> TunedEngine: ...


@dataclass(frozen=True)
class Chosen:
    """What the options say of the engine. ``settings`` are what CONFIG and --set state, normalised;
    ``options`` its own ones, as they would be typed again; ``notes`` is what the user did not ask for and is
    told: which of several programs, run as whom; ``unheld`` why no configuration of it can be held, ""
    where one can."""

    engine: TunedEngine
    catalogue: TunedCatalogue
    settings: Settings
    sources: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    options: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unheld: str = ""


@dataclass(frozen=True)
class MemoryNeed:
    """What settings may hold at once: bytes, who holds them, and the sum's terms where it has any."""

    wanted_bytes: int
    who: str
    terms: Sequence[str] = ()


class Rules(Protocol):
    """What the catalogue says of settings before anything runs, and of a run's settings after it."""

    def breaking(self, catalogue: Catalogue, stated: Mapping[str, str], contract: Contract) -> list[Finding]:
        """What breaks the contract, by prediction."""

    def caveats(self, catalogue: Catalogue, stated: Mapping[str, str]) -> list[Finding]:
        """What is risky although it breaks no contract."""

    def promised(self, catalogue: Catalogue, stated: Mapping[str, str]) -> Sequence[Finding]:
        """Everything that weakens what settings promise by themselves."""

    def differences(
        self, catalogue: Catalogue, engine: TunedEngine, settings: Mapping[str, str], effective: str
    ) -> list[Finding]:
        """What was proposed and is not in force, of the text that a run left of the settings."""

    def memory(self, catalogue: TunedCatalogue, stated: Mapping[str, str], clients: int) -> MemoryNeed: ...


class Search(Protocol):
    """What is searched, and who proposes.

    ``rivals`` are proposers whose first start point a winner is measured against, beside the reference.
    """

    rivals: Sequence[str]

    def proposers(self, catalogue: Catalogue) -> Sequence[Proposer]:
        """Who proposes start points, in their order."""

    def ranges(
        self, catalogue: Catalogue, host: HostLimits, window_ms: float | None, is_audit: bool
    ) -> dict[str, TuningRange]:
        """The ranges for this host; with those that a contract's window pays for, or that an audit adds."""

    def speed_alone(self, catalogue: Catalogue, reference: Mapping[str, str]) -> list[Proposal]:
        """What somebody who looks at speed alone tries first."""


class Writing(Protocol):
    """How settings are written for people."""

    def files(self, engine: TunedEngine, settings: Mapping[str, str]) -> Mapping[str, str]:
        """A configuration to take away: texts by the names of files, which joined by `+` are a CONFIG."""


class Kind(Protocol):
    """One engine, as the commands ask for it. ``families`` are the workloads that can drive it, the default
    one's first; ``effective_name`` is the file that keeps a trial's settings in force; ``beyond_files`` says
    where settings live that no configuration file states, "" where there are none; ``state_s`` is how long
    one crash state takes to be recovered and judged, about; ``trial_share`` how long a
    trial's recording and few states take, about, in shares of the controls' time; ``recorded`` how many
    operations of a trial are recorded; ``label`` stands before its controls in doctor's report."""

    name: str
    title: str
    package: str
    families: Sequence[str]
    default_workload: str
    clients: int
    effective_name: str
    beyond_files: str
    state_s: float
    trial_share: float
    recorded: int
    label: str

    @property
    def log_reader(self) -> LogReader: ...

    @property
    def rules(self) -> Rules: ...

    @property
    def search(self) -> Search: ...

    @property
    def writing(self) -> Writing: ...

    def choose(self, asked: Asked) -> Chosen:
        """Resolve engine and settings. Raises InvalidInput with every fault, MachineLacks where it is not
        there."""

    def parse(self, asked: Asked, pairs: Sequence[str], where: str) -> Settings:
        """The values of NAME=VALUE words under full names. Raises InvalidInput with every fault."""

    def refuse(self, chosen: Chosen, clients: int) -> None:
        """Raises InvalidInput or MachineLacks for settings that cannot run under so many clients, here."""

    def again(self, folder: Path, facts: Facts, asked: Asked) -> Chosen:
        """Engine and settings of the recording in ``folder``; of the options only those count that name the
        engine's programs. Raises InvalidInput where the engine cannot recover what was recorded."""


def checked(
    known: Catalogue, settings: Mapping[str, str], origins: Mapping[str, Source] | None = None
) -> Settings:
    """The settings in the catalogue's own spelling.

    Raises InvalidInput with every fault, and with the places of ``origins`` where wrong values stand.
    """
    try:
        known.validate(settings)
    except InvalidInput as error:
        places = [str(origin) for name, origin in (origins or {}).items() if _is_wrong(known, name, settings)]
        where = ", ".join(dict.fromkeys(places)) or error.where
        raise InvalidInput(error.what, where=where, hint=error.hint) from error
    return {name: known.normalise(name, value) for name, value in settings.items()}


def _is_wrong(known: Catalogue, name: str, settings: Mapping[str, str]) -> bool:
    """Whether a setting is wrong by itself."""
    try:
        known.validate({name: settings[name]})
    except InvalidInput:
        return True
    return False
