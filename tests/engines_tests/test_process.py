from __future__ import annotations

import os
import pwd
import signal
import subprocess
import time
from pathlib import Path

import pytest

from engines import process as process_module
from engines.identity import ProcessIdentity, identify, own_identity
from engines.process import OWNER_VARIABLE, Child, DeadlinePassed, LaunchSpec, kill_tree, owned_by, titled
from knobs.errors import MachineLacks, Undecided
from tests.engines_tests.programs import FAMILY, READY_SLEEP, SLEEP, first_line, python, running

# Ends with its lifeline.
LIFELINE = "import os; print('up', flush=True); os.read(0, 1)"

# Starts a child with a lifeline, prints the child's pid and start time, and stays.
OWNER = """
import sys, time
from pathlib import Path
from engines.process import Child, LaunchSpec
child = Child(LaunchSpec([sys.executable, "-c", sys.argv[1]], Path(sys.argv[2])))
child.read_line(30, "test")
other = Child(LaunchSpec([sys.executable, "-c", "import time; time.sleep(10)"], Path(sys.argv[2])))
print(child.identity.pid, child.identity.start_ticks, flush=True)
time.sleep(60)
"""


class Watching:
    """A Watcher that remembers."""

    def __init__(self) -> None:
        self.watched: list[ProcessIdentity] = []

    def watch(self, process: ProcessIdentity) -> None:
        self.watched.append(process)

    def forget(self, process: ProcessIdentity) -> None:
        self.watched.remove(process)


class Refusing(Watching):
    def watch(self, process: ProcessIdentity) -> None:
        super().watch(process)
        raise Undecided("the supervisor process has ended")


def spec(tmp_path: Path, source: str, *arguments: str) -> LaunchSpec:
    return LaunchSpec(python(source, *arguments), tmp_path / "log")


def open_descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def await_end(process: ProcessIdentity, deadline_s: float) -> None:
    """Wait for the end of somebody else's child; fails the test if it does not come."""
    ends_s = time.monotonic() + deadline_s
    while process.alive():
        assert time.monotonic() < ends_s, f"{process} still runs"
        time.sleep(0.01)


def test_lines_come_in_order_and_end_with_none(tmp_path: Path) -> None:
    with Child(spec(tmp_path, "print('one'); print('two'); print('rest', end='')")) as child:
        assert [child.read_line(30, "test") for _ in range(4)] == ["one", "two", "rest", None]
        assert child.wait(30, "test") == 0


def test_await_line_drops_what_comes_before(tmp_path: Path) -> None:
    with Child(spec(tmp_path, "print('one'); print('ready 5'); print('two')")) as child:
        assert child.await_line(lambda line: line.startswith("ready"), 30, "test") == "ready 5"
        assert child.read_line(30, "test") == "two"


def test_a_silent_child_is_undecided_and_says_what_was_awaited(tmp_path: Path) -> None:
    with (
        Child(spec(tmp_path, SLEEP)) as child,
        pytest.raises(DeadlinePassed, match="the first line: nothing within"),
    ):
        child.read_line(0.05, "the first line")


def test_a_child_that_ends_first_is_undecided_with_its_own_words(tmp_path: Path) -> None:
    source = "import sys; sys.stderr.write('no such file'); sys.exit(3)"
    with Child(spec(tmp_path, source)) as child:
        with pytest.raises(Undecided, match="start: it ended first") as caught:
            child.await_line(lambda _: True, 30, "start")
        assert caught.value.hint == "no such file"
        assert child.wait(30, "test") == 3


def test_waiting_has_a_deadline(tmp_path: Path) -> None:
    with (
        Child(spec(tmp_path, SLEEP)) as child,
        pytest.raises(DeadlinePassed, match="the end: still running after"),
    ):
        child.wait(0.05, "the end")


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    descriptors = open_descriptors()
    with pytest.raises(MachineLacks, match="cannot be started"):
        Child(LaunchSpec(["/nonexistent/program"], tmp_path / "log"))
    assert open_descriptors() == descriptors


def test_kill_ends_the_whole_family_parent_first_and_reaps(tmp_path: Path) -> None:
    with Child(spec(tmp_path, FAMILY)) as child:
        line = child.read_line(30, "test")
        assert line is not None
        family = [identify(int(pid)) for pid in line.split()]
        before_ns = time.monotonic_ns()
        killed = child.kill()
        assert before_ns <= killed.at_ns <= time.monotonic_ns()
        assert killed.processes == (child.identity, *family)
        assert not any(process.alive() for process in killed.processes)
        assert [identify(process.pid) for process in killed.processes] == [None] * len(killed.processes)
        assert child.kill() is killed
        assert child.wait(0, "test") == -signal.SIGKILL


def test_between_the_last_look_and_the_first_signal_nothing_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is acknowledged in between counts as lost or kept by luck, so it must be short."""
    looks: list[int] = []
    original = process_module._children

    def looked(pid: int) -> list[int]:
        if pid != os.getpid():  # who looks for orphans, when all is over
            looks.append(pid)
        return original(pid)

    monkeypatch.setattr(process_module, "_children", looked)
    with Child(spec(tmp_path, FAMILY)) as child:
        line = child.read_line(30, "test")
        assert line is not None
        family = [identity for pid in line.split() if (identity := identify(int(pid))) is not None]
        seen: list[tuple[int, bool]] = []

        def at_last() -> None:
            seen.append((len(looks), all(process.alive() for process in family)))
            ends_s = time.monotonic() + 30.0
            while state_of(child.identity) != "T":
                assert time.monotonic() < ends_s, "it was not stopped"

        child.kill(at_last)
    # Everybody known, and still at work.
    assert seen == [(len(looks), True)] and looks


def test_an_orphan_that_ends_later_is_reaped_at_the_next_end(tmp_path: Path) -> None:
    """Its parent was killed, and process 1 of many containers reaps nobody."""
    parent = "import os, time\nif os.fork() == 0: os.setsid(); print(os.getpid(), flush=True)\ntime.sleep(60)"
    with Child(spec(tmp_path, parent)) as child:
        line = child.read_line(30, "test")
        assert line is not None
        orphan = identify(int(line))
        assert orphan is not None
        os.kill(child.identity.pid, signal.SIGKILL)
        child.wait(30, "test")
    os.kill(orphan.pid, signal.SIGKILL)
    ends_s = time.monotonic() + 30.0
    while orphan.alive():
        assert time.monotonic() < ends_s
    assert Path(f"/proc/{orphan.pid}").exists(), "a zombie of ours"
    own = subprocess.Popen(["/bin/false"])
    while state_of_pid(own.pid) != "Z":
        assert time.monotonic() < ends_s
    with Child(spec(tmp_path, "pass")) as child:
        child.wait(30, "test")
    assert not Path(f"/proc/{orphan.pid}").exists()
    assert own.wait() == 1, "who waits for a child of its own finds how it ended"


def state_of(process: ProcessIdentity) -> str:
    return state_of_pid(process.pid)


def state_of_pid(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_kill_reaches_a_group_member_that_lost_its_parent(tmp_path: Path) -> None:
    # The middle process ends at once; the innermost must not hold the pipe that its pid is read from.
    middle = (
        "import subprocess, sys; "
        f"print(subprocess.Popen([sys.executable, '-c', {SLEEP!r}], stdout=subprocess.DEVNULL).pid)"
    )
    double_fork = f"""
import subprocess, sys
print(subprocess.check_output([sys.executable, "-c", {middle!r}], text=True).strip(), flush=True)
{SLEEP}
"""
    with Child(spec(tmp_path, double_fork)) as child:
        line = child.read_line(30, "test")
        assert line is not None
        orphan = identify(int(line))
        assert orphan is not None and orphan.alive()
        assert orphan not in child.kill().processes
        await_end(orphan, 5)


def test_kill_after_an_orderly_end_is_harmless(tmp_path: Path) -> None:
    with Child(spec(tmp_path, "")) as child:
        assert child.wait(30, "test") == 0
        child.kill()


def test_a_stale_identity_is_never_signalled() -> None:
    with running(python(READY_SLEEP)) as process:
        first_line(process)
        identity = identify(process.pid)
        assert identity is not None
        kill_tree(ProcessIdentity(process.pid, identity.start_ticks - 1))
        assert identity.alive()


def test_the_watcher_knows_the_child_exactly_while_it_runs(tmp_path: Path) -> None:
    watching = Watching()
    with Child(spec(tmp_path, SLEEP), watching) as child:
        assert watching.watched == [child.identity]
        child.kill()
        assert watching.watched == []
    with Child(spec(tmp_path, ""), watching) as child:
        child.wait(30, "test")
        assert watching.watched == []


def test_a_child_that_nobody_can_watch_is_not_left_running(tmp_path: Path) -> None:
    refusing = Refusing()
    with pytest.raises(Undecided):
        Child(spec(tmp_path, SLEEP), refusing)
    assert identify(refusing.watched[0].pid) is None


def test_the_child_has_its_own_session_and_our_mark(tmp_path: Path) -> None:
    with Child(spec(tmp_path, READY_SLEEP)) as child:
        child.read_line(30, "test")
        assert os.getsid(child.identity.pid) == child.identity.pid
        assert child.identity in owned_by(own_identity())
        assert owned_by(ProcessIdentity(own_identity().pid, 0)) == []


def test_the_lifeline_ends_with_its_owner(tmp_path: Path) -> None:
    """Also when a later child of the same owner still runs: that must not hold the pipe open."""
    with running(python(OWNER, LIFELINE, str(tmp_path / "log"))) as owner:
        pid, ticks = first_line(owner).split()
        child = ProcessIdentity(int(pid), int(ticks))
        assert child.alive()
        owner.kill()
        owner.wait()
    await_end(child, 5)


def test_lines_go_both_ways(tmp_path: Path) -> None:
    with Child(spec(tmp_path, "for _ in range(2): print(input()[::-1], flush=True)")) as child:
        for line, answer in (("abc", "cba"), ("", "")):
            child.write_line(line, 30, "test")
            assert child.read_line(30, "test") == answer
        assert child.wait(30, "test") == 0
        with pytest.raises(Undecided, match="the next: it ended first"):
            child.write_line("more", 30, "the next")


def test_writing_has_a_deadline(tmp_path: Path) -> None:
    with (
        Child(spec(tmp_path, SLEEP)) as child,
        pytest.raises(DeadlinePassed, match="the next: it reads nothing"),
    ):
        for _ in range(10_000):
            child.write_line("x" * 4000, 0.05, "the next")


@pytest.mark.parametrize("line", ["two\nlines", "x" * 5000])
def test_only_one_short_line_is_written_at_once(tmp_path: Path, line: str) -> None:
    with Child(spec(tmp_path, SLEEP)) as child, pytest.raises(ValueError):
        child.write_line(line, 30, "test")


def test_the_end_of_the_input_is_seen(tmp_path: Path) -> None:
    with Child(spec(tmp_path, "import sys; print(len(sys.stdin.read()))")) as child:
        child.write_line("abc", 30, "test")
        child.end_input()
        assert child.read_line(30, "test") == "4"


def test_a_title_tells_whose_a_process_is() -> None:
    """PostgreSQL writes titles over its arguments and its environment; only the first part is looked at."""
    mark = f"{OWNER_VARIABLE}={own_identity()}"
    titles = (
        f"postgres: {mark}/1: walwriter ",
        f"postgres: {mark}/12: x",
        f"grep {mark}/1: y",
        f"a: b: {mark}/1: z",
    )
    processes = [subprocess.Popen([title, "60"], executable="sleep", env={}) for title in titles]
    try:
        first, second, *others = (identify(process.pid) for process in processes)
        assert titled(f"{mark}/1") == [first] and titled(f"{mark}/12") == [second]
        assert set(owned_by(own_identity())) == {first, second} and None not in others
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_what_a_child_does_not_inherit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURATUNE_TEST_INHERITED", "1")
    source = "import os; print(sorted(set(os.environ) - {'LC_CTYPE'}), flush=True)"
    spec = LaunchSpec(python(source), tmp_path / "log", environment={"OWN": "1"}, inherits=False)
    with Child(spec) as child:
        assert child.read_line(30, "test") == f"['{OWNER_VARIABLE}', 'OWN']"


def test_a_descriptor_that_is_handed_down(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    source = f"import os; print(os.readlink('/proc/self/fd/{descriptor}'), flush=True)"
    try:
        for given, line in (((descriptor,), str(tmp_path)), ((), None)):
            with Child(LaunchSpec(python(source), tmp_path / "log", descriptors=given)) as child:
                assert child.read_line(30, "test") == line
    finally:
        os.close(descriptor)


@pytest.mark.usefixtures("as_root")
def test_a_child_of_another_user(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    spec = LaunchSpec(["id"], tmp_path / "log", folder=Path("/"), user=(nobody.pw_uid, nobody.pw_gid))
    with Child(spec) as child:
        line = child.read_line(30, "test")
        assert line is not None and f"uid={nobody.pw_uid}" in line and "root" not in line


def test_a_signal_for_a_child(tmp_path: Path) -> None:
    with Child(LaunchSpec(python(READY_SLEEP), tmp_path / "log")) as child:
        child.read_line(30, "test")
        child.signal(signal.SIGTERM)
        assert child.wait(30, "test") == -signal.SIGTERM
        child.signal(signal.SIGTERM)  # It has ended: nothing happens.
