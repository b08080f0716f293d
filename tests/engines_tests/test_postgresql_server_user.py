from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engines.postgresql import server_user
from engines.postgresql.server_user import ServerUser, choose
from knobs.errors import InvalidInput, MachineLacks

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.usefixtures("as_root")
def test_root_gets_somebody_who_is_not_the_production_servers_user() -> None:
    user = choose()
    assert user.is_other and user.name == "nobody" and user.uid == pwd.getpwnam("nobody").pw_uid
    assert "runs as nobody" in user.note


@pytest.mark.usefixtures("as_root")
def test_the_processes_have_none_of_roots_groups(user: ServerUser) -> None:
    done = subprocess.run(["id"], **user.popen(), capture_output=True, text=True)
    assert f"uid={user.uid}" in done.stdout and "root" not in done.stdout


@pytest.mark.usefixtures("as_root")
def test_who_cannot_be_had() -> None:
    with pytest.raises(InvalidInput, match="no such user"):
        choose("no-such-user")
    with pytest.raises(InvalidInput, match="refuses to run as root"):
        choose("root")


@pytest.mark.usefixtures("as_root")
def test_nobody_else_is_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_user, "CANDIDATES", ("no-such-user",))
    with pytest.raises(MachineLacks, match="no other user can be had") as caught:
        choose()
    assert "CAP_SETUID" in caught.value.hint


@pytest.mark.usefixtures("as_root")
def test_root_without_the_capability_is_told() -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv here")
    source = "from engines.postgresql.server_user import choose; choose()"
    command = ["setpriv", "--bounding-set=-setuid,-setgid", "--inh-caps=-setuid,-setgid"]
    done = subprocess.run(
        [*command, sys.executable, "-c", source],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
    )
    assert "MachineLacks" in done.stderr and "root cannot become this user" in done.stderr


def test_what_the_user_may(user: ServerUser, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert user.may(Path("/"), "x") and not user.may(tmp_path / "absent", "r")
    assert not (user.is_other and user.may(tmp_path, "x"))


def test_another_runs_it_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = pwd.getpwnam("nobody")
    monkeypatch.setattr(os, "geteuid", lambda: nobody.pw_uid)
    own = choose()
    assert (own.name, own.is_other, own.note, own.popen()) == ("nobody", False, "", {})
    with pytest.raises(InvalidInput, match="cannot run as postgres"):
        choose("postgres")
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(MachineLacks, match="has no name"):
        choose()
