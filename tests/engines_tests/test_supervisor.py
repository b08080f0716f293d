from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from engines.identity import ProcessIdentity, identify
from engines.process import Child, LaunchSpec
from engines.scratch import state_folder
from engines.supervisor import Supervisor
from knobs.errors import Undecided
from tests.engines_tests.programs import FAMILY, SLEEP, first_line, python, running

# A duratune in small: a supervisor, a scratch folder, and a watched child with descendants that know no
# lifeline; with "unwatched" the child is known by its environment alone. Prints all pids and the folder.
OWNER = """
import sys, time
from pathlib import Path
from engines.process import Child, LaunchSpec
from engines.scratch import Scratch
from engines.supervisor import Supervisor
source, room, mode = sys.argv[1:]
with Supervisor() as supervisor, Scratch() as scratch:
    folder = scratch.folder(Path(room), "data")
    spec = LaunchSpec([sys.executable, "-c", source], folder / "log")
    with Child(spec, None if mode == "unwatched" else supervisor) as child:
        family = child.read_line(30, "test")
        print(supervisor._process.pid, folder, child.identity.pid, family, flush=True)
        time.sleep(60)
"""


def await_gone(processes: list[ProcessIdentity], deadline_s: float) -> None:
    ends_s = time.monotonic() + deadline_s
    while any(process.alive() for process in processes):
        assert time.monotonic() < ends_s, "not all have ended in time"
        time.sleep(0.01)


def identities(pids: list[str]) -> list[ProcessIdentity]:
    found = [identify(int(pid)) for pid in pids]
    assert None not in found
    return [process for process in found if process is not None]


@pytest.mark.parametrize("mode", ["watched", "unwatched"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_killed_owner(tmp_path: Path, number: signal.Signals, mode: str) -> None:
    with running(python(OWNER, FAMILY, str(tmp_path), mode)) as owner:
        supervisor, folder, *pids = first_line(owner).split()
        family, watching = identities(pids), identities([supervisor])
        assert len(family) == 3 and Path(folder).exists()
        owner.send_signal(number)
        owner.wait(30)
        await_gone(family + watching, 5)  # The five seconds that are promised.
    assert not Path(folder).exists()
    assert not list((state_folder() / "manifests").glob("*"))


def test_an_orderly_end_leaves_nothing(tmp_path: Path) -> None:
    with running(python(OWNER, FAMILY, str(tmp_path), "watched")) as owner:
        supervisor, folder, *pids = first_line(owner).split()
        processes = identities([supervisor, *pids])
        owner.send_signal(signal.SIGINT)
        owner.wait(30)
        assert not any(process.alive() for process in processes)
    assert not Path(folder).exists()


def test_the_supervisor_survives_the_users_own_signals(tmp_path: Path) -> None:
    with Supervisor() as supervisor:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(supervisor._process.pid, number)
        with Child(LaunchSpec(python(SLEEP), tmp_path / "log"), supervisor) as child:
            assert os.getsid(supervisor._process.pid) != os.getsid(0)
            supervisor.close()  # Ends it: a child still watched is killed.
            await_gone([child.identity], 5)
            child._watcher = None


def test_a_forgotten_process_is_left_alone(tmp_path: Path) -> None:
    with running(python(SLEEP)) as other:
        process = identify(other.pid)
        assert process is not None
        with Supervisor() as supervisor:
            supervisor.watch(process)
            supervisor.forget(process)
        assert process.alive()
        with Supervisor() as supervisor:
            supervisor.watch(process)
        assert not process.alive()
    assert not list(tmp_path.iterdir())


def test_a_killed_supervisor_is_noticed() -> None:
    with running(python(SLEEP)) as other, Supervisor() as supervisor:
        process = identify(other.pid)
        assert process is not None
        supervisor._process.kill()
        supervisor._process.wait()
        with pytest.raises(Undecided, match="the supervisor process has ended"):
            supervisor.watch(process)


def test_a_folder_of_the_same_name_where_the_user_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "__init__.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    with Supervisor():
        pass
