"""The set-up of a machine: which packages are installed, when, and what a second make costs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Machine:
    """A planted machine: its programs are scripts that write down how they are called."""

    folder: Path

    def plant(self, program: str, script: str) -> None:
        path = self.folder / "bin" / program
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def set_up(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", str(self.folder / ".ci" / "system-packages")],
            env={"PATH": str(self.folder / "bin"), **environment},
            capture_output=True,
            text=True,
        )

    def calls(self) -> list[str]:
        log = self.folder / "calls"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Debian, root, with nothing of the list installed but make."""
    planted = Machine(tmp_path)
    (tmp_path / ".ci").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(CHECKOUT / ".ci" / "system-packages", tmp_path / ".ci")
    (tmp_path / "system-packages.txt").write_text("# A comment.\nmake\ng++  # And one here.\ncmake\n")
    for program in ("sed", "dirname", "env"):
        found = shutil.which(program)
        assert found is not None
        (tmp_path / "bin" / program).symlink_to(found)
    planted.plant("id", "echo 0")
    # dpkg-query -W -f FORMAT PACKAGE
    planted.plant("dpkg-query", '[ "$4" = make ] && echo -n installed || exit 1')
    planted.plant("apt-get", f'echo "$@" >> {tmp_path}/calls')
    return planted


INSTALL = "install -y -qq --no-install-recommends g++ cmake"


def test_what_is_missing_is_named_and_installed(machine: Machine) -> None:
    done = machine.set_up()
    assert done.returncode == 0, done.stderr
    assert done.stderr == "duratune: installing system packages: g++ cmake\n"
    assert machine.calls() == [INSTALL]


def test_postgresql_is_installed_without_a_cluster(machine: Machine) -> None:
    """While it is installed a file says that no cluster is to be made, and afterwards what it said before."""
    conf = machine.folder / "createcluster.conf"
    conf.write_text("# The administrator's own.\n")
    (machine.folder / "system-packages.txt").write_text("make\npostgresql\n")
    for program in ("cp", "mv", "tee", "tail"):
        found = shutil.which(program)
        assert found is not None
        (machine.folder / "bin" / program).symlink_to(found)
    machine.plant(
        "apt-get", f'echo "$@" "($(tail -n 1 {conf}))" >> {machine.folder}/calls; [ "$5" != postgresql ]'
    )
    done = machine.set_up(CREATECLUSTER_CONF=str(conf))
    install = "install -y -qq --no-install-recommends"
    attempt = [f"{install} postgresql-common (# The administrator's own.)"]
    attempt += [f"{install} postgresql (create_main_cluster = false)"]
    assert machine.calls() == [*attempt, "update -qq (# The administrator's own.)", *attempt]
    assert done.returncode != 0, "the planted installation fails both times"
    assert conf.read_text() == "# The administrator's own.\n"
    assert list(machine.folder.glob("createcluster.conf.*")) == []


def test_a_complete_machine_is_left_alone(machine: Machine) -> None:
    machine.plant("dpkg-query", "echo -n installed")
    done = machine.set_up()
    assert (done.returncode, done.stderr, machine.calls()) == (0, "", [])


def test_a_package_that_was_removed_counts_as_missing(machine: Machine) -> None:
    machine.plant("dpkg-query", '[ "$4" = cmake ] && echo -n config-files || echo -n installed')
    machine.set_up()
    assert machine.calls() == ["install -y -qq --no-install-recommends cmake"]


def test_the_package_lists_are_fetched_only_when_needed(machine: Machine) -> None:
    machine.plant(
        "apt-get",
        f'echo "$@" >> {machine.folder}/calls; [ "$1" = update ] && : > {machine.folder}/fresh; '
        f'[ -e {machine.folder}/fresh ] || {{ echo "E: Unable to locate package" >&2; exit 100; }}',
    )
    done = machine.set_up()
    assert done.returncode == 0 and "E:" not in done.stderr
    assert machine.calls() == [INSTALL, "update -qq", INSTALL]


def test_a_failure_is_a_failure(machine: Machine) -> None:
    machine.plant("apt-get", '[ "$1" = update ] || { echo "E: no such package" >&2; exit 100; }')
    done = machine.set_up()
    assert done.returncode == 100 and "E: no such package" in done.stderr


def test_another_user_needs_sudo(machine: Machine) -> None:
    machine.plant("id", "echo 1000")
    done = machine.set_up()
    assert done.returncode == 3 and "needs root or sudo to install: g++ cmake" in done.stderr
    machine.plant("sudo", 'exec "$@"')
    assert machine.set_up().returncode == 0
    assert machine.calls() == [INSTALL]


def test_elsewhere_the_list_is_told(machine: Machine) -> None:
    (machine.folder / "bin" / "dpkg-query").unlink()
    done = machine.set_up()
    assert done.returncode == 0 and "g++" in done.stderr and machine.calls() == []


def test_the_list_is_one_plain_name_a_line() -> None:
    lines = (CHECKOUT / "system-packages.txt").read_text().splitlines()
    names = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name) for name in names)
    assert len(names) == len(set(names)) and "make" in names
    assert {"librocksdb-dev", "postgresql", "postgresql-contrib", "libpq-dev"} <= set(names)


@pytest.fixture
def set_up_checkout(tmp_path: Path) -> Path:
    """A copy of what make looks at, as it is after a set-up: every stamp newer than its inputs."""
    if shutil.which("make") is None:
        pytest.skip("no make here")
    for name in ("Makefile", "pyproject.toml", "system-packages.txt", "CMakeLists.txt"):
        shutil.copy(CHECKOUT / name, tmp_path)
    shutil.copytree(CHECKOUT / ".ci", tmp_path / ".ci")
    native = tmp_path / "workloads" / "ycsb" / "native"
    native.mkdir(parents=True)
    (native / "main.cc").write_text("")
    stamps = tmp_path / ".venv" / "stamps"
    stamps.mkdir(parents=True)
    newest = max(path.stat().st_mtime for path in tmp_path.rglob("*") if path.is_file())
    for step, stamp in enumerate(("system", "backend", "duratune", "test"), 1):
        (stamps / stamp).write_text("")
        os.utime(stamps / stamp, (newest + step, newest + step))
    return tmp_path


def planned(folder: Path, target: str = "tune") -> str:
    # The tests may themselves run under make, which would tell this one of its own flags and level.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment.pop("MFLAGS", None)
    return subprocess.run(
        ["make", "-n", target], cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_second_make_only_starts_the_study(set_up_checkout: Path) -> None:
    assert planned(set_up_checkout) == "exec .venv/bin/duratune tune rocksdb"


def test_a_second_check_only_checks(set_up_checkout: Path) -> None:
    plan = planned(set_up_checkout, "check")
    assert all(step in plan for step in ("ruff check", "ruff format", "mypy", "lint-imports", "-m pytest"))
    assert "pip" not in plan and "echo" not in plan
    (set_up_checkout / ".venv" / "stamps" / "test").unlink()
    assert "pip install -q --no-build-isolation -e '.[test]'" in planned(set_up_checkout, "check")


@pytest.mark.parametrize(
    ("changed", "step"),
    [
        ("system-packages.txt", "sh .ci/system-packages"),
        ("pyproject.toml", "pip install -q --no-build-isolation -e ."),
        ("CMakeLists.txt", "pip install -q --no-build-isolation -e ."),
        ("workloads/ycsb/native/main.cc", "pip install -q --no-build-isolation -e ."),
    ],
)
def test_a_changed_input_is_made_again(set_up_checkout: Path, changed: str, step: str) -> None:
    later = (set_up_checkout / ".venv" / "stamps" / "duratune").stat().st_mtime + 1
    os.utime(set_up_checkout / changed, (later, later))
    assert step in planned(set_up_checkout)
