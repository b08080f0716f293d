"""The command line: finds the command, runs it, and turns what went wrong into an exit code.

Exit codes: 0 held; 1 broken; 2 usage or invalid input; 3 this machine lacks something; 4 unknown;
70 internal error; 130 SIGINT; 143 SIGTERM. No exception ends with 1, so 1 always means BROKEN.

A command's module is imported only when the command is called. It has a function ``command`` whose
typer parameters are the options; it parses, calls, prints and returns an exit code (None means 0).
"""

from __future__ import annotations

import difflib
import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType

from knobs.errors import DuratuneError, InvalidInput, MachineLacks
from tuner import failure
from tuner.output import NO_SPACE, unwritable, writing_to


@dataclass(frozen=True)
class CommandEntry:
    """One command: the module that holds it, and its line in the overview.

    ``starts_engines``: before it begins, what dead duratune processes have left behind is removed.
    ``after_interruption`` is the hint to whoever has interrupted it.
    """

    module: str
    summary: str
    starts_engines: bool = False
    after_interruption: str = ""


_STARTS_ANEW = "nothing is kept of a run that was interrupted; the same command starts a new one"


COMMANDS = {
    "tune": CommandEntry(
        "tuner.commands.tune",
        "search for the fastest configuration that holds the contract",
        starts_engines=True,
        after_interruption="the same command resumes a study",
    ),
    "crash": CommandEntry(
        "tuner.commands.crash",
        "crash-validate one configuration",
        starts_engines=True,
        after_interruption=_STARTS_ANEW,
    ),
    "bench": CommandEntry(
        "tuner.commands.bench",
        "measure one configuration, or two side by side",
        starts_engines=True,
        after_interruption=_STARTS_ANEW,
    ),
    "knobs": CommandEntry("tuner.commands.knobs", "what may be set, what it does and what it risks"),
    "doctor": CommandEntry("tuner.commands.doctor", "what this machine can do and what it lacks"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; ``arguments`` defaults to the process's own."""
    missing = _open_missing_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words[: words.index("--")] if "--" in words else "--json" in words
    _install_signal_handlers()
    _degrade_characters()
    if "stdout" in missing:
        failure.tell_unread()
    try:
        code = _dispatch(words)
        # Here, where a full disk or a closed pipe still becomes an exit code of ours.
        with writing_to(sys.stdout):
            sys.stdout.flush()
        return code
    except DuratuneError as error:
        return failure.report(error, as_json=as_json)
    except KeyboardInterrupt:
        return failure.report_signal(signal.SIGINT, _after_interruption(words), as_json=as_json)
    except Terminated as ended:
        return failure.report_signal(ended.signal, _after_interruption(words), as_json=as_json)
    except BrokenPipeError:
        return _reader_gone()
    except OSError as error:
        if error.errno not in NO_SPACE:
            return failure.report_internal(error, as_json=as_json)
        return failure.report(_no_space(error), as_json=as_json)
    except (Exception, SystemExit) as error:
        # The boundary: whatever gets here, a library's own exit too, is a defect of duratune.
        return failure.report_internal(error, as_json=as_json)


class Terminated(BaseException):
    """Raised in the main thread by SIGTERM and SIGHUP, so that every clean-up runs on the way out."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.signal = number


def _install_signal_handlers() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        # nohup sets SIGHUP to be ignored, and that stays.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminate)


def _terminate(number: int, _frame: FrameType | None) -> None:
    # A second signal would cut the clean-up short; whoever cannot wait has SIGKILL: the next start sweeps.
    signal.signal(number, signal.SIG_IGN)
    raise Terminated(signal.Signals(number))


def _dispatch(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        print(_version_line())
        return 0
    if not words or words[0] in ("--help", "-h", "help"):
        print(_overview())
        return 0 if words else InvalidInput.exit_code
    name = words[0]
    if name not in COMMANDS:
        raise _unknown(name)
    if COMMANDS[name].starts_engines:
        _sweep()
    return _run(name, importlib.import_module(COMMANDS[name].module).command, words[1:])


def _sweep() -> None:
    from engines.scratch import sweep

    report = sweep()
    for path in report.removed:
        print(f"removed {path}, left behind by a duratune that was killed", file=sys.stderr)
    for kept in report.kept:
        print(f"left alone: {kept.path}: {kept.reason}", file=sys.stderr)


def _run(name: str, function: Callable[..., int | None], words: list[str]) -> int:
    import typer
    from typer.main import get_command

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(name, help=function.__doc__ or COMMANDS[name].summary)(function)
    command = get_command(app)
    try:
        # Not command.main(): that turns a closed pipe into exit code 1.
        with command.make_context(f"duratune {name}", list(words)) as context:
            return int(command.invoke(context) or 0)
    except typer.Exit as ended:
        return ended.exit_code
    except OSError as error:
        # rich prints the help, which writes to nothing else; a command's own words say where they fail.
        if "--help" not in words or isinstance(error, BrokenPipeError):
            raise
        raise unwritable(sys.stdout, error) from error
    except SystemExit as ended:
        # rich, which prints the help, makes an exit of its own of a pipe that nobody reads any more.
        if isinstance(ended.__context__, BrokenPipeError):
            raise ended.__context__ from None
        raise
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as error:
        raise InvalidInput(
            error.format_message().rstrip("."), where=f"duratune {name}", hint=f"see duratune {name} --help"
        ) from None


def _unknown(name: str) -> InvalidInput:
    kind = "option" if name.startswith("-") else "command"
    near = difflib.get_close_matches(name, [*COMMANDS, "--version", "--help"], n=3)
    hint = f"did you mean {', '.join(near)}?" if near else "see duratune --help"
    return InvalidInput(f"no such {kind}: '{name}'", where="duratune", hint=hint)


def _version_line() -> str:
    from engines.provenance import commit, version

    revision = commit()
    return f"duratune {version()}" + (f" (commit {revision})" if revision else "")


def _overview() -> str:
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  {name:<{width}}{entry.summary}" for name, entry in COMMANDS.items()]
    return "\n".join(
        [
            "usage: duratune COMMAND [OPTIONS]",
            "",
            *lines,
            "",
            "duratune COMMAND --help tells the options; duratune --version the version.",
        ]
    )


def _no_space(error: OSError) -> MachineLacks:
    number = error.errno or errno.ENOSPC
    elsewhere = ", or name folders elsewhere: --data for the data, --study for the results"
    return MachineLacks(
        error.strerror or "no space",
        where=str(error.filename2 or error.filename or "disk"),
        hint=NO_SPACE[number] + ("" if number == errno.EFBIG else elsewhere),
    )


def _after_interruption(words: list[str]) -> str:
    return COMMANDS[words[0]].after_interruption if words and words[0] in COMMANDS else ""


def _open_missing_streams() -> list[str]:
    """The names of the streams that are closed (`>&-`), which are now as good as /dev/null.

    There is nobody to print to, and the command's work, its files and its exit code are what they are with
    a reader. In this order each takes the lowest free descriptor, its own, so that no file of ours gets it.
    """
    missing = []
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode))
            missing.append(name)
    return missing


def _degrade_characters() -> None:
    """A character that the locale cannot show is printed as its escape, instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _reader_gone() -> int:
    failure.silence(sys.stdout, sys.stderr)
    return 128 + signal.SIGPIPE


if __name__ == "__main__":
    # Not the class of this module under its other name: what is raised and what is caught must be one.
    from tuner.cli import main as program

    sys.exit(program())
