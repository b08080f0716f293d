"""`duratune crash postgresql` on the configuration of a stopped cluster as Debian's packages lay it out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from engines.postgresql import binaries, server_user
from engines.postgresql.cluster import create
from tests.tuner_tests.crash_runs import Room

pytestmark = pytest.mark.usefixtures("native_parts", "postgresql")

QUICK = ("--states", "3", "--measure", "0.3", "--operations", "300", "--scale", "1", "--seed", "5")


@dataclass(frozen=True)
class Layout:
    """The root of a file system with one cluster of Debian's, ``main``; its server never ran."""

    root: Path
    major: str

    @property
    def etc(self) -> Path:
        return self.root / "etc/postgresql" / self.major / "main"

    @property
    def data(self) -> Path:
        return self.root / "var/lib/postgresql" / self.major / "main"

    @property
    def run(self) -> Path:
        return self.root / "var/run/postgresql"

    @property
    def archived(self) -> Path:
        """What the archive_command would make."""
        return self.root / "var/archived"

    def overridden(self) -> dict[str, str]:
        """What postgresql-common's pg_createcluster(1) states and no private cluster takes over, and what an
        administrator adds in conf.d."""
        tls = self.root / "etc/ssl"
        return {
            "data_directory": str(self.data),
            "hba_file": str(self.etc / "pg_hba.conf"),
            "ident_file": str(self.etc / "pg_ident.conf"),
            "external_pid_file": str(self.run / f"{self.major}-main.pid"),
            "listen_addresses": "*",
            "port": "5433",
            "unix_socket_directories": str(self.run),
            "ssl": "on",
            "ssl_cert_file": str(tls / "ssl-cert-snakeoil.pem"),
            "ssl_key_file": str(tls / "ssl-cert-snakeoil.key"),
            "cluster_name": f"{self.major}/main",
            **({"stats_temp_directory": str(self.run / "main.stat")} if int(self.major) < 15 else {}),
        }

    def messages(self) -> dict[str, str]:
        """What duratune must read in the server's log, and so states itself."""
        return {"log_line_prefix": "%m [%p] %q%u@%d ", "log_timezone": "Etc/UTC", "lc_messages": "C.UTF-8"}

    def added(self) -> dict[str, str]:
        """In conf.d."""
        return {
            "archive_mode": "on",
            "archive_command": f"touch {self.archived}",
            "shared_preload_libraries": "pg_stat_statements",
        }

    @staticmethod
    def make(root: Path) -> Layout:
        found = binaries.find()
        layout = Layout(root, str(found.version.major))
        for folder in (layout.etc / "conf.d", layout.data.parent, layout.run):
            folder.mkdir(parents=True)
        made = create(found, server_user.choose(), layout.data.parent)
        made.data.rename(layout.data)
        for name in ("postgresql.conf", "pg_hba.conf", "pg_ident.conf"):
            (layout.data / name).rename(layout.etc / name)
        (layout.etc / "start.conf").write_text("auto\n")
        kept = {
            "max_connections": "100",
            "shared_buffers": "128MB",
            "dynamic_shared_memory_type": "posix",
            "max_wal_size": "1GB",
            "min_wal_size": "80MB",
            "datestyle": "'iso, mdy'",
            "timezone": "'Etc/UTC'",
            "default_text_search_config": "'pg_catalog.english'",
        }
        stated = [f"{name} = '{value}'" for name, value in (layout.overridden() | layout.messages()).items()]
        stated += [f"{name} = {value}\t\t# (change requires restart)" for name, value in kept.items()]
        (layout.etc / "postgresql.conf").write_text("\n".join([*stated, "include_dir = 'conf.d'", ""]))
        own = [*(f"{name} = '{value}'" for name, value in layout.added().items()), "work_mem = 8MB", ""]
        (layout.etc / "conf.d/own.conf").write_text("\n".join(own))
        (layout.etc / "conf.d/notes.txt").write_text("no setting: it is not named *.conf\n")
        return layout

    def content(self) -> dict[str, tuple[object, ...]]:
        """Of everything in it owner, mode, time of change and a hash of what is in it."""
        found: dict[str, tuple[object, ...]] = {}
        for path in sorted(self.root.rglob("*")):
            status = path.lstat()
            hashed = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            found[str(path.relative_to(self.root))] = (
                status.st_uid,
                status.st_gid,
                status.st_mode,
                status.st_mtime_ns,
                status.st_ctime_ns,
                hashed,
            )
        return found


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room.make(tmp_path)
    yield room
    assert room.left_behind() == []


@pytest.mark.slow
def test_a_stopped_cluster_stays_as_it_is_and_every_override_is_listed(room: Room, tmp_path: Path) -> None:
    layout = Layout.make(tmp_path / "system")
    conf = layout.etc / "postgresql.conf"
    before = layout.content()
    ended = room.run("crash", "postgresql", str(conf), *QUICK, "--study", "run")
    assert ended.code == 0 and "verdict        HELD" in ended.out, ended
    assert layout.content() == before
    assert not layout.archived.exists() and list(layout.run.iterdir()) == []
    document = json.loads((room.folder / "run/crash.json").read_text())
    told = {finding["setting"]: finding for finding in document["findings"]}
    outside = layout.overridden() | layout.added()
    assert {name for name, finding in told.items() if finding["rule"] == "outside-overridden"} == {*outside}
    assert {name for name, finding in told.items() if finding["rule"] == "overridden"} == {*layout.messages()}
    for name, value in (outside | layout.messages()).items():
        assert told[name]["value"] == value and told[name]["why"], name
        assert name in ended.out, "it is listed for a person too"
    assert told["port"]["source"] == f"{conf}:{[*outside].index('port') + 1}"
    assert told["archive_command"]["source"] == f"{layout.etc / 'conf.d/own.conf'}:2"
    # What is no path, port or command is taken, from the included file too.
    effective = document["effective"]
    assert (effective["work_mem"], effective["min_wal_size"], effective["TimeZone"]) == (
        "8192",
        "80",
        "Etc/UTC",
    )
    assert (effective["archive_mode"], effective["shared_preload_libraries"]) == ("off", "")


@pytest.mark.slow
def test_a_change_of_the_other_cluster_would_be_seen(tmp_path: Path) -> None:
    """The same content written again, another mode, a new file: each makes another picture."""
    layout = Layout.make(tmp_path / "system")
    seen = [layout.content()]
    version = layout.data / "PG_VERSION"
    version.write_bytes(version.read_bytes())
    seen.append(layout.content())
    version.chmod(0o640)
    seen.append(layout.content())
    (layout.run / ".s.PGSQL.5433").touch()
    seen.append(layout.content())
    assert all(first != second for first, second in pairwise(seen))
