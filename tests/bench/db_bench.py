"""RocksDB's own db_bench (Debian package rocksdb-tools), as the yardstick of the driver.

It gets the OPTIONS file that the driver gets, so the options cannot differ; threads, sizes and sync are
flags. Sources: db_bench --help of 7.8.3 for the flags.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
from pathlib import Path

from crashlab.subject import Subject

PROGRAM = "db_bench"
_RESULT = re.compile(r"^fillrandom\s*:.*?([\d.]+) seconds (\d+) operations", re.MULTILINE)
_KEYS = 1_000_000_000
"""So many that hardly a random key comes twice: the driver's inserts never repeat one."""


def missing() -> str:
    """Why it cannot be run, "" if it can."""
    return "" if shutil.which(PROGRAM) else "db_bench is not installed: apt-get install rocksdb-tools"


def puts(
    subject: Subject, folder: Path, seconds: float, key_bytes: int, value_bytes: int, seed: int
) -> tuple[float, float]:
    """Random puts into an empty database below ``folder`` by the subject's number of threads.

    Returns puts per second, and CPU microseconds of a put, opening and closing included.
    """
    launch = subject.launch(folder)
    flags = {
        "db": launch.database,
        "options_file": launch.options,
        "benchmarks": "fillrandom",
        "threads": subject.threads,
        "num": _KEYS,
        # Seconds; it looks at the clock every so many operations of a thread, which must be few when synced.
        "duration": int(seconds),
        "ops_between_duration_checks": 10,
        "key_size": key_bytes,
        "value_size": value_bytes,
        "sync": int(launch.write_options.get("sync", False)),
        "seed": seed,
    }
    command = [PROGRAM, *(f"--{name}={value}" for name, value in flags.items())]
    before_s = _children_cpu_s()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=120)
    found = _RESULT.search(done.stdout)
    assert found is not None, f"db_bench said something else: {done.stdout[-400:]}"
    operations = float(found[2])
    return operations / float(found[1]), 1e6 * (_children_cpu_s() - before_s) / operations


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
