"""What passes by a preload library is counted, so that no verdict is drawn from such a log."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.write_log import NOTES, UNSUPPORTED
from tests.crashlab_tests.preload_tests.programs import Stage
from tests.crashlab_tests.preload_tests.replay import Replay

MakeStage = Callable[..., Stage]

PROLOGUE = """
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
call = libc.syscall
call.restype = ctypes.c_long
f = os.open("f", os.O_RDWR | os.O_CREAT, 0o600)
os.write(f, b"x" * 4096)
g = os.open("g", os.O_RDWR | os.O_CREAT, 0o600)
"""

# name, what the program does, what is counted
PROGRAMS = [
    ("shared mapping", "mmap.mmap(f, 4096)[0:1] = b'y'", "shared-writable-mapping"),
    ("io_uring", "call(425, 8, ctypes.create_string_buffer(120))", "io-uring"),
    ("direct write", "assert call(1, f, b'abc', 3) == 3", "direct-write-system-call"),
    ("direct pwrite", "assert call(18, f, b'abc', 3, ctypes.c_long(7)) == 3", "direct-write-system-call"),
    ("direct fsync", "assert call(74, f) == 0", "direct-write-system-call"),
    (
        "direct open",
        "assert call(257, -100, b'h', os.O_CREAT | os.O_RDWR, 0o600) > 0",
        "direct-write-system-call",
    ),
    ("direct rename", "assert call(82, b'g', b'i') == 0", "direct-write-system-call"),
    ("direct unlink", "assert call(87, b'g') == 0", "direct-write-system-call"),
    ("copy_file_range", "assert os.copy_file_range(f, g, 10, 0, 0) == 10", "copy-into-recorded-file"),
    ("sendfile", "assert os.sendfile(g, f, 0, 10) == 10", "copy-into-recorded-file"),
    (
        "splice",
        "r, w = os.pipe(); os.write(w, b'abc'); assert os.splice(r, g, 3) == 3",
        "copy-into-recorded-file",
    ),
    ("O_TMPFILE", "os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600)", "recorder-fault"),
    (
        "rename from outside",
        "os.close(os.open('../outside', os.O_CREAT, 0o600)); os.rename('../outside', 'inside')",
        "recorder-fault",
    ),
    ("exchange", "assert libc.renameat2(-100, b'f', -100, b'g', 2) == 0", "recorder-fault"),
    (
        "stdio",
        "libc.fopen.restype = ctypes.c_void_p; assert libc.fopen(b'h', b'w')",
        "stdio-writer",
    ),
]


@pytest.mark.parametrize(("code", "counted"), [p[1:] for p in PROGRAMS], ids=[p[0] for p in PROGRAMS])
def test_it_is_counted(recorder: PreloadRecorder, make_stage: MakeStage, code: str, counted: str) -> None:
    stage = make_stage(recorder)
    stage.run(sys.executable, "-c", PROLOGUE + code)
    assert stage.log().unsupported == {counted: 1}


QUIET = """
a = mmap.mmap(f, 4096, prot=mmap.PROT_READ)
b = mmap.mmap(f, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
c = mmap.mmap(-1, 4096)
out = os.open("../other", os.O_RDWR | os.O_CREAT, 0o600)
assert call(1, out, b"abc", 3) == 3
assert call(39) == os.getpid()
os.copy_file_range(f, out, 10, 0, 0)
open("g").read()
r, w = os.pipe()
os.close(g)
assert os.dup2(w, g) == g
os.write(g, b"into the pipe")
"""


def test_what_changes_no_recorded_file_is_not_counted(
    recorder: PreloadRecorder, make_stage: MakeStage
) -> None:
    stage = make_stage(recorder)
    stage.run(sys.executable, "-c", PROLOGUE + QUIET)
    log = stage.log()
    assert log.unsupported == {}
    assert Replay(log.operations).differences(stage.root) == []


def test_syscall_passes_all_six_arguments(recorder: PreloadRecorder, make_stage: MakeStage) -> None:
    """mmap by number takes six; a lost last one would map from the start of the file."""
    stage = make_stage(recorder)
    code = """
os.ftruncate(f, 8192)
os.pwrite(f, b"second page", 4096)
address = call(9, ctypes.c_long(0), ctypes.c_long(4096), 1, 2, f, ctypes.c_long(4096))
assert ctypes.string_at(address, 11) == b"second page"
assert call(293, ctypes.byref((ctypes.c_int * 2)()), 0o2000000) == 0
assert call(3, 12345) == -1 and ctypes.get_errno() == 9
"""
    stage.run(sys.executable, "-c", PROLOGUE + code)
    assert stage.log().unsupported == {}


def test_only_stdio_and_a_library_before_the_recorder_are_mere_notes() -> None:
    assert set(UNSUPPORTED) > NOTES == {"stdio-writer", "sync-taken-before"}
