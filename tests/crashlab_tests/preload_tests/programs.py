"""The native parts that these tests run, built from the sources once a session, and recorded runs of them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.write_log import WriteLog
from workloads.ledger import Ledger

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "crashlab" / "preload"
LEDGER_HEADER = HERE.parents[2] / "workloads"
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
LOG_BYTES = 256 << 20


def compile_c(target: Path, sources: Sequence[Path], *options: str) -> Path:
    """Build one program or library; the compiler's words are the failure."""
    command: list[str | Path] = [
        "cc",
        "-std=c11",
        "-O1",
        "-g",
        *WARNINGS,
        *options,
        "-o",
        target,
        *sources,
        "-pthread",
        "-ldl",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def build_recorder(target: Path, *options: str) -> Path:
    sources = sorted(path for path in SOURCES.glob("*.c") if path.name != "canary.c")
    return compile_c(
        target,
        sources,
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        "-U_FORTIFY_SOURCE",
        f"-I{LEDGER_HEADER}",
        *options,
    )


@dataclass(frozen=True)
class Stage:
    """One root with its log and ledger, and the recorder that fills them."""

    recorder: PreloadRecorder
    root: Path
    log_path: Path
    ledger_path: Path

    @staticmethod
    def make(recorder: PreloadRecorder, folder: Path, log_bytes: int = LOG_BYTES) -> Stage:
        stage = Stage(recorder, folder / "root", folder / "write.log", folder / "ledger")
        stage.root.mkdir()
        WriteLog.create(stage.log_path, log_bytes)
        Ledger.create(stage.ledger_path, clients=1, capacity=1).close()
        return stage

    def environment(self, **more: str) -> dict[str, str]:
        recorded = self.recorder.environment(self.root, self.log_path, self.ledger_path)
        return {**os.environ, **recorded, **more}

    def start(self, *command: str | Path, **more: str) -> subprocess.Popen[str]:
        """Start a recorded program in the root, in a process group of its own."""
        return subprocess.Popen(
            command,
            env=self.environment(**more),
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *command: str | Path, seconds_max: float = 60.0, **more: str) -> str:
        """Run a recorded program to its end; it must end with 0."""
        process = self.start(*command, **more)
        try:
            output, _ = process.communicate(timeout=seconds_max)
        finally:
            kill_group(process)
        assert process.returncode == 0, output
        return output

    def log(self) -> WriteLog:
        return WriteLog.read(self.log_path)


def kill_group(process: subprocess.Popen[str]) -> None:
    """SIGKILL every process of the group, and wait for its leader."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
