"""Every interposed call from many threads and processes: the replayed log must be the live folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.write_log import Kind
from tests.crashlab_tests.preload_tests.programs import Stage
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
