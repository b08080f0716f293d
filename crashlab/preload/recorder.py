"""The launch side of the preload recorder: its environment, its canary, and whether it is believed.

Not covered here: what the library itself cannot see (record.h); it counts that in the log's header.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from crashlab.recording.fault import Fault
from crashlab.recording.recorder import CanaryFile, CanaryReport
from crashlab.recording.stage import Stage, Staging, folder_stage
from crashlab.recording.write_log import Kind, Operation, WriteLog
from knobs import native
from knobs.errors import InvalidInput, Undecided

CANARY_SECONDS_MAX = 60


class PreloadRecorder:
    """Records by a library in the engine's own processes; needs no privileges."""

    name = "preload"

    def __init__(self, library: Path | None = None, canary: Path | None = None) -> None:
        """Use the installed library and canary, or the given ones."""
        self._library = library
        self._canary = canary

    @property
    def plain(self) -> PreloadRecorder:
        """It is asked for nothing."""
        return self

    def stage(self, staging: Staging) -> AbstractContextManager[Stage]:
        """A folder where the data lie."""
        return folder_stage(staging)

    def environment(self, root: Path, log: Path, ledger: Path) -> dict[str, str]:
        """LD_PRELOAD and what the library reads, to be added to the engine's environment.

        Our library comes last in LD_PRELOAD: what is already there (an allocator, a planted fault)
        stays before it, and a call that never reaches the kernel is not recorded either. A
        sanitizer's runtime is told that it need not be first. Raises MachineLacks where the library
        was not built, InvalidInput where its path cannot be preloaded.
        """
        return {
            **self._preloaded(),
            "DURATUNE_RECORD_LOG": str(log.resolve()),
            "DURATUNE_RECORD_ROOT": str(root.resolve()),
            "DURATUNE_RECORD_LEDGER": str(ledger.resolve()),
        }

    def acks_environment(self, ledger: Path, processes: Path) -> dict[str, str]:
        """As `environment`, for a run without a write log: acknowledgements are stamped in ``ledger``
        and processes report in ``processes`` (`ProcessList`); every other call passes.

        DURATUNE_RECORD_LOG must not be in the environment that this is added to. Raises as
        `environment` does.
        """
        return {
            **self._preloaded(),
            "DURATUNE_RECORD_LEDGER": str(ledger.resolve()),
            "DURATUNE_RECORD_PROCESSES": str(processes.resolve()),
        }

    def fault_environment(self, fault: Fault, files: str) -> dict[str, str]:
        """What is added to `environment` so that one call fails (faults.c)."""
        of_some = {"DURATUNE_RECORD_FAULT_FILES": files} if files else {}
        return {"DURATUNE_RECORD_FAULT": f"{fault.kind}@{fault.nth}", **of_some}

    @property
    def shared_library(self) -> Path:
        """The library that is preloaded. Raises MachineLacks where it was not built."""
        return self._library or native.find("libduratune_record.so")

    def _preloaded(self) -> dict[str, str]:
        library = self.shared_library
        if any(character in str(library) for character in " :"):
            raise InvalidInput(
                "LD_PRELOAD cannot name a path with a space or a colon",
                where=str(library),
                hint="install duratune in a folder without them",
            )
        already = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
        sanitizer = os.environ.get("ASAN_OPTIONS", "")
        return {
            "LD_PRELOAD": " ".join([*already, str(library)]),
            "ASAN_OPTIONS": ":".join(filter(None, [sanitizer, "verify_asan_link_order=0"])),
        }

    def run_canary(self, root: Path, log: Path, ledger: Path) -> CanaryReport:
        """Run the canary below ``root``, which must not hold a folder ``canary`` yet.

        Raises Undecided where it fails, and MachineLacks where it was not built.
        """
        program = self._canary or native.find("duratune-canary")
        environment = {**os.environ, **self.environment(root, log, ledger)}
        try:
            done = subprocess.run(
                [program, root.resolve()],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=CANARY_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise _failed(root, f"did not end within {CANARY_SECONDS_MAX} s") from error
        if done.returncode != 0:
            raise _failed(root, f"ended with {done.returncode}: {done.stderr.strip()}")
        try:
            return _report(json.loads(done.stdout))
        except (ValueError, KeyError, TypeError) as error:
            raise _failed(root, f"printed no report: {error!r}") from error

    def check_canary(self, log: WriteLog, report: CanaryReport) -> list[str]:
        """Which of the canary's operations the log lacks, or holds otherwise than they were.

        The canary has one thread, so the log must hold exactly its list, in its order.
        """
        recorded = [o for o in log.operations if o.pid == report.pid and o.kind is not Kind.ATTACH]
        return list(_differences(recorded, report))


def _differences(recorded: list[Operation], report: CanaryReport) -> Iterator[str]:
    following = 0
    for number, wanted in enumerate(report.operations, start=1):
        # After a missing one the next may match, so each looks ahead, and none looks back.
        found = next((i for i in range(following, len(recorded)) if _is(recorded[i], wanted)), None)
        if found is None:
            yield f"the log lacks the canary's operation {number}: {_in_words(wanted)}"
            continue
        for extra in recorded[following:found]:
            yield f"the log holds what the canary did not do: {extra.kind.name.lower()} at {extra.begin}"
        following = found + 1
    for extra in recorded[following:]:
        yield f"the log holds what the canary did not do: {extra.kind.name.lower()} at {extra.begin}"


def _is(operation: Operation, wanted: Mapping[str, Any]) -> bool:
    if operation.end is None or operation.kind.name.lower() != wanted["kind"]:
        return False
    data = wanted.get("data", "").encode()
    if operation.kind is Kind.WRITE and operation.result != len(data):
        return False
    if "result" in wanted and operation.result != wanted["result"]:
        return False
    if "data" in wanted and bytes(operation.data) != data:
        return False
    members = ("path", "new_path", "inode", "a", "b", "flags")
    return all(getattr(operation, member) == wanted[member] for member in members if member in wanted)


def _in_words(wanted: Mapping[str, Any]) -> str:
    call = wanted.get("call", wanted["kind"])
    if wanted.get("flags") == 2 and "path" not in wanted:
        call = f"{call} of a folder"
    return f"{call} {wanted.get('path', '')}".rstrip()


def _report(printed: Mapping[str, Any]) -> CanaryReport:
    return CanaryReport(
        pid=int(printed["pid"]),
        operations=tuple(printed["operations"]),
        files=tuple(
            CanaryFile(entry["path"], entry["survives"].encode(), entry["lost"].encode())
            for entry in printed["files"]
        ),
    )


def _failed(root: Path, what: str) -> Undecided:
    return Undecided(
        f"the canary {what}",
        where=str(root / "canary"),
        hint="the recorder cannot be believed on this machine; see `duratune doctor`",
    )
