"""Crash states of one write log as folders: an image is chosen by its model, and written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crashlab.block.states import DiskStates
from crashlab.models import MODELS
from crashlab.recording.recorded import Logged
from crashlab.states.digest import digest
from crashlab.states.disk import Image
from crashlab.states.materialise import Materialiser
from crashlab.states.plan import PlannedState
from engines.scratch import remove_tree

DATA_ROLES = ("table", "relation", "transactions", "control")


@dataclass(frozen=True)
class Built:
    """A state's database: where it is, whether its data files are other than the clean base's, and how many
    bytes its logs have, which an engine may have made at their full size beforehand."""

    database: Path
    is_touched: bool
    log_bytes: int


class Builder:
    """Builds states of one log; several threads may build at once, each over targets of its own."""

    def __init__(self, logged: Logged, pool: Path, *, base_is_touched: bool = False) -> None:
        """``pool`` takes what several states share. ``base_is_touched`` tells that the base is itself a crash
        state."""
        pool.mkdir()
        self._logged = logged
        self._base_is_touched = base_is_touched
        self._materialiser = Materialiser(pool, logged.base, logged.reader)
        file_system = logged.facts.file_system
        self._disks = DiskStates(logged.folder, file_system) if file_system else None
        # What is read lazily is read here, once, and not by two threads at the same time.
        _ = logged.horizons

    @contextmanager
    def built(self, state: PlannedState, image: Image, target: Path) -> Iterator[Built]:
        """The state, whose image it is, below ``target``, built anew or over one that was built here before;
        of a power cut on a virtual disk it is mounted there as long as this lasts.

        Raises OSError where it cannot be written, NotMounted where its file system does not come back.
        """
        disks = self._disks if state.crash == "power-cut" else None
        if disks is None:
            yield self._write(image, target)
            return
        remove_tree(target)
        with disks.built(image, target) as database:
            # What the file system has made of its files is not known.
            yield Built(database, True, 0)

    def image(self, state: PlannedState) -> Image:
        """What the crash leaves of the files, or of the virtual disk."""
        return self._logged.image(MODELS[state.model], state.position, state.seed)

    def content(self, state: PlannedState, image: Image) -> bytes:
        """One for each content that recovery reads."""
        is_disk = self._disks is not None and state.crash == "power-cut"
        return digest(image, (lambda _: True) if is_disk else self._materialiser.reads)

    def build(self, state: PlannedState, target: Path) -> Built:
        """The files' own state below ``target``, anew or over one that was built here before.

        Raises OSError where it cannot be written.
        """
        logged = self._logged
        return self._write(
            MODELS[state.model].image(logged.disk, logged.horizons, state.position, state.seed), target
        )

    def _write(self, image: Image, target: Path) -> Built:
        logged = self._logged
        database = self._materialiser.build(image, target)
        roles = {path: logged.reader.role(path) for path in image.files}
        logs = [target / path for path, role in roles.items() if role == "wal"]
        return Built(
            database,
            self._base_is_touched
            or any(not file.untouched and roles[path] in DATA_ROLES for path, file in image.files.items()),
            sum(log.stat().st_size for log in logs if log.exists()),
        )
