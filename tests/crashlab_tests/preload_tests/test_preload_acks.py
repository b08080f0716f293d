"""Acknowledgements that the library stamps in the ledger, told from a backend's bytes however cut."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from crashlab.preload.processes import ProcessList
from crashlab.preload.recorder import PreloadRecorder
from tests.crashlab_tests.preload_tests.backend import (
    CANCEL,
    COPY_DONE,
    COPY_FAIL,
    COPY_IN,
    ERROR,
    EXECUTE,
    NOTICE,
    PARSED,
    ROW,
    SSL_REQUEST,
    SYNC,
    Backend,
    bind,
    complete,
    copy_data,
    insert,
    message,
    parse,
    query,
    ready,
    startup,
    token,
)
from tests.crashlab_tests.preload_tests.programs import HERE, LEDGER_HEADER, SOURCES, Stage, compile_c
from workloads.ledger import (
    ACKNOWLEDGED,
    BEGUN,
    FAILED,
    KIND_INSERT,
    KIND_UPDATE,
    STOP_LEDGER_FULL,
    STOP_NONE,
    Entries,
    Ledger,
)

# Each builds or starts programs; together they take too long for `make check`.
pytestmark = pytest.mark.slow

CLIENTS, CAPACITY = 3, 50
COMMITTED = complete("INSERT 0 1") + ready("I")


@dataclass
class Lab:
    """A backend in acks-only mode, and the ledger that it stamps."""

    ledger: Ledger
    environment: dict[str, str]

    def backend(self, **more: str) -> Backend:
        def start(command: list[str], descriptors: list[int]) -> subprocess.Popen[str]:
            return subprocess.Popen(
                command,
                env={**os.environ, **self.environment, **more},
                pass_fds=descriptors,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )

        return Backend(start)

    def entries(self) -> Entries:
        return self.ledger.entries()

    def fates(self, client: int = 1) -> list[int]:
        """The statuses of one client's entries, by sequence."""
        entries = self.entries()
        return [int(status) for status in entries.status[entries.client == client]]


def make_lab(recorder: PreloadRecorder, folder: Path) -> Lab:
    ledger, processes = folder / "ledger", folder / "processes"
    ProcessList.create(processes)
    return Lab(Ledger.create(ledger, CLIENTS, CAPACITY), recorder.acks_environment(ledger, processes))


@pytest.fixture
def lab(recorder: PreloadRecorder, tmp_path: Path) -> Lab:
    return make_lab(recorder, tmp_path)


@pytest.fixture
def backend(lab: Lab) -> Iterator[Backend]:
    with lab.backend() as backend:
        backend.starts()
        yield backend


def test_a_write_begins_when_it_is_received_and_ends_before_its_answer_goes_out(
    lab: Lab, backend: Backend
) -> None:
    assert len(lab.entries()) == 0
    backend.hears(insert(1, 1))
    assert lab.fates() == [BEGUN]
    # Until the client reads, nothing but the call to send can have happened.
    backend.says(complete("INSERT 0 1"))
    assert lab.fates() == [BEGUN]
    backend.says(ready("I"))
    entries = lab.entries()
    assert lab.fates() == [ACKNOWLEDGED]
    assert 0 < entries.begin[0] <= entries.end[0] < lab.ledger.position
    assert 0 < entries.begin_ns[0] <= entries.end_ns[0]
    assert (int(entries.kind[0]), int(entries.register[0])) == (KIND_INSERT, 0)
    assert lab.ledger.operations == 1


@pytest.mark.parametrize(
    ("answer", "fate"),
    [
        (complete("INSERT 0 1") + ready("I"), ACKNOWLEDGED),
        (NOTICE + ROW + complete("INSERT 0 1") + NOTICE + ready("I"), ACKNOWLEDGED),
        (complete("INSERT 0 1") + ready("T"), BEGUN),
        (ERROR + ready("I"), FAILED),
        (ERROR + ready("E"), FAILED),
        (complete("INSERT 0 1") + ERROR + ready("I"), FAILED),
        (ERROR + complete("INSERT 0 1") + ready("I"), FAILED),
        (complete("INSERT 0 1") + complete("ROLLBACK") + ready("I"), FAILED),
        (complete("PREPARE TRANSACTION") + ready("I"), FAILED),
        (complete("ROLLBACK PREPARED") + ready("I"), ACKNOWLEDGED),
        (message(b"I") + ready("I"), FAILED),  # an empty query
        (ready("I"), FAILED),
        *((complete(tag) + ready("I"), FAILED) for tag in ("UPDATE 0", "INSERT 0 0", "DELETE 0")),
        *((complete(tag) + ready("I"), ACKNOWLEDGED) for tag in ("UPDATE 1", "INSERT 0 10", "SELECT 0")),
        (complete("UPDATE 0") + complete("INSERT 0 1") + ready("I"), ACKNOWLEDGED),
        (complete("INSERT 0 1"), BEGUN),
    ],
)
def test_only_a_commit_is_an_acknowledgement(lab: Lab, backend: Backend, answer: bytes, fate: int) -> None:
    backend.hears(insert(1, 1))
    backend.says(answer)
    assert lab.fates() == [fate]


def test_a_transaction_is_acknowledged_by_the_answer_that_ends_it(lab: Lab, backend: Backend) -> None:
    for text, tag, status in (("BEGIN", "BEGIN", "T"), (f"INSERT {token(1, 1)}", "INSERT 0 1", "T")):
        backend.hears(query(text))
        backend.says(complete(tag) + ready(status))
    assert lab.fates() == [BEGUN]
    backend.hears(query("COMMIT"))
    backend.says(complete("COMMIT") + ready("I"))
    assert lab.fates() == [ACKNOWLEDGED]


@pytest.mark.parametrize("how", ["rollback", "error", "failed commit", "savepoint"])
def test_a_transaction_that_drops_work_acknowledges_none_of_it(lab: Lab, backend: Backend, how: str) -> None:
    backend.hears(query(f"BEGIN; INSERT {token(1, 1)}"))
    backend.says(complete("BEGIN") + complete("INSERT 0 1") + ready("T"))
    tag = "ROLLBACK"
    if how in ("error", "failed commit"):
        backend.hears(query("oops"))
        backend.says(ERROR + ready("E"))
        assert lab.fates() == [FAILED]
    if how == "savepoint":
        backend.hears(query("ROLLBACK TO s"))
        backend.says(complete("ROLLBACK") + ready("T"))
        backend.hears(insert(1, 2))
        backend.says(complete("INSERT 0 1") + ready("T"))
        tag = "COMMIT"
    backend.hears(query(tag))
    backend.says(complete(tag) + ready("I"))
    assert lab.fates() == ([FAILED, ACKNOWLEDGED] if how == "savepoint" else [FAILED])


def test_the_next_transaction_owes_nothing_to_a_failed_one(lab: Lab, backend: Backend) -> None:
    backend.hears(insert(1, 1))
    backend.says(ERROR + ready("I"))
    backend.hears(insert(1, 2))
    backend.says(COMMITTED)
    assert lab.fates() == [FAILED, ACKNOWLEDGED]


def test_tokens_in_parameters_of_the_extended_protocol(lab: Lab, backend: Backend) -> None:
    backend.hears(parse("INSERT INTO h VALUES ($1)") + bind(str(token(1, 1))) + EXECUTE + SYNC)
    backend.says(PARSED + COMMITTED)
    backend.hears(bind(str(token(1, 2))) + EXECUTE + SYNC)
    backend.says(message(b"2") + COMMITTED)
    backend.hears(parse(f"INSERT INTO h VALUES ('{token(1, 3)}')") + bind("x") + EXECUTE + SYNC)
    backend.says(PARSED + COMMITTED)
    assert lab.fates() == [ACKNOWLEDGED] * 3


def test_what_was_only_prepared_was_not_done(lab: Lab, backend: Backend) -> None:
    """Also where the query before it completed a command."""
    backend.hears(insert(1, 1))
    backend.says(COMMITTED)
    backend.hears(parse(f"INSERT INTO h VALUES ('{token(1, 2)}')") + SYNC)
    backend.says(message(b"1") + ready("I"))
    backend.hears(insert(1, 3))
    backend.says(COMMITTED)
    assert lab.fates() == [ACKNOWLEDGED, FAILED, ACKNOWLEDGED]


def test_pipelined_queries_are_answered_one_by_one(lab: Lab, backend: Backend) -> None:
    backend.hears(b"".join(bind(str(token(1, n))) + EXECUTE + SYNC for n in (1, 2, 3)) + insert(1, 4))
    assert lab.fates() == [BEGUN] * 4
    backend.says(message(b"2") + COMMITTED)
    assert lab.fates() == [ACKNOWLEDGED, BEGUN, BEGUN, BEGUN]
    backend.says(ERROR + ready("I"))
    assert lab.fates() == [ACKNOWLEDGED, FAILED, BEGUN, BEGUN]
    backend.says(message(b"2") + COMMITTED + COMMITTED)
    assert lab.fates() == [ACKNOWLEDGED, FAILED, ACKNOWLEDGED, ACKNOWLEDGED]


def test_several_tokens_of_one_transaction_share_its_fate(lab: Lab, backend: Backend) -> None:
    backend.hears(query(f"INSERT '{token(1, 1)}'; INSERT '{token(1, 2)}', '{token(2, 1)}'"))
    backend.says(complete("INSERT 0 1") + complete("INSERT 0 2") + ready("I"))
    assert lab.fates(1) == [ACKNOWLEDGED] * 2 and lab.fates(2) == [ACKNOWLEDGED]


@pytest.mark.parametrize("extended", [False, True])
def test_copy(lab: Lab, backend: Backend, extended: bool) -> None:
    """libpq sends a Sync with its query, which is not answered, and one behind the data."""
    ask = parse("COPY h FROM STDIN") + bind("") + EXECUTE + SYNC if extended else query("COPY h FROM STDIN")
    end = SYNC if extended else b""
    backend.hears(ask)
    backend.says(COPY_IN)
    backend.hears(copy_data(f"{token(1, 1)}\n") + copy_data(f"{token(1, 2)}\n"))
    assert lab.fates() == [BEGUN, BEGUN]
    backend.hears(COPY_DONE + end)
    backend.says(complete("COPY 2") + ready("I"))
    assert lab.fates() == [ACKNOWLEDGED, ACKNOWLEDGED]
    backend.hears(insert(1, 3))
    assert lab.fates()[2] == BEGUN
    backend.says(COMMITTED)
    assert lab.fates()[2] == ACKNOWLEDGED
    backend.hears(ask + copy_data(f"{token(1, 4)}\n") + COPY_FAIL + end)
    backend.says(COPY_IN + ERROR + ready("I"))
    assert lab.fates()[3] == FAILED


def test_copied_data_that_nobody_asked_for_fails_at_once(lab: Lab, backend: Backend) -> None:
    backend.hears(query("COPY absent FROM STDIN"))
    backend.says(ERROR + ready("I"))
    backend.hears(copy_data(f"{token(1, 1)}\n") + COPY_DONE + insert(1, 2))
    backend.says(COMMITTED)
    assert lab.fates() == [FAILED, ACKNOWLEDGED]


def test_a_function_call_is_answered_too(lab: Lab, backend: Backend) -> None:
    """By a result and no completed command, so its own token fails and the next query's is not confused."""
    backend.hears(message(b"F", f"({token(1, 1)})".encode()) + insert(1, 2))
    backend.says(message(b"V", bytes(4)) + ready("I"))
    assert lab.fates() == [FAILED, BEGUN]
    backend.says(COMMITTED)
    assert lab.fates() == [FAILED, ACKNOWLEDGED]


def test_an_answer_to_nothing_acknowledges_nothing(lab: Lab, backend: Backend) -> None:
    backend.hears(bind(str(token(1, 1))))
    backend.says(COMMITTED)
    assert lab.fates() == [FAILED]


def test_every_cut_of_both_directions(lab: Lab, backend: Backend) -> None:
    sequence = 0
    asked = query(f"BEGIN; INSERT INTO h VALUES ('{token(1, 10)}', 'x')") + message(b"H")
    for cut in range(1, len(asked), 3):
        sequence += 1
        text = asked.replace(str(token(1, 10)).encode(), str(token(1, sequence)).encode())
        backend.hears(text, cut)
        assert lab.fates() == [ACKNOWLEDGED] * (sequence - 1) + [BEGUN]
        answer = complete("BEGIN") + ROW + complete("COMMIT") + ready("I")
        backend.says(answer, *sorted({1 + cut % len(answer), len(answer) - 1 - cut % 6}))
    assert lab.fates() == [ACKNOWLEDGED] * sequence


def test_bytes_in_pieces_of_any_size(lab: Lab, rng: random.Random) -> None:
    with lab.backend() as backend:
        hello = message(b"R", bytes(4)) + ready("I")
        backend.hears(startup(), *sorted(rng.sample(range(1, 20), 5)))
        backend.says(hello, *sorted(rng.sample(range(1, len(hello)), 3)))
        for sequence in range(1, 20):
            asked = parse("INSERT") + bind(str(token(2, sequence))) + EXECUTE + SYNC
            backend.hears(asked, *sorted(rng.sample(range(1, len(asked)), 8)))
            fails = rng.random() < 0.3
            answer = PARSED + (ERROR + ready("I") if fails else ROW + COMMITTED)
            backend.says(answer, *sorted(rng.sample(range(1, len(answer)), 8)))
            assert lab.fates(2)[-1] == (FAILED if fails else ACKNOWLEDGED)


@pytest.mark.parametrize(
    ("receiving", "sending"), [("recvfrom", "sendto"), ("recvmsg", "sendmsg"), ("__recv_chk", "send")]
)
def test_every_call_that_receives_and_sends(lab: Lab, receiving: str, sending: str) -> None:
    with lab.backend() as backend:
        backend.uses(receiving, sending)
        backend.starts()
        for sequence in (1, 2):
            backend.hears(insert(1, sequence), 30)
            assert lab.fates()[-1] == BEGUN
            backend.says((ERROR + ready("I")) if sequence == 1 else ROW + COMMITTED)
        assert lab.fates() == [FAILED, ACKNOWLEDGED]


def test_bytes_that_are_only_looked_at_are_not_heard(lab: Lab, backend: Backend) -> None:
    backend.peeks(insert(1, 1))
    assert len(lab.entries()) == 0
    backend.takes(len(insert(1, 1)))
    backend.says(COMMITTED)
    assert lab.fates() == [ACKNOWLEDGED]


def test_a_send_that_takes_a_part_is_not_counted_twice(lab: Lab, backend: Backend) -> None:
    """PostgreSQL offers the rest again, so the answer is looked at once and the next one in its place."""
    backend.hears(insert(1, 1) + insert(1, 2))
    data = b"".join(message(b"D", bytes(60_000)) for _ in range(60)) + COMMITTED
    taken = backend.offers(data)
    assert taken < len(data), "the socket took all of it"
    assert lab.fates() == [ACKNOWLEDGED, BEGUN]
    while taken < len(data):
        backend.reads(1)
        backend.reads(min(taken, 100_000) - 1)
        taken += backend.offers(data[taken:])
    assert lab.fates() == [ACKNOWLEDGED, BEGUN]
    backend.reads(50_000)
    backend.says(COMMITTED)
    assert lab.fates() == [ACKNOWLEDGED, ACKNOWLEDGED]


@pytest.mark.parametrize(
    "text",
    [
        "8000001000000000001",
        "6999999999999999999",
        "70000010000000000010",
        "700000100000000000",
        "17000001000000000001",
        f"{token(0, 1)}",
        f"{token(CLIENTS + 1, 1)}",
        f"{token(1, 0)}",
        "7000001 000000000001",
        f"'user{token(1, 1)}'",
        f"Z{token(1, 1)}",
    ],
)
def test_what_is_no_token(lab: Lab, backend: Backend, text: str) -> None:
    backend.hears(query(f"INSERT {text}"))
    backend.says(COMMITTED)
    assert len(lab.entries()) == 0 and lab.ledger.stop == STOP_NONE


def test_a_run_of_digits_ends_with_its_message(lab: Lab, backend: Backend) -> None:
    backend.hears(copy_data("7000001") + message(b"d", b"000000000001") + insert(1, 1))
    assert len(lab.entries()) == 1


@pytest.mark.parametrize("cut", [-45, -1, 0, 1, 18])
def test_the_letter_before_a_number_may_come_before_it(lab: Lab, backend: Backend, cut: int) -> None:
    key = query(f"UPDATE h SET f = 1 WHERE ycsb_key = 'user{token(1, 9)}' AND n = {token(1, 1)}")
    backend.hears(key, key.index(str(token(1, 9)).encode()) + cut)
    backend.says(complete("UPDATE 1") + ready("I"))
    assert lab.fates() == [ACKNOWLEDGED]
    # Only a letter of the same message counts.
    backend.hears(message(b"P", b"x") + query(f"{token(1, 2)}"))
    assert lab.fates() == [ACKNOWLEDGED, BEGUN]


def test_skipped_numbers_are_failed_entries(lab: Lab, backend: Backend) -> None:
    backend.hears(insert(2, 4))
    assert lab.fates(2) == [FAILED, FAILED, FAILED, BEGUN]
    backend.says(COMMITTED)
    assert lab.fates(2) == [FAILED, FAILED, FAILED, ACKNOWLEDGED]
    assert lab.ledger.operations == 1
    # One that comes late after all is under way, and no more entries are published.
    backend.hears(insert(2, 2))
    assert lab.fates(2) == [FAILED, BEGUN, FAILED, ACKNOWLEDGED]
    backend.says(COMMITTED)
    assert lab.fates(2) == [FAILED, ACKNOWLEDGED, FAILED, ACKNOWLEDGED]


def test_a_token_that_comes_again(lab: Lab, backend: Backend) -> None:
    """In a second statement, in a repeated transaction, and in a question about what was written."""
    backend.hears(query(f"BEGIN; INSERT {token(1, 1)}"))
    backend.says(complete("BEGIN") + complete("INSERT 0 1") + ready("T"))
    begin = lab.entries().begin[0]
    backend.hears(query(f"UPDATE {token(1, 1)}"))
    backend.says(ERROR + ready("E"))
    backend.hears(query(f"ROLLBACK; INSERT {token(1, 1)}"))
    assert lab.fates() == [BEGUN] and lab.entries().begin[0] == begin
    backend.says(complete("ROLLBACK"))
    assert lab.fates() == [FAILED]
    backend.says(complete("INSERT 0 1") + ready("I"))
    backend.hears(insert(1, 1))
    backend.says(COMMITTED)
    assert lab.fates() == [ACKNOWLEDGED]
    end = lab.entries().end[0]
    backend.hears(query(f"SELECT {token(1, 1)}"))
    backend.says(ERROR + ready("I"))
    assert lab.fates() == [ACKNOWLEDGED] and lab.entries().end[0] == end


def test_what_the_client_filled_stays(lab: Lab, backend: Backend) -> None:
    row = lab.ledger._view(0, 1)
    memory = row.copy()
    memory["register"], memory["checksum"], memory["kind"], memory["extra"] = 77, 88, KIND_UPDATE, 9
    offset = 8192  # docs/formats.md: the entries of three clients
    lab.ledger._memory[offset : offset + 64] = memory.tobytes()
    backend.hears(insert(1, 1))
    backend.says(COMMITTED)
    entries = lab.entries()
    assert [
        int(column[0]) for column in (entries.register, entries.checksum, entries.kind, entries.extra)
    ] == [
        77,
        88,
        KIND_UPDATE,
        9,
    ]
    assert lab.ledger.operations == 0, "a client that fills its entries counts its operations itself"


def test_a_full_ledger_asks_to_stop(lab: Lab, backend: Backend) -> None:
    backend.hears(insert(1, CAPACITY))
    assert lab.ledger.stop == STOP_NONE
    backend.hears(insert(1, CAPACITY + 1))
    assert lab.ledger.stop == STOP_LEDGER_FULL
    assert len(lab.entries()) == CAPACITY


def test_more_tokens_than_can_be_followed_are_not_acknowledged(
    recorder: PreloadRecorder, tmp_path: Path
) -> None:
    lab = make_lab(recorder, tmp_path)
    lab.ledger.close()
    (tmp_path / "ledger").unlink()
    lab.ledger = Ledger.create(tmp_path / "ledger", 1, 2000)
    with lab.backend() as backend:
        backend.starts()
        backend.hears(query("COPY h FROM STDIN"))
        backend.says(COPY_IN)
        backend.hears(b"".join(copy_data(f"{token(1, n)}") for n in range(1, 1031)) + COPY_DONE)
        backend.says(complete("COPY 1030") + ready("I"))
        assert lab.fates() == [ACKNOWLEDGED] * 1024 + [FAILED] * 6


def test_two_connections_of_one_process(lab: Lab, backend: Backend) -> None:
    backend.starts("b")
    backend.hears(insert(1, 1))
    backend.hears(insert(2, 1), name="b")
    backend.says(COMMITTED, name="b")
    assert (lab.fates(1), lab.fates(2)) == ([BEGUN], [ACKNOWLEDGED])
    backend.closes("b")


def test_a_closed_connection_is_forgotten(lab: Lab, backend: Backend) -> None:
    """Its number is that of another connection next, which begins with a start packet again."""
    backend.hears(insert(1, 1))
    backend.closes("a", successor="b")
    assert lab.fates() == [BEGUN]
    backend.starts("b")
    backend.hears(insert(1, 2), name="b")
    backend.says(COMMITTED, name="b")
    assert lab.fates() == [BEGUN, ACKNOWLEDGED]


@pytest.mark.parametrize("answer", [b"N", b"S", b"G"])
def test_a_request_for_encryption(lab: Lab, answer: bytes) -> None:
    with lab.backend() as backend:
        backend.hears(SSL_REQUEST)
        backend.says(answer)
        backend.starts()
        backend.hears(insert(1, 1))
        backend.says(COMMITTED)
        assert lab.fates() == ([ACKNOWLEDGED] if answer == b"N" else [])


@pytest.mark.parametrize("first", [CANCEL, b"\x16\x03\x01\x02\x00\x01\x00\x01", b"GET / HTTP/1.1\r\n\r\n"])
def test_other_connections_are_left_alone(lab: Lab, first: bytes) -> None:
    with lab.backend() as backend:
        backend.hears(first)
        backend.hears(insert(1, 1))
        backend.says(COMMITTED)
        assert len(lab.entries()) == 0


def test_a_client_inside_of_the_server_is_left_alone(lab: Lab) -> None:
    """A connection that a backend opens itself: it speaks first, and hears what a server says."""
    with lab.backend() as backend:
        backend.says(startup())
        backend.hears(message(b"R", bytes(4)) + ready("I"))
        backend.says(insert(1, 1))
        backend.hears(COMMITTED + insert(1, 2))
        assert len(lab.entries()) == 0


@pytest.mark.parametrize("dropped", ["recv", "send"])
def test_a_library_without_the_interception_acknowledges_nothing(
    dropping_recorder: PreloadRecorder, tmp_path: Path, dropped: str
) -> None:
    """The lab sees writes that began and no acknowledgement, or no write at all: nothing is decidable."""
    lab = make_lab(dropping_recorder, tmp_path)
    with lab.backend(DURATUNE_TEST_DROP=dropped) as backend:
        backend.starts()
        for sequence in range(1, 6):
            backend.hears(insert(1, sequence))
            backend.says(COMMITTED)
    entries = lab.entries()
    assert not entries.acknowledged.any()
    assert len(entries) == (5 if dropped == "send" else 0)


def test_acks_are_stamped_beside_a_write_log(recorder: PreloadRecorder, tmp_path: Path) -> None:
    stage = Stage.make(recorder, tmp_path)
    lab = Lab(
        Ledger.open(stage.ledger_path), recorder.environment(stage.root, stage.log_path, stage.ledger_path)
    )
    with lab.backend() as backend:
        backend.starts()
        backend.hears(insert(1, 1))
        backend.says(COMMITTED)
        assert lab.fates() == [ACKNOWLEDGED]
    assert stage.log().attached_pids == [backend.process.pid]


def test_right_and_wrong_bytes_under_sanitizers(builds: Path, seed: int) -> None:
    program = compile_c(
        builds / "fuzz_conversation",
        [HERE / "fuzz_conversation.c", SOURCES / "conversation.c", SOURCES / "stamps.c"],
        *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
        *(f"-I{SOURCES}", f"-I{LEDGER_HEADER}"),
    )
    done = subprocess.run([program, str(seed), "1000"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.returncode} {done.stdout}{done.stderr}"
    assert int(done.stdout.split()[0]) > 50, "hardly anything was acknowledged, so hardly anything was tried"
