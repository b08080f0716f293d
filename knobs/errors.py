"""What can go wrong in a way that the user can act on.

Every error says what happened, where, and what to do; each kind carries the exit code that the
command ends with. An exception that is none of these is a defect of duratune (exit code 70).
"""

from __future__ import annotations


class DuratuneError(Exception):
    """An error that the user can act on.

    ``what`` is one line without a full stop, ``where`` names the file, option or folder that it is
    about ("" where there is none), ``hint`` says what to do next.
    """

    code = "error"
    exit_code = 70

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class InvalidInput(DuratuneError):
    """A wrong option, value, file or combination: exit code 2. Several faults are joined with "; "."""

    code = "invalid-input"
    exit_code = 2


class MachineLacks(DuratuneError):
    """This machine lacks a compiler, library, privilege or space: exit code 3."""

    code = "machine-lacks"
    exit_code = 3


class Undecided(DuratuneError):
    """The lab itself failed, so no verdict can be given: exit code 4."""

    code = "unknown"
    exit_code = 4
