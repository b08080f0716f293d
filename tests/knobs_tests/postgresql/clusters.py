"""Private clusters for the tests of the catalogue: made once a version, started as an unprivileged user."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from knobs.postgresql import server

USER = "nobody" if os.geteuid() == 0 else None
_START_S = 30


def bindirs() -> list[Path]:
    """The servers of this machine, and those in the folders that DURATUNE_POSTGRESQL_BINDIRS lists."""
    listed = os.environ.get("DURATUNE_POSTGRESQL_BINDIRS", "")
    more = [Path(folder) for folder in listed.split(":") if folder]
    return [*server.bindirs(), *(folder for folder in more if (folder / "postgres").is_file())]


@contextmanager
def cluster(bindir: Path) -> Iterator[Path]:
    """A new data directory of that server, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="duratune-catalogue-") as scratch:
        folder = Path(scratch)
        if USER is not None:
            entry = pwd.getpwnam(USER)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        data = folder / "data"
        _as_user([bindir / "initdb", "-D", data, "-U", "duratune", "--no-sync", "--no-locale", "-E", "UTF8"])
        yield data


def refusal(bindir: Path, data: Path, settings: Mapping[str, str]) -> str | None:
    """Why the server does not start under the settings: all that it said; None where it starts."""
    own = {"listen_addresses": "", "unix_socket_directories": str(data.parent), "fsync": "off"}
    lines = [f"{name} = '{value}'\n" for name, value in {**own, **settings}.items()]
    (data / "postgresql.conf").write_text("".join(lines), encoding="utf-8")
    with subprocess.Popen(
        [bindir / "postgres", "-D", data],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        encoding="utf-8",
        user=USER,
        group=USER and pwd.getpwnam(USER).pw_gid,
        env={"LC_ALL": "C"},
        cwd="/",
    ) as process:
        assert process.stderr is not None
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if "ready to accept connections" in line:
                process.send_signal(signal.SIGINT)
        code = process.wait(_START_S)
    if any("ready to accept connections" in line for line in said):
        return None
    assert code != 0, said
    return "".join(said)


def query(bindir: Path, data: Path, sql: str) -> str:
    """The text that COPY of a query writes, asked in single-user mode."""
    answer = data.parent / "answer"
    text = f"COPY ({sql}) TO '{answer}'\n"
    _as_user([bindir / "postgres", "--single", "-D", data, "template1"], text)
    return answer.read_text(encoding="utf-8")


def _as_user(command: list[object], text: str = "") -> None:
    done = subprocess.run(
        [str(part) for part in command],
        input=text,
        capture_output=True,
        encoding="utf-8",
        user=USER,
        group=USER and pwd.getpwnam(USER).pw_gid,
        env={"LC_ALL": "C"},
        cwd="/",
    )
    assert done.returncode == 0 and "ERROR:" not in done.stderr, done.stderr
