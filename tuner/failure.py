"""How an error is told: one line and a hint on stderr, or one JSON document on stdout with --json."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TextIO

from crashlab.judging.verdict import Verdict
from engines.scratch import state_folder
from knobs.errors import DuratuneError, Undecided

INTERNAL_ERROR = 70


def report(error: DuratuneError, *, as_json: bool) -> int:
    """Tell an error that the user can act on; returns its exit code."""
    _tell(error.code, error.what, error.where, error.hint, as_json=as_json)
    return error.exit_code


def report_signal(number: signal.Signals, hint: str, *, as_json: bool) -> int:
    """Tell that a signal ended the command, and what to do next; returns 128 + its number, as shells do."""
    _tell("interrupted", f"ended by {number.name}", "", hint, as_json=as_json)
    return 128 + number


def report_internal(error: BaseException, *, as_json: bool) -> int:
    """Tell a defect of duratune, with the place of its traceback; returns 70."""
    place = _write_traceback(error)
    summary = f"internal error: {type(error).__name__}: {error}".splitlines()[0]
    _tell("internal", summary, "", f"this is a defect of duratune; the traceback is {place}", as_json=as_json)
    return INTERNAL_ERROR


def tell_unread() -> None:
    """Tell whoever closed stdout, on stderr, that the result is not shown; it is no error.

    A stdout that is full or broken is one: there the command found a place to write to, and lost it.
    """
    try:
        print("stdout is closed: nothing of the result is shown, the exit code stands", file=sys.stderr)
    except OSError:
        silence(sys.stderr)


def silence(*streams: TextIO) -> None:
    """Send to nowhere what the streams that cannot be written still hold.

    Python flushes both at its exit, and would make exit code 1 or 120 of what the command ended with.
    """
    for stream in streams:
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _tell(code: str, what: str, where: str, hint: str, *, as_json: bool) -> None:
    if as_json:
        document: dict[str, object] = {
            "schema": 1,
            "error": {"code": code, "what": what, "where": where, "hint": hint},
        }
        if code == Undecided.code:
            document["verdict"] = Verdict.UNKNOWN.value
        try:
            print(json.dumps(document), flush=True)
            return
        except OSError:
            # stdout is what is broken (a full disk, a closed pipe): then stderr is all there is.
            silence(sys.stdout)
    try:
        print(f"error: {where}: {what}" if where else f"error: {what}", file=sys.stderr)
        if hint:
            print(f"hint: {hint}", file=sys.stderr)
    except OSError:
        silence(sys.stderr)


def _write_traceback(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error))
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    path = state_folder() / "internal-errors" / f"{stamp}-{os.getpid()}.txt"
    try:
        _save(path, text)
    except OSError:
        # The state folder may be what is broken; the traceback must not be lost with it.
        print(text, file=sys.stderr)
        return "above"
    return f"in {path}"


def _save(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
