"""Which recorder observes the recorded runs, as it was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from crashlab.block import recorder as block
from crashlab.block.file_system import FILE_SYSTEMS
from crashlab.block.recorder import BlockRecorder
from crashlab.models import MODELS
from crashlab.models.names import Metadata
from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.recorder import Recorder
from engines.process import Watcher
from knobs.errors import InvalidInput

RecorderName = Literal["preload", "block"]
DEFAULT_FILE_SYSTEM = "ext4"


@dataclass(frozen=True)
class RecorderChoice:
    """A recorder by its name; of `block` also the virtual disk's file system and mount options."""

    name: str = "preload"
    file_system: str = ""
    mount_options: str = ""

    @staticmethod
    def of(
        name: str, file_system: str | None, mount_options: str | None, metadata: Metadata = "ordered"
    ) -> RecorderChoice:
        """What the options ask for. Raises InvalidInput where they do not go together."""
        if name == "block":
            kind = file_system or DEFAULT_FILE_SYSTEM
            if kind not in FILE_SYSTEMS:
                raise InvalidInput(
                    f"no file system '{kind}' for a virtual disk",
                    where="--file-system",
                    hint=f"one of {', '.join(FILE_SYSTEMS)}",
                )
            if metadata != "ordered":
                raise InvalidInput(
                    "a real file system keeps names by its own rule",
                    where=f"--metadata {metadata}",
                    hint="leave it out, or use --recorder preload",
                )
            return RecorderChoice(name, kind, mount_options or "")
        for option, given in (("--file-system", file_system), ("--mount-options", mount_options)):
            if given:
                raise InvalidInput(
                    "only a virtual disk has a file system of its own",
                    where=option,
                    hint="add --recorder block, or leave it out",
                )
        return RecorderChoice(name)

    @staticmethod
    def recorded(name: str, file_system: str) -> RecorderChoice:
        """The recorder of a recorded run, by its facts."""
        kind, _, options = file_system.partition(" ")
        return RecorderChoice(name, kind, options)

    def made(self, watcher: Watcher | None) -> Recorder:
        """The recorder, its processes ended by ``watcher``. Raises MachineLacks where this machine cannot
        use it, with what to do about it."""
        if self.name == "preload":
            return PreloadRecorder()
        block.enter(self.file_system)
        return BlockRecorder(self.file_system, self.mount_options, watcher=watcher)

    def judging(self, models: Sequence[str]) -> list[str]:
        """Those of the models that its recordings are judged by: names are a real file system's own."""
        return [name for name in models if self.name == "preload" or MODELS[name].metadata == "ordered"]

    @property
    def in_words(self) -> str:
        """For the line that says how a run is recorded; "" for the default."""
        if self.name == "preload":
            return ""
        mounted = f", mounted with {self.mount_options}" if self.mount_options else ""
        return f"{self.name}: {self.file_system} on a virtual disk with a volatile write cache{mounted}"

    @property
    def options(self) -> list[str]:
        """As they would be typed again."""
        if self.name == "preload":
            return []
        mounted = ["--mount-options", self.mount_options] if self.mount_options else []
        return ["--recorder", self.name, "--file-system", self.file_system, *mounted]
