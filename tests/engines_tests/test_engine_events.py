"""The engines' events, read from steps that are made by hand as the engines make them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engines.event import EngineEvent, Step, StepIndex, StepKind
from engines.postgresql.log_reader import PostgresqlLogReader
from engines.rocksdb.log_reader import RocksdbLogReader
from tests.engines_tests.rocksdb_tests.edits import edit, framed

POSTGRESQL, ROCKSDB = PostgresqlLogReader(), RocksdbLogReader()
WAL = "db/data/pg_wal"
CONTROL = "db/data/global/pg_control"
CHECKPOINTER, BACKEND = 7, 8


def segment(number: int) -> str:
    return f"{WAL}/{number:024X}"


def step(kind: StepKind, path: str, new_path: str = "", thread: int = BACKEND) -> Step:
    return Step(kind, path, thread, new_path)


def told(events: Sequence[EngineEvent], steps: Sequence[Step]) -> list[tuple[str, list[StepKind]]]:
    """Each event with the kinds of its steps."""
    return [(event.name, [steps[number].kind for number in event.steps]) for event in events]


def checkpoint_steps(*, syncs: bool) -> list[Step]:
    data = [step("sync", f"db/data/base/5/{n}", thread=CHECKPOINTER) for n in (16384, 16385) if syncs]
    synced = [step("sync", CONTROL, thread=CHECKPOINTER)] if syncs else []
    return [*data, step("write", CONTROL, thread=CHECKPOINTER), *synced]


def test_a_checkpoint_is_the_syncs_of_who_then_writes_pg_control() -> None:
    others = [step("sync", "db/data/base/5/999"), step("write", "db/data/base/5/16384")]
    steps = [*others, *checkpoint_steps(syncs=True), *others, *checkpoint_steps(syncs=True)]
    found = POSTGRESQL.events(steps)
    assert told(found, steps) == [("checkpoint", ["sync", "sync", "write", "sync"])] * 2
    assert found[0].steps == (2, 3, 4, 5) and found[1].steps == (8, 9, 10, 11)


def test_a_checkpoint_without_syncs_is_the_write_of_pg_control() -> None:
    steps = checkpoint_steps(syncs=False)
    assert told(POSTGRESQL.events(steps), steps) == [("checkpoint", ["write"])]


def test_a_switch_is_the_first_write_to_a_later_segment() -> None:
    steps = [
        step("write", segment(2)),
        step("sync", segment(2)),
        step("write", segment(3)),
        step("write", segment(3)),
        step("sync", segment(3)),
        step("write", segment(2)),
        step("write", segment(3)),
    ]
    found = POSTGRESQL.events(steps)
    assert told(found, steps) == [("WAL switch", ["write", "sync"])] and found[0].steps == (2, 4)


def test_the_first_write_to_an_earlier_segment_is_no_switch() -> None:
    assert POSTGRESQL.events([step("write", segment(3)), step("write", segment(2))]) == []


@pytest.mark.parametrize("kind", ["rename", "link"])
@pytest.mark.parametrize(("old", "name"), [(segment(2), "recycle"), (f"{WAL}/xlogtemp.77", "new segment")])
def test_a_segment_is_made_ready_of_an_old_one_or_anew(kind: StepKind, old: str, name: str) -> None:
    """The zeros of a new one are written before it has its name, and are no switch."""
    steps = [
        step("write", segment(1)),
        step("write", old),
        step("sync", old),
        step(kind, old, segment(4)),
        step("sync", segment(4)),
        step("sync-folder", "db/data"),
        step("sync-folder", WAL),
    ]
    found = [event for event in POSTGRESQL.events(steps) if event.name != "WAL switch"]
    assert [(event.name, event.steps) for event in found] == [(name, (3, 4, 6))]


def test_a_rename_of_anything_else_is_no_event() -> None:
    steps = [step("rename", "db/data/a", "db/data/b"), step("rename", f"{WAL}/x", f"{WAL}/y")]
    assert POSTGRESQL.events(steps) == []


# RocksDB.


class Manifest:
    """A MANIFEST that edits are appended to."""

    def __init__(self, number: int = 5) -> None:
        self.path = f"db/MANIFEST-{number:06d}"
        self._size = 0

    def write(self, added: Sequence[int] = (), deleted: Sequence[int] = (), log: int | None = None) -> Step:
        data = framed(edit(added, deleted, log))
        self._size += len(data)
        return Step("write", self.path, BACKEND, "", self._size - len(data), data)

    @property
    def synced(self) -> Step:
        return step("sync", self.path)


def table(number: int) -> list[Step]:
    path = f"db/{number:06d}.sst"
    return [step("create", path), step("write", path), step("sync", path)]


def test_a_flush_adds_tables_and_a_compaction_takes_them_away() -> None:
    manifest = Manifest()
    flush = [*table(10), step("sync-folder", "db"), manifest.write([10], log=4), manifest.synced]
    compaction = [*table(11), *table(12), manifest.write([11, 12], [10]), manifest.synced]
    steps = [*flush, *compaction, step("unlink", "db/000010.sst")]
    assert told(ROCKSDB.events(steps), steps) == [
        ("memtable flush", ["create", "sync", "write", "sync"]),
        ("compaction install", ["create", "sync", "create", "sync", "write", "sync"]),
    ]


def test_two_jobs_at_once_are_told_by_the_tables_in_their_edits() -> None:
    """Whoever leads writes the edits of others too, and removes nothing of theirs."""
    manifest = Manifest()
    steps = [
        *table(10),
        *table(11),
        manifest.write([11], [9]),
        manifest.write([10], log=4),
        manifest.synced,
    ]
    found = ROCKSDB.events(steps)
    assert [(event.name, event.steps) for event in found] == [
        ("memtable flush", (0, 2, 7, 8)),
        ("compaction install", (3, 5, 6, 8)),
    ]


def test_a_compaction_may_only_move_a_table() -> None:
    manifest = Manifest()
    steps = [manifest.write([10], [10]), manifest.synced]
    assert told(ROCKSDB.events(steps), steps) == [("compaction install", ["write", "sync"])]


def test_an_edit_of_no_table_is_no_event() -> None:
    manifest = Manifest()
    assert ROCKSDB.events([manifest.write(log=9), manifest.synced]) == []


def test_a_manifest_roll_ends_with_current_and_tells_the_tables_that_there_are_once_more() -> None:
    old, new = Manifest(5), Manifest(20)
    steps = [
        *table(10),
        old.write([10], log=4),
        old.synced,
        step("create", new.path),
        new.write([10], log=4),
        new.synced,
        step("create", "db/000020.dbtmp"),
        step("rename", "db/000020.dbtmp", "db/CURRENT"),
        step("sync-folder", "db"),
        step("unlink", old.path),
    ]
    found = ROCKSDB.events(steps)
    assert told(found, steps) == [
        ("memtable flush", ["create", "sync", "write", "sync"]),
        ("manifest roll", ["create", "write", "sync", "rename", "sync-folder"]),
    ]
    assert found[1].steps == (5, 6, 7, 9, 10)


def test_a_log_is_recycled_by_a_rename_until_it_is_synced_anew() -> None:
    old, new = "db/000004.log", "db/000009.log"
    steps = [
        step("write", old),
        step("rename", old, new),
        step("write", new),
        step("write", new),
        step("sync", new),
    ]
    found = ROCKSDB.events(steps)
    assert [(event.name, event.steps) for event in found] == [("recycle", (1, 2, 4)), ("WAL switch", (2, 4))]


def test_logs_by_number_and_not_by_the_order_of_their_names() -> None:
    steps = [step("write", "db/999999.log"), step("write", "db/1000000.log")]
    assert told(ROCKSDB.events(steps), steps) == [("WAL switch", ["write"])]


@pytest.mark.parametrize("reader", [POSTGRESQL, ROCKSDB], ids=["postgresql", "rocksdb"])
def test_nothing_is_an_event_in_an_empty_log(reader: PostgresqlLogReader | RocksdbLogReader) -> None:
    assert reader.events([]) == [] and len({*reader.event_names}) == len(reader.event_names) > 3


def test_an_index_finds_steps_by_kind_path_and_place() -> None:
    steps = [step("write", "a"), step("sync", "a"), step("write", "a"), step("rename", "a", "b")]
    index = StepIndex(steps)
    assert (index.first("write", "a"), index.first("write", "a", 0), index.first("write", "a", 2)) == (
        0,
        2,
        None,
    )
    assert (index.last("write", "a", 3), index.last("write", "a", 2), index.last("write", "a", 0)) == (
        2,
        0,
        None,
    )
    assert index.first("rename", "b") == index.first("rename", "a") == 3
    assert list(index.all("write", "a")) == [0, 2] and index.paths("write") == ["a"]
