"""The library in a real PostgreSQL: what pgbench calls done is acknowledged, the log is the live files."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest

from crashlab.preload.processes import Origin, ProcessList, reported_in, unreported
from crashlab.preload.recorder import PreloadRecorder
from crashlab.recording.write_log import NOTES, Kind, WriteLog
from tests.crashlab_tests.preload_tests.backend import token
from tests.crashlab_tests.preload_tests.clusters import CLIENTS, TPCB, Cluster, find_bindirs
from tests.crashlab_tests.preload_tests.replay import Base, Replay
from workloads.ledger import ACKNOWLEDGED, BEGUN, FAILED, Entries, Ledger, SyncSample

pytestmark = pytest.mark.slow

WRITTEN_BY_STDIO = ("pg_internal.init", "postmaster.opts", ".stat")
"""What a run leaves of the files that the server writes through stdio; recovery reads none of them. The last
are statistics: up to version 14 while it runs, since then at a clean stop."""
COUNT = {
    14: "SELECT wal_sync FROM pg_stat_wal",
    18: "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal' AND context = 'normal'",
}
"""The server's own count of WAL syncs, by the version that first had it so; 13 has none."""
NO_SERVER: list[None] = [] if find_bindirs() else [None]
SAVED = "INSERT INTO pgbench_history (tid, filler) VALUES (:n, :token);"
NUMBER = r"""
\set n :n + 1
\set token 7000000000000000000 + (:client_id + 1) * 1000000000000 + :n
"""


@dataclass
class Acks:
    """What one test adds to the ledger of a server in acks-only mode: sequences above ``first``."""

    cluster: Cluster
    ledger: Ledger
    first: int

    def entries(self) -> Entries:
        every = self.ledger.entries()
        mine = every.sequence > self.first
        return Entries(**{field.name: getattr(every, field.name)[mine] for field in fields(Entries)})

    def token(self, client: int, number: int) -> int:
        return token(client, self.first + number)

    def pgbench(self, script: str, *options: str) -> tuple[int, int]:
        return pgbench(self.cluster, script, "-D", f"n={self.first}", *options)


@pytest.fixture(scope="module", params=[*find_bindirs(), *NO_SERVER], ids=str)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One cluster for all, started by each test as it needs it."""
    if request.param is None:
        pytest.skip("no PostgreSQL server with pgbench below /usr/lib/postgresql")
    cluster = Cluster.make(request.param)
    yield cluster
    cluster.remove()


@pytest.fixture
def acks(cluster: Cluster, recorder: PreloadRecorder) -> Acks:
    """A server in acks-only mode, which goes on from test to test, with no history yet."""
    if cluster.mode != "acks":
        cluster.stop()
        cluster.record(recorder, with_log=False).close()
    ledger = Ledger.open(cluster.ledger_path)
    cluster.query("TRUNCATE pgbench_history")
    return Acks(cluster, ledger, int(ledger.entries().sequence.max(initial=0)))


def test_environment_that_the_server_writes_over_was_read_before(cluster: Cluster, acks: Acks) -> None:
    """PostgreSQL shows its titles in the memory of the environment, where getenv's answers once lay."""
    psql = cluster.begin("psql", "-XAtq")
    assert psql.stdin is not None and psql.stdout is not None
    psql.stdin.write("SELECT pg_backend_pid();\n")
    psql.stdin.flush()
    backend = Path("/proc") / psql.stdout.readline().strip()
    assert b"DURATUNE_RECORD_LEDGER" not in (backend / "environ").read_bytes()
    assert (backend / "cmdline").read_bytes().startswith(b"postgres: ")
    psql.stdin.write(f"INSERT INTO pgbench_history (tid, filler) VALUES (1, {acks.token(1, 1)});\n")
    psql.communicate()
    assert tokens(acks.entries(), ACKNOWLEDGED) == {acks.token(1, 1)} == kept(cluster)


def pgbench(cluster: Cluster, script: str, *options: str) -> tuple[int, int]:
    """Run a script to its end; returns the transactions that its own log calls done, and the failed ones."""
    prefix = cluster.work / f"pgbench{time.monotonic_ns()}"
    cluster.run(
        "pgbench",
        *("-n", "-l", "--log-prefix", prefix, "-f", cluster.script("script", script)),
        *options,
        check=False,
    )
    lines = [line for path in cluster.work.glob(prefix.name + "*") for line in path.read_text().splitlines()]
    failed = [line for line in lines if line.split()[2] in ("failed", "serialization", "deadlock")]
    return len(lines) - len(failed), len(failed)


def kept(cluster: Cluster) -> set[int]:
    """The tokens that are in the database."""
    return {int(word) for word in cluster.query("SELECT filler FROM pgbench_history").split()}


def tokens(entries: Entries, status: int) -> set[int]:
    chosen = entries.status == status
    pairs = zip(entries.client[chosen].tolist(), entries.sequence[chosen].tolist(), strict=True)
    return {token(client, sequence) for client, sequence in pairs}


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_every_transaction_that_pgbench_calls_done_is_acknowledged(
    cluster: Cluster, acks: Acks, mode: str
) -> None:
    done, _ = acks.pgbench(TPCB, "-M", mode, "-c4", "-t", "60")
    entries = acks.entries()
    assert done == 4 * 60 == len(entries)
    assert entries.acknowledged.all()
    assert tokens(entries, ACKNOWLEDGED) == kept(cluster)
    assert (entries.end_ns > entries.begin_ns).all()
    reports = ProcessList.read(cluster.processes_path)
    assert reports[0].origin is Origin.PROGRAM and {r.origin for r in reports[1:]} == {Origin.FORK}


@pytest.mark.parametrize("mode", ["simple", "prepared"])
def test_what_was_rolled_back_is_not_acknowledged(cluster: Cluster, acks: Acks, mode: str) -> None:
    script = (
        NUMBER
        + rf"""
BEGIN;
{SAVED}
\if (:n - :first) % 3 = 0
ROLLBACK;
\else
COMMIT;
\endif
"""
    )
    done, _ = acks.pgbench(script, "-M", mode, "-D", f"first={acks.first}", "-c4", "-t", "30")
    entries = acks.entries()
    assert done == 120 == len(entries)
    assert tokens(entries, ACKNOWLEDGED) == kept(cluster)
    assert np.array_equal(entries.acknowledged, (entries.sequence - acks.first) % 3 != 0)
    assert tokens(entries, FAILED) == {acks.token(c, n) for c in range(1, 5) for n in range(3, 31, 3)}


@pytest.mark.parametrize("mode", ["simple", "extended"])
def test_failing_statement_takes_its_transaction_along(cluster: Cluster, acks: Acks, mode: str) -> None:
    """The client gives up at its tenth transaction, by an error behind the write."""
    script = NUMBER + f"BEGIN;\n{SAVED}\nSELECT 1 / (10 - :n + :first);\nCOMMIT;\n"
    done, _ = acks.pgbench(script, "-M", mode, "-D", f"first={acks.first}", "-c2", "-t", "30")
    entries = acks.entries()
    assert done == 18
    assert tokens(entries, ACKNOWLEDGED) == kept(cluster)
    assert tokens(entries, FAILED) == {acks.token(1, 10), acks.token(2, 10)}


def test_serialization_failures_and_their_repetitions(cluster: Cluster, acks: Acks) -> None:
    if cluster.version < 15:
        pytest.skip("pgbench repeats transactions since version 15")
    script = (
        NUMBER
        + rf"""
BEGIN ISOLATION LEVEL REPEATABLE READ;
UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;
{SAVED}
\sleep 1 ms
END;
"""
    )
    done, failed = acks.pgbench(script, "-c4", "-t", "60", "--max-tries", "3", "--failures-detailed")
    entries = acks.entries()
    assert done + failed == 240 and failed > 0
    assert int(entries.acknowledged.sum()) == done
    assert tokens(entries, ACKNOWLEDGED) == kept(cluster)
    assert not tokens(entries, BEGUN)


def test_pipelines_copies_and_prepared_transactions(cluster: Cluster, acks: Acks) -> None:
    script = rf"""
\startpipeline
\set token {acks.token(1, 1)}
{SAVED}
\syncpipeline
\set token {acks.token(1, 2)}
{SAVED}
\endpipeline
"""
    if cluster.version >= 17:  # pgbench's \syncpipeline is new there
        acks.pgbench(script, "-M", "extended", "-c1", "-t", "1")
    lines = "".join(f"1\t{acks.token(2, n)}\n" for n in range(1, 4))
    cluster.run("psql", "-Xqc", "COPY pgbench_history (tid, filler) FROM STDIN", given=lines)
    cluster.run("psql", "-Xqc", "COPY absent FROM STDIN", given=f"{acks.token(2, 4)}\n", check=False)
    cluster.run(
        "psql", "-Xqc", "COPY pgbench_branches FROM STDIN", given=f"x{acks.token(2, 5)}\n", check=False
    )
    two_phase = f"BEGIN; INSERT INTO pgbench_history (tid, filler) VALUES (1, {acks.token(3, 1)}); "
    cluster.query(two_phase + "PREPARE TRANSACTION 'x'")
    cluster.query("ROLLBACK PREPARED 'x'")
    several = (
        f"INSERT INTO pgbench_history (tid, filler) VALUES (1, {acks.token(4, 1)}), (1, {acks.token(4, 2)})"
    )
    cluster.query(several)
    entries = acks.entries()
    acknowledged = tokens(entries, ACKNOWLEDGED)
    assert acknowledged == kept(cluster)
    assert {acks.token(2, n) for n in range(1, 4)} | {acks.token(4, 1), acks.token(4, 2)} <= acknowledged
    # Of the two refused copies psql sends no data, or all of it; what arrived has failed.
    assert acks.token(3, 1) in tokens(entries, FAILED)


@pytest.mark.slow
def test_kill_leaves_no_process_unreported_and_open_writes_unanswered(cluster: Cluster, acks: Acks) -> None:
    """A planted write that is never committed, in a load that is killed in its middle."""
    psql = cluster.begin("psql", "-XAtq")
    assert psql.stdin is not None and psql.stdout is not None
    psql.stdin.write(
        f"BEGIN; INSERT INTO pgbench_history (tid, filler) VALUES (1, {acks.token(4, 7)}) RETURNING 1;\n"
    )
    psql.stdin.flush()
    assert psql.stdout.readline() == "1\n"
    script = cluster.script("s", TPCB)
    lines = cluster.work / f"killed{time.monotonic_ns()}"
    logged = ("-l", "--log-prefix", lines)
    load = cluster.begin("pgbench", "-n", "-c3", "-T", "60", "-D", f"n={acks.first}", *logged, "-f", script)
    await_(lambda: int(acks.entries().acknowledged.sum()) > 100)
    killed = cluster.kill()
    for process in (psql, load):
        process.communicate()
    assert len(killed) > 8
    assert unreported(killed, ProcessList.read(cluster.processes_path)) == []
    entries = acks.entries()
    # A backend that sees its postmaster die before its own kill still answers with an error.
    assert acks.token(4, 7) in tokens(entries, BEGUN) | tokens(entries, FAILED)
    assert len(tokens(entries, BEGUN)) <= CLIENTS
    # What pgbench was told of is acknowledged, and of each client at most one that it was not told of.
    (told,) = cluster.work.glob(lines.name + "*")
    of_client = Counter(int(line.split()[0]) + 1 for line in told.read_text().splitlines())
    for client in (1, 2, 3):
        acknowledged = int((entries.acknowledged & (entries.client == client)).sum())
        assert of_client[client] <= acknowledged <= of_client[client] + 1
    cluster.start()
    assert tokens(entries, ACKNOWLEDGED) <= kept(cluster)
    assert acks.token(4, 7) not in kept(cluster)


@pytest.mark.slow
@pytest.mark.parametrize("dropped", ["send", "recv"])
def test_server_without_the_interception_has_no_acknowledgement(
    cluster: Cluster, dropping_recorder: PreloadRecorder, monkeypatch: pytest.MonkeyPatch, dropped: str
) -> None:
    monkeypatch.setenv("DURATUNE_TEST_DROP", dropped)
    cluster.stop()
    with cluster.record(dropping_recorder, with_log=False) as ledger:
        done, _ = pgbench(cluster, TPCB, "-D", "n=0", "-c2", "-t", "10")
        assert done == 20
        assert not ledger.entries().acknowledged.any()
        assert len(ledger.entries()) == (20 if dropped == "send" else 0)
        assert ProcessList.read(cluster.processes_path), "the library itself was in the server"


@pytest.mark.slow
def test_recorded_load_is_rebuilt_after_its_kill_and_its_syncs_are_counted(
    cluster: Cluster, recorder: PreloadRecorder
) -> None:
    cluster.stop()
    base = Base.of(cluster.root)
    with cluster.record(recorder, with_log=True) as ledger:
        # A session counts its syncs for others at its end, or when it has been idle for ten seconds.
        count = next(
            (COUNT[first] for first in sorted(COUNT, reverse=True) if cluster.version >= first), "SELECT 0"
        )
        before = settled(cluster, ledger, count)
        pgbench(cluster, TPCB, "-D", "n=0", "-M", "prepared", "-c4", "-t", "100")
        for text in (
            "CREATE TABLE t AS SELECT generate_series(1, 20000) a",
            "VACUUM",
            "CHECKPOINT",
            "DROP TABLE t",
        ):
            cluster.query(text)
        after = settled(cluster, ledger, count)
        load = cluster.begin(
            "pgbench", "-n", "-c4", "-T", "60", "-D", "n=100", "-f", cluster.script("s", TPCB)
        )
        await_(lambda: ledger.operations > 600)
        killed = cluster.kill()
        load.communicate()
        assert len(tokens(ledger.entries(), ACKNOWLEDGED)) > 600
    log = WriteLog.read(cluster.log_path)
    assert set(log.unsupported) <= NOTES and not log.full
    assert unreported(killed, reported_in(log)) == []
    replay = Replay(log.operations, base)
    assert replay.differences(cluster.root, lambda name: name.endswith(WRITTEN_BY_STDIO)) == []
    wal = {inode for name, inode in base.names.items() if "/pg_wal/" in name}
    wal |= {o.inode for o in log.operations if o.kind is Kind.CREATE and "/pg_wal/" in o.path}
    syncs = [o for o in log.operations if o.kind is Kind.FDATASYNC and o.inode in wal]
    certain = sum(1 for o in syncs if o.begin >= before.position_after and o.begin < after.position_before)
    possible = sum(1 for o in syncs if o.begin >= before.position_before and o.begin < after.position_after)
    assert certain > 100
    if cluster.version < min(COUNT):
        pytest.skip(f"PostgreSQL {cluster.version} does not count its WAL syncs")
    assert certain <= after.counter - before.counter <= possible <= certain + 2


def settled(cluster: Cluster, ledger: Ledger, count: str) -> SyncSample:
    """The server's own count of WAL syncs, once two looks half a second apart agree."""
    looks = [look(cluster, ledger, count)]

    def is_settled() -> bool:
        time.sleep(0.5)
        looks.append(look(cluster, ledger, count))
        return looks[-1].counter == looks[-2].counter

    await_(is_settled)
    return looks[-1]


def look(cluster: Cluster, ledger: Ledger, count: str) -> SyncSample:
    before = ledger.position
    return SyncSample(before, int(cluster.query(count)), ledger.position)


def await_(condition: Callable[[], bool], seconds_max: float = 30.0) -> None:
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.mark.slow
def test_stdio_files_are_none_that_recovery_reads(cluster: Cluster, recorder: PreloadRecorder) -> None:
    """After a kill the server removes the caches without reading them, and writes its options anew."""
    if cluster.mode == "":
        cluster.start()
    cluster.query("SELECT 1")
    cluster.kill()
    caches = list(cluster.data.rglob("pg_internal.init"))
    assert caches
    for path in caches:
        path.write_bytes(b"not what the server wrote")
    (cluster.data / "postmaster.opts").unlink()
    with cluster.record(recorder, with_log=True):
        assert int(cluster.query("SELECT count(*) FROM pgbench_branches")) == 1
    operations = WriteLog.read(cluster.log_path).operations
    removed = {o.path for o in operations if o.kind is Kind.UNLINK}
    assert {path.relative_to(cluster.root).as_posix() for path in caches} <= removed
