"""The three ways to install duratune, each into a fresh environment: wheel, editable, without a compiler.

The environments see the packages of the one that runs the tests through a .pth file, so nothing is
downloaded. Wheel and editable installation share the build folder of `make`, so only what has changed
is compiled.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from knobs.native import PARTS

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).resolve().parents[2]
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++")


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program away from the checkout, so that only what is installed can be imported."""
    # A user's own native folder would hide what the package brings.
    kept = {
        name: value for name, value in os.environ.items() if name not in ("DURATUNE_NATIVE_DIR", "PYTHONPATH")
    }
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, cwd="/", env={**kept, **environment}
    )


def built(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def fresh_environment(folder: Path) -> Path:
    """A new environment with access to this one's packages; returns its folder of programs."""
    venv.create(folder, with_pip=False)
    pure = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # The .pth file adds a path and no more: an editable duratune in this environment stays inactive there.
    (pure / "of-the-tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def install(programs: Path, *what: str | Path, **environment: str) -> None:
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", programs / "python"]
    options = ("-q", "--no-index", "--no-deps", "--no-build-isolation")
    built(run(*pip, "install", *options, *what, **environment))


def native_parts(programs: Path) -> set[str]:
    """The native parts that the installed duratune finds."""
    source = (
        "import json; from knobs import native; "
        "print(json.dumps({name: str(native.find(name)) for name in native.PARTS "
        "if name not in {part.name for part in native.missing()}}))"
    )
    done = run(programs / "python", "-c", source)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    for name, path in found.items():
        assert Path(path).is_relative_to(programs.parent), "it is of this environment"
        assert name.endswith(".so") or os.access(path, os.X_OK)
    return set(found)


def modules_folder(programs: Path) -> Path:
    done = run(programs / "python", "-c", "import tuner; print(tuner.__path__[0])")
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (CHECKOUT / "pyproject.toml").exists():
        pytest.skip("not a checkout")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    built(run(*command, "-w", folder, CHECKOUT))
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_holds_the_five_packages_and_no_sources(wheel: Path) -> None:
    checker = Path(sys.executable).with_name("check-wheel-contents")
    done = run(checker, "--config", CHECKOUT / "pyproject.toml", wheel)
    assert done.returncode == 0, done.stdout
    names = zipfile.ZipFile(wheel).namelist()
    assert "tuner/cli.py" in names and "knobs/native.py" in names
    strange = [name for name in names if name.endswith((".c", ".cc", ".h", "CMakeLists.txt"))]
    assert strange == []
    assert not [name for name in names if name.startswith(("tests/", "results/"))]


def test_the_wheel_check_can_fail(wheel: Path, tmp_path: Path) -> None:
    planted = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as original, zipfile.ZipFile(planted, "w") as copy:
        for entry in original.infolist():
            content = original.read(entry)
            if entry.filename.endswith("/RECORD"):
                content += b"results/__init__.py,,\n"
            copy.writestr(entry, content)
        copy.writestr("results/__init__.py", "")
    checker = Path(sys.executable).with_name("check-wheel-contents")
    done = run(checker, "--config", CHECKOUT / "pyproject.toml", planted)
    assert done.returncode != 0 and "results" in done.stdout


def test_the_wheel_runs_by_itself(wheel: Path, tmp_path: Path) -> None:
    programs = fresh_environment(tmp_path / "env")
    install(programs, wheel)
    done = run(programs / "duratune", "--version")
    assert (done.returncode, done.stdout) == (0, f"duratune {wheel.name.split('-')[1]}\n"), done.stderr
    assert modules_folder(programs).is_relative_to(tmp_path)
    assert native_parts(programs) == set(PARTS)
    done = run(programs / "duratune", "doctor", "--quiet", XDG_STATE_HOME=str(tmp_path / "state"))
    assert done.returncode == 0, done.stdout


def test_the_editable_installation_runs_the_checkout(tmp_path: Path) -> None:
    programs = fresh_environment(tmp_path / "env")
    install(programs, "-e", CHECKOUT)
    assert modules_folder(programs) == CHECKOUT / "tuner"
    assert native_parts(programs) == set(PARTS)
    assert run(programs / "duratune", "--version").returncode == 0


@pytest.fixture
def path_without_compilers(tmp_path: Path) -> str:
    """The programs of this machine without any compiler, as links in one folder."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for program in ("git", "cmake", "ninja", "make", "pkg-config", "sh", "uname"):
        found = shutil.which(program)
        if found is not None:
            (folder / program).symlink_to(found)
    assert not [compiler for compiler in COMPILERS if shutil.which(compiler, path=str(folder))]
    return str(folder)


def test_without_a_compiler_the_python_part_is_installed(tmp_path: Path, path_without_compilers: str) -> None:
    absent = {"CC": "/nonexistent/cc", "CXX": "/nonexistent/c++", "PATH": path_without_compilers}
    programs = fresh_environment(tmp_path / "env")
    install(programs, f"-Cbuild-dir={tmp_path / 'build'}", CHECKOUT, **absent)
    assert run(programs / "duratune", "--version").returncode == 0
    assert native_parts(programs) == set()
    done = run(programs / "duratune", "doctor", "--json", XDG_STATE_HOME=str(tmp_path / "state"))
    assert done.returncode == 3
    checks = json.loads(done.stdout)["checks"]
    (driver,) = [check for check in checks if check["name"] == "duratune-ycsb"]
    assert driver["state"] == "lacks" and "librocksdb-dev" in driver["hint"]


def test_without_rocksdb_the_recorder_is_built_alone(tmp_path: Path) -> None:
    """CMake finds no RocksDB: pkg-config looks into an empty folder, and the CMake package is disabled."""
    (tmp_path / "empty").mkdir()
    programs = fresh_environment(tmp_path / "env")
    install(
        programs,
        f"-Cbuild-dir={tmp_path / 'build'}",
        "-Ccmake.define.CMAKE_DISABLE_FIND_PACKAGE_RocksDB=ON",
        CHECKOUT,
        PKG_CONFIG_LIBDIR=str(tmp_path / "empty"),
    )
    assert native_parts(programs) == {"libduratune_record.so", "duratune-canary"}
