"""Every interposed call from many threads and processes: the replayed log must be the live folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.write_log import Kind
from tests.crashlab_tests.preload_tests.programs import HERE, Stage, compile_c
from tests.crashlab_tests.preload_tests.replay import Replay

MakeStage = Callable[..., Stage]


def test_replay_of_many_threads_and_processes_is_the_live_folder(
    recorder: PreloadRecorder, exercise: Path, make_stage: MakeStage, seed: int
) -> None:
    stage = make_stage(recorder)
    stage.run(exercise, str(stage.root), str(seed), "4", "150", "2")
    log = stage.log()
    replay = Replay(log.operations)
    assert not replay.unsettled
    assert replay.differences(stage.root) == []
    assert log.unsupported == {}
    assert len(log.attached_pids) == 4, "the first process, two forked ones and the spawned heir"
    assert bytes(replay.names["end"]).endswith(b"from the heir")
    wanted = set(Kind) - {Kind.MSYNC, Kind.SYNCFS}
    assert set(Counter(o.kind for o in log.operations)) == wanted
    positions = [p for o in log.operations if o.kind is not Kind.ATTACH for p in (o.begin, o.end)]
    assert sorted(filter(None, positions)) and None not in positions


@pytest.fixture(scope="module")
def shared_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that writes pages which another of its threads changes all the time."""
    return compile_c(tmp_path_factory.mktemp("shared") / "shared_page", [HERE / "shared_page.c"])


@pytest.mark.parametrize("call", ["write", "pwrite", "writev", "pwritev", "pwritev2"])
def test_a_page_that_changes_while_it_is_written_is_the_same_in_log_and_file(
    recorder: PreloadRecorder, shared_page: Path, make_stage: MakeStage, call: str
) -> None:
    """Seen in 3 of 35 runs of PostgreSQL: a page of pg_xact, and the log's last one, differed."""
    stage = make_stage(recorder)
    stage.run(shared_page, str(stage.root / "pages"), call)
    log = stage.log()
    assert Replay(log.operations).differences(stage.root) == []
    mixed = [o for o in log.operations if o.kind is Kind.WRITE and len(set(bytes(o.data))) > 1]
    assert mixed, "no page was caught in the middle of a change, so nothing was tried"
