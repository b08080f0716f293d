"""One recovered state judged: each way not to come back, both views, and what the lab could not do."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from crashlab.judging.judge import (
    _Recoverer,
    judge_recovered,
    judge_states,
    recover_patiently,
    recover_states,
)
from crashlab.judging.oracle import Cut
from crashlab.judging.verdict import Verdict
from crashlab.states.plan import PlannedState
from crashlab.workers import workers_at_most
from engines.scratch import SHARED_MEMORY_FOLDER, Scratch
from knobs.contract import Contract
from tests.crashlab_tests.histories import W, history, initial_rows, rows
from tests.crashlab_tests.runs import failed, recorded_log, recording, recovered, state
from tests.crashlab_tests.tapes import MILLISECOND
from workloads.workload import HEADER_READABLE, Recovered

STRICT, PROCESS = Contract("strict"), Contract("process")
DEADLINE_S = 20.0
CUT = Cut(10, 10 * MILLISECOND, 10)
PAST = history([W(1, 0, 1, 2), W(1, 1, 3, 4)], initial_records=3)
WHOLE = rows((0, 1, 1), (1, 1, 2), (2, 0, 3))
SHORT = rows((0, 1, 1), (1, 0, 2), (2, 0, 3))


def test_everything_there_is_held() -> None:
    found = judge_recovered(PAST, recovered(WHOLE), CUT, STRICT, "power-cut")
    assert (found.verdict, found.acks, found.lost) == (Verdict.HELD, 2, 0)


@pytest.mark.parametrize("stage", ["recover", "neutral-open"])
def test_an_engine_that_does_not_open_is_unrecoverable_under_every_contract(stage: str) -> None:
    gone = failed(stage, "Corruption: in the MANIFEST", back=stage == "neutral-open")
    for contract in (STRICT, PROCESS, Contract.parse("bounded:10min")):
        found = judge_recovered(PAST, gone, CUT, contract, "power-cut")
        assert (found.verdict, found.reasons) == (Verdict.BROKEN, ("unrecoverable",))
        assert found.evidence == (f"{stage}: Corruption: in the MANIFEST",)
        assert (found.acks, found.lost, found.lost_initial, found.loss_ms) == (2, 2, 3, 8.0)
        assert found.first_lost is not None and found.first_lost.sequence == 1


def test_being_killed_from_outside_decides_nothing() -> None:
    found = judge_recovered(PAST, failed("recover", "the engine ended by signal 9"), CUT, STRICT, "power-cut")
    assert found.verdict is Verdict.UNKNOWN
    assert "killed from outside" in found.unknown_why


def test_a_signal_of_the_engine_itself_is_unrecoverable() -> None:
    found = judge_recovered(PAST, failed("recover", "the engine ended by signal 6"), CUT, STRICT, "power-cut")
    assert found.reasons == ("unrecoverable",)


@pytest.mark.parametrize("number", [28, 24, 12])
def test_a_machine_without_room_decides_nothing(number: int) -> None:
    error = f"IO error: {os.strerror(number)}: While appending to file: /x/000012.sst"
    found = judge_recovered(PAST, failed("recover", error), CUT, STRICT, "power-cut")
    assert found.verdict is Verdict.UNKNOWN
    assert os.strerror(number) in found.unknown_why


@pytest.mark.parametrize("candidate_is_worse", [True, False])
def test_the_worse_of_two_views_counts(candidate_is_worse: bool) -> None:
    seen = recovered(SHORT, neutral=WHOLE) if candidate_is_worse else recovered(WHOLE, neutral=SHORT)
    found = judge_recovered(PAST, seen, CUT, STRICT, "power-cut")
    assert (found.reasons, found.lost) == (("lost-ack",), 1)


def test_damage_that_one_view_hides_is_told_with_its_view() -> None:
    damaged = WHOLE.copy()
    damaged["flags"][1] = HEADER_READABLE
    found = judge_recovered(PAST, recovered(WHOLE, neutral=damaged), CUT, PROCESS, "power-cut")
    assert found.reasons[0] == "corrupt"
    assert any(line.endswith("(with neutral settings)") for line in found.evidence)


@pytest.mark.parametrize("stage", ["scan", "neutral-scan", "checksum"])
def test_a_failed_scan_or_checksum_is_corrupt(stage: str) -> None:
    broken = failed(stage, "block checksum mismatch", back=True, rows=WHOLE)
    found = judge_recovered(PAST, broken, CUT, PROCESS, "power-cut")
    assert (found.verdict, found.reasons) == (Verdict.BROKEN, ("corrupt",))
    assert found.evidence == (f"{stage}: block checksum mismatch",)


def test_a_recovery_over_the_limit_is_slow() -> None:
    limit = Contract.parse("process,recovery=2s")
    slow = judge_recovered(PAST, recovered(WHOLE, recovery_s=2.5), CUT, limit, "process-crash")
    assert (slow.verdict, slow.reasons) == (Verdict.BROKEN, ("slow-recovery",))
    assert judge_recovered(PAST, recovered(WHOLE, recovery_s=1.5), CUT, limit, "power-cut").reasons == ()
    assert judge_recovered(PAST, recovered(WHOLE, recovery_s=99), CUT, PROCESS, "power-cut").reasons == ()


# States of a recording.


LATER = history([W(1, 0, 21, 22), W(1, 1, 23, 24)], initial_records=3)


def test_a_log_that_is_not_believed_decides_nothing() -> None:
    tape, log_map = recorded_log(LATER)
    made = recording(tape.disk(), LATER, log_map, faults=("writes: 3 bytes differ",))
    for rows_there in (WHOLE, SHORT):
        (found,) = judge_states(made, [state("synced", 30, recovered(rows_there))], STRICT)
        assert found.judgement.verdict is Verdict.UNKNOWN
        assert "3 bytes differ" in found.judgement.unknown_why


def test_an_exception_while_recovering_decides_nothing() -> None:
    tape, log_map = recorded_log(LATER)
    made = recording(tape.disk(), LATER, log_map)
    (found,) = judge_states(made, [state("cache", 30, None, "KeyError: 'what'")], STRICT)
    assert (found.judgement.verdict, found.judgement.unknown_why) == (Verdict.UNKNOWN, "KeyError: 'what'")


def test_an_exposed_ack_that_survives_a_power_cut_decides_nothing() -> None:
    tape, log_map = recorded_log(LATER)
    made = recording(tape.disk(), LATER, log_map)
    (found,) = judge_states(made, [state("synced", 30, recovered(WHOLE))], STRICT)
    assert found.judgement.verdict is Verdict.UNKNOWN
    assert "2 writes survived" in found.judgement.unknown_why
    # The same rows after a process crash are what must be there.
    (found,) = judge_states(made, [state("cache", 30, recovered(WHOLE))], STRICT)
    assert found.judgement.verdict is Verdict.HELD


def test_a_covered_ack_that_is_gone_is_lost_and_told() -> None:
    tape, log_map = recorded_log(LATER)
    tape.fsync(1)
    made = recording(tape.disk(), LATER, log_map)
    (found,) = judge_states(made, [state("synced", 30, recovered(SHORT))], STRICT)
    assert found.judgement.reasons == ("lost-ack",)
    assert found.disagreement is not None
    assert (found.disagreement.survived, found.disagreement.vanished) == (0, 1)


def test_acks_at_and_after_the_position_do_not_count() -> None:
    tape, log_map = recorded_log(LATER)
    made = recording(tape.disk(), LATER, log_map)
    for position, acks, lost in ((22, 0, 0), (23, 1, 1), (24, 1, 1), (25, 2, 2)):
        (found,) = judge_states(made, [state("cache", position, recovered(rows(*initial_rows(3))))], STRICT)
        assert (found.judgement.acks, found.judgement.lost) == (acks, lost)


def test_content_from_after_the_cut_is_a_phantom() -> None:
    tape, log_map = recorded_log(LATER)
    made = recording(tape.disk(), LATER, log_map)
    (found,) = judge_states(made, [state("cache", 23, recovered(WHOLE))], STRICT)
    assert "phantom" in found.judgement.reasons


def test_a_recovery_that_does_not_end_is_tried_once_more() -> None:
    late = Recovered(False, "recover", "not back", 60.0, rows(), rows(), is_late=True)
    there = recovered(rows(*initial_rows(2)))
    answers = [late, there]
    assert recover_patiently(lambda: answers.pop(0)) is there
    answers = [late, late, there]
    assert recover_patiently(lambda: answers.pop(0)).is_late
    assert answers == [there]


def test_a_reason_is_told_once_and_its_evidence_each_time() -> None:
    damaged = WHOLE.copy()
    damaged["flags"][1] = HEADER_READABLE
    broken = failed("checksum", "block checksum mismatch", back=True, rows=damaged)
    found = judge_recovered(PAST, broken, CUT, STRICT, "power-cut")
    assert found.reasons.count("corrupt") == 1
    assert "checksum: block checksum mismatch" in found.evidence and len(found.evidence) > 1


def test_an_interrupt_does_not_wait_for_the_states_that_are_left(tmp_path: Path) -> None:
    """Ctrl-C comes to the thread that waits; the workers end with the state that they are at."""
    tape, log_map = recorded_log(LATER)
    subject, waits, workers = MagicMock(), threading.get_ident(), workers_at_most()
    # Each state has a content of its own, or nobody would recover it.
    writes = [tape.write(1, 100 + 10 * number, b"0123456789") for number in range(5 * workers)]
    recoverer = _Recoverer(recording(tape.disk(), LATER, log_map), subject, tmp_path, lambda: None)
    all_begun = threading.Barrier(workers, lambda: signal.pthread_kill(waits, signal.SIGINT))
    begun: list[int] = []

    def verify(*_: object, **__: object) -> Recovered:
        is_first = threading.get_ident() not in begun
        begun.append(threading.get_ident())
        if is_first:
            all_begun.wait(DEADLINE_S)
            recoverer._is_given_up.wait(DEADLINE_S)
        return recovered(WHOLE)

    subject.workload.verifier.return_value.__enter__.return_value.verify = verify
    planned = [PlannedState("cache", write.begin, 1, "uniform", "") for write in writes]
    # What pytest was started from may have it ignored, as a shell has it for what runs in its background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            recoverer.recover(planned)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(begun) == workers == len({*begun})


def test_what_a_recording_keeps_beside_its_base_takes_no_room_in_memory(tmp_path: Path) -> None:
    """Its ledger has far more room than was written into; the log is counted by itself."""
    tape, log_map = recorded_log(LATER)
    made, subject, parent = recording(tape.disk(), LATER, log_map), MagicMock(), tmp_path / "parent"
    made.folder, subject.engine.runs_as = tmp_path / "recording", None
    for folder in (parent, made.folder / "base"):
        folder.mkdir(parents=True)
    (made.folder / "ledger").touch()
    os.truncate(made.folder / "ledger", 1 << 40)
    with Scratch() as scratch:
        recover_states(made, subject, [PlannedState("cache", 21, 1, "uniform", "")], scratch, parent)
    (worker,) = subject.launch.call_args.args
    assert worker.is_relative_to(SHARED_MEMORY_FOLDER)
