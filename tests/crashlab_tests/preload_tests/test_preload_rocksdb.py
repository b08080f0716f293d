"""Recorded runs of the real RocksDB, ended or killed at any moment, rebuilt byte for byte from their logs."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable

import pytest

from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.write_log import Kind
from tests.crashlab_tests.preload_tests.programs import Stage, kill_group
from tests.crashlab_tests.preload_tests.replay import Replay

MakeStage = Callable[..., Stage]

DB_BENCH = shutil.which("db_bench")
LDB = shutil.which("ldb")
pytestmark = pytest.mark.skipif(not (DB_BENCH and LDB), reason="needs Debian's rocksdb-tools")

SMALL_FILES = (
    "--write_buffer_size=65536",
    "--target_file_size_base=65536",
    "--max_bytes_for_level_base=131072",
)


def db_bench(*more: str) -> list[str]:
    return [str(DB_BENCH), "--db=db", "--threads=4", "--compression_type=none", *SMALL_FILES, *more]


def test_a_run_with_flushes_and_compactions_is_rebuilt(
    recorder: PreloadRecorder, make_stage: MakeStage, seed: int
) -> None:
    stage = make_stage(recorder)
    stage.run(*db_bench("--benchmarks=fillrandom,compact,deleterandom,flush", "--num=2000", f"--seed={seed}"))
    stage.run(str(LDB), "--db=db", "put", "a key", "a value")
    log = stage.log()
    replay = Replay(log.operations)
    assert not replay.unsettled
    assert replay.differences(stage.root) == []
    assert log.unsupported == {}
    assert len(log.attached_pids) == 2
    kinds = Counter(o.kind for o in log.operations)
    assert min(kinds[Kind.WRITE], kinds[Kind.RENAME], kinds[Kind.UNLINK], kinds[Kind.FSYNC]) > 0


@pytest.mark.parametrize("group", range(2))
def test_a_killed_run_is_rebuilt(
    recorder: PreloadRecorder, make_stage: MakeStage, group: int, rng: random.Random
) -> None:
    """Ten kills; every record is whole, and only operations open at the kill may explain a difference."""
    cut_open = 0
    for _ in range(10):
        stage = make_stage(recorder)
        sync = f"--sync={int(group == 1)}"
        process = stage.start(*db_bench("--benchmarks=fillrandom", "--num=100000000", sync))
        writes_before = rng.randrange(1, 400)
        _await_records(stage, writes_before)
        time.sleep(rng.random() * 0.02)
        kill_group(process)
        log = stage.log()
        replay = Replay(log.operations)
        assert replay.differences(stage.root) == []
        cut_open += len(replay.unsettled)
        threads_open = Counter(o.tid for o in replay.unsettled)
        assert max(threads_open.values(), default=0) <= 1, "a thread is inside of one call at most"
    assert cut_open > 0, "ten kills of a writing engine hit none of its calls"


def test_mapped_writes_are_counted_and_make_the_log_differ(
    recorder: PreloadRecorder, make_stage: MakeStage
) -> None:
    stage = make_stage(recorder)
    stage.run(*db_bench("--benchmarks=fillrandom", "--num=500", "--mmap_write=true"))
    log = stage.log()
    assert log.unsupported["shared-writable-mapping"] > 0
    assert any(o.kind is Kind.MSYNC for o in log.operations)
    assert Replay(log.operations).differences(stage.root)


def _await_records(stage: Stage, wanted: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if stage.log().record_count >= wanted:
            return
        time.sleep(0.002)
    raise AssertionError("the engine wrote nothing within 20 s")
