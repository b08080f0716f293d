"""The rules of CONTRIBUTING.md that a program can check, each tried on a planted fault too."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.cli import COMMANDS

CHECKOUT = Path(__file__).resolve().parents[2]
ROOMS = ("tuner", "crashlab", "workloads", "engines", "knobs")
LINES_MAX = 600
FUNCTION_LINES_MAX = 70

# Put together here, so that this file passes its own test.
FORBIDDEN = {
    "a path of one machine": "|".join(
        rf"(?<![\w/])/{first}{rest}\b"
        for first, rest in (("ro", "ot"), ("wo", "rk"), ("op", "t/dt"), ("ho", "me/[a-z]"))
    ),
    "a package host": "|".join(("py" + r"pi\.org", "python" + "hosted", "art" + "ifactory")),
    "how it was made": "|".join(
        rf"\b{word}\b" for word in ("cla" + "ude", "anthro" + "pic", "sub" + "agents?", "chat" + "gpt")
    ),
}


def tracked_files() -> list[Path]:
    """What git has or would have; the tests are skipped where there is no checkout."""
    command = ["git", "-C", str(CHECKOUT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no git here")
    if done.returncode != 0:
        pytest.skip("not a checkout")
    return [CHECKOUT / name for name in done.stdout.split("\0") if name and (CHECKOUT / name).is_file()]


def sources(*suffixes: str) -> list[Path]:
    rooms = [CHECKOUT / room for room in ROOMS]
    return [
        file
        for file in tracked_files()
        if file.suffix in suffixes and any(file.is_relative_to(room) for room in rooms)
    ]


def name(file: Path) -> str:
    return str(file.relative_to(CHECKOUT)) if file.is_relative_to(CHECKOUT) else str(file)


def forbidden_words(files: list[Path]) -> Iterator[str]:
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # Planted binary files of the tests.
        for number, line in enumerate(text.splitlines(), 1):
            for what, pattern in FORBIDDEN.items():
                if re.search(pattern, line, re.IGNORECASE):
                    yield f"{name(file)}:{number}: {what}"


def too_long(files: list[Path]) -> Iterator[str]:
    for file in files:
        lines = len(file.read_text(encoding="utf-8").splitlines())
        if lines > LINES_MAX:
            yield f"{name(file)}: {lines} lines"


def long_functions(files: list[Path]) -> Iterator[str]:
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # The body alone: a command's signature lists its options, one a line.
                lines = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    yield f"{name(file)}:{node.lineno}: {node.name} has {lines} lines"


def without_docstring(files: list[Path]) -> Iterator[str]:
    for file in files:
        module = ast.parse(file.read_text(encoding="utf-8"))
        if module.body and ast.get_docstring(module) is None:
            yield name(file)


SILENCED = re.compile(r"#\s*(type: ignore|noqa)|except (Exception|BaseException)\b")


def silenced_without_reason(files: list[Path]) -> Iterator[str]:
    """A check that is switched off has its reason in a comment on its line, or above or below it."""
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            if not SILENCED.search(line):
                continue
            rest = re.sub(r"#\s*(type: ignore|noqa)(\[[^\]]*\]|: ?[A-Z0-9, ]+)?", "", line)
            around = [
                rest,
                *(near.strip() for near in (*lines[number - 2 : number - 1], *lines[number:][:1])),
            ]
            if not ("#" in around[0] or any(near.startswith("#") for near in around[1:])):
                yield f"{name(file)}:{number}"


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert program is not None, "import-linter is a test dependency"
    return subprocess.run(
        [program, "--no-cache"],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": ""},
        capture_output=True,
        text=True,
    )


def test_a_room_imports_only_rooms_to_its_right() -> None:
    done = lint_imports(CHECKOUT)
    assert done.returncode == 0, done.stdout


def test_the_import_contract_can_fail(tmp_path: Path) -> None:
    """The same contract over five planted rooms, whose names cannot be mistaken for the installed ones."""
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = settings["contracts"]
    planted = [f"planted_{room}" for room in contract["layers"]]
    (tmp_path / "pyproject.toml").write_text(
        f"[tool.importlinter]\nroot_packages = {planted}\n[[tool.importlinter.contracts]]\n"
        f"name = 'planted'\ntype = '{contract['type']}'\nlayers = {planted}\n"
    )
    for room in planted:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text("")
    assert settings["root_packages"] == list(ROOMS) == contract["layers"]
    assert lint_imports(tmp_path).returncode == 0
    (tmp_path / "planted_knobs" / "__init__.py").write_text("import planted_tuner\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1 and "not allowed to import planted_tuner" in done.stdout


def test_no_source_file_is_too_long() -> None:
    assert list(too_long(sources(".py", ".c", ".cc", ".h"))) == []


def test_no_function_is_too_long() -> None:
    assert list(long_functions(sources(".py"))) == []


def test_every_module_says_what_it_is() -> None:
    assert list(without_docstring(sources(".py"))) == []


def test_nothing_names_the_place_where_it_was_made() -> None:
    assert list(forbidden_words(tracked_files())) == []


def test_what_is_silenced_has_its_reason() -> None:
    assert list(silenced_without_reason(sources(".py"))) == []


def test_the_rules_can_fail(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text("def long() -> None:\n" + "    pass\n" * 601)
    assert list(too_long([file])) and list(long_functions([file])) and list(without_docstring([file]))
    for word in ("/ro" + "ot/x", "https://py" + "pi.org/x", "Cla" + "ude"):
        file.write_text(f"x = '{word}'\n")
        assert list(forbidden_words([file])), word
    file.write_text("/wo" + "rkers and /ro" + "oted\n")
    assert list(forbidden_words([file])) == []
    for line in ("x = 1  # noqa" + ": E501", "x = 1  # type" + ": ignore[assignment]", "except Exception:"):
        file.write_text(f"\n{line}\n\n")
        assert list(silenced_without_reason([file])), line
        file.write_text(f"\n# The reason.\n{line}\n\n")
        assert list(silenced_without_reason([file])) == []
        file.write_text(f"\n{line}  # The reason.\n\n")
        assert list(silenced_without_reason([file])) == []


def test_the_results_are_data() -> None:
    assert not list((CHECKOUT / "results").rglob("__init__.py"))


def test_every_command_is_in_the_readme() -> None:
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    assert [command for command in COMMANDS if f"duratune {command}" not in readme] == []


def test_every_command_has_its_module() -> None:
    modules = {name: entry.module.replace(".", "/") + ".py" for name, entry in COMMANDS.items()}
    assert [name for name, module in modules.items() if not (CHECKOUT / module).is_file()] == []


def test_the_tests_mirror_the_rooms() -> None:
    folders = {folder.name for folder in (CHECKOUT / "tests").iterdir() if (folder / "__init__.py").exists()}
    assert folders <= {f"{room}_tests" for room in ROOMS} | {"project_tests"}


@pytest.mark.parametrize("script", [".ci/run", ".ci/system-packages"])
def test_the_scripts_are_sound(script: str) -> None:
    path = CHECKOUT / script
    assert subprocess.run(["sh", "-n", str(path)]).returncode == 0
    assert path.stat().st_mode & 0o111 or script != ".ci/run"
