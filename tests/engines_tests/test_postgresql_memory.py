from __future__ import annotations

from pathlib import Path

import pytest

from engines.postgresql.cluster import Cluster, write
from engines.postgresql.configuration import configure
from engines.postgresql.memory import Room, SharedMemory, _huge_pages, ask, refuse, room
from engines.postgresql.refusal import StartRefused

MIB = 1 << 20
ROOM = Room(limit_bytes=1024 * MIB, whose="its control group", huge_pages_free=80, huge_page_bytes=2 * MIB)


def test_what_fits_is_not_refused() -> None:
    refuse(SharedMemory(1024 * MIB, 1000 * MIB, 16 * MIB), ROOM)
    refuse(SharedMemory(150 * MIB, 128 * MIB, 4 * MIB, huge_pages=80), ROOM)


def test_the_arithmetic_is_shown() -> None:
    with pytest.raises(StartRefused) as caught:
        refuse(SharedMemory(1025 * MIB, 1000 * MIB, 16 * MIB), ROOM)
    assert caught.value.cause == "memory"
    assert caught.value.lines == (
        "shared_buffers 1000 + wal_buffers 16 + the rest 9 = 1025 MiB of shared memory; "
        "its control group has 1024 MiB",
    )


def test_huge_pages_that_are_insisted_on() -> None:
    with pytest.raises(StartRefused, match="= 81 pages of 2048 KiB; 80 are free") as caught:
        refuse(SharedMemory(162 * MIB, 128 * MIB, 4 * MIB, huge_pages=81), ROOM)
    assert "vm.nr_hugepages=81" in caught.value.hint


def test_reserved_huge_pages_are_not_free(tmp_path: Path) -> None:
    table = tmp_path / "meminfo"
    table.write_text("HugePages_Free:  10\nHugePages_Rsvd:  4\nHugepagesize:  2048 kB\n")
    assert _huge_pages(table) == (6, 2 * MIB)


def test_what_the_server_says_it_would_take(cluster: Cluster) -> None:
    for huge_pages in ("try", "on"):
        made = configure(
            {"shared_buffers": "200MB", "wal_buffers": "4MB", "huge_pages": huge_pages}, Path("/tmp"), "x"
        )
        write(cluster, "postgresql.conf", made.text)
        with cluster.seen() as seen:
            wanted = ask(cluster, made, seen)
        assert wanted is not None and wanted.shared_buffers_bytes == 200 * MIB
        assert wanted.wal_buffers_bytes == 4 * MIB and 204 * MIB < wanted.total_bytes < 300 * MIB
        assert (wanted.huge_pages is None) == (huge_pages == "try")
    refuse(SharedMemory(204 * MIB, 200 * MIB, 4 * MIB), room())
