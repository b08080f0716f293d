"""``ledger.h`` from C: what a C program writes is what Python reads, also after a kill in the middle."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from workloads import ledger as ledger_module
from workloads.ledger import ACKNOWLEDGED, FAILED, KIND_UPDATE, Ledger

SOURCE = r"""
#include "ledger.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Two clients write for ever, or until the ledger is full; every third write of client 1 fails. */
int main(int argc, char **argv) {
  struct stat about;
  int fd = open(argc > 1 ? argv[1] : "", O_RDWR);
  if (fd < 0 || fstat(fd, &about) != 0) return 1;
  void *base = mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED || !dt_ledger_is_valid(base, (uint64_t)about.st_size)) return 2;
  if (dt_ledger_is_valid(base, (uint64_t)about.st_size - 1)) return 3;
  dt_ledger_header *header = base;
  for (uint64_t i = 0; i < header->capacity; ++i) {
    for (uint32_t client = 0; client < 2; ++client) {
      dt_ledger_entry *entry = dt_ledger_entries(header, client) + i;
      entry->register_id = 1000 * client + i;
      entry->checksum = ~entry->register_id;
      entry->kind = DT_KIND_UPDATE;
      dt_ledger_begin(header, dt_ledger_client_of(header, client), entry);
      if (client == 1 && i % 3 == 0) dt_ledger_fail(entry);
      else if (dt_ledger_acknowledge(header, entry) != entry->end_ns) return 4;
      dt_ledger_count_operation(dt_ledger_client_of(header, client));
    }
    dt_ledger_store_sync_sample(header, i, 2 * i, dt_ledger_position(header));
    if (i == 100) (void)!write(1, "x", 1);
  }
  dt_ledger_ask_stop(header, DT_STOP_LEDGER_FULL);
  dt_ledger_ask_stop(header, DT_STOP_ASKED);
  return 0;
}
"""


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (Debian: apt-get install gcc)")
    folder = tmp_path_factory.mktemp("writer")
    (folder / "writer.c").write_text(SOURCE)
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wpedantic", "-O1"]
    include = f"-I{Path(ledger_module.__file__).parent}"
    subprocess.run([compiler, *flags, include, folder / "writer.c", "-o", folder / "writer"], check=True)
    return folder / "writer"


def test_c_writes_what_python_reads(writer: Path, ledger_path: Path) -> None:
    with Ledger.create(ledger_path, 2, 300) as ledger:
        subprocess.run([writer, ledger_path], check=True, stdout=subprocess.DEVNULL)
        read = ledger.entries()
        assert ledger.stop == ledger_module.STOP_LEDGER_FULL
        assert ledger.position == 1 + 600 - 100
        assert ledger.operations == 600
        assert ledger.sync_sample() == (299, 598, ledger.position)
    assert len(read) == 600
    assert read.register.tolist() == [*range(300), *range(1000, 1300)]
    assert np.array_equal(read.checksum, ~read.register)
    assert set(read.kind.tolist()) == {KIND_UPDATE}
    failed = (read.client == 2) & ((read.sequence - 1) % 3 == 0)
    assert np.array_equal(read.status, np.where(failed, FAILED, ACKNOWLEDGED))
    assert (read.end[failed] == 0).all()
    assert (read.end[~failed] >= read.begin[~failed]).all()
    assert (read.end_ns[~failed] >= read.begin_ns[~failed]).all()


def test_readable_after_sigkill(writer: Path, ledger_path: Path) -> None:
    with Ledger.create(ledger_path, 2, 4_000_000) as ledger:
        with subprocess.Popen([writer, ledger_path], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.read(1) == b"x"
            ledger.entries()  # while it writes
            process.kill()
        assert process.returncode == -9
        read = ledger.entries()
    assert 200 < len(read) < 8_000_000
    # At most the write in the middle of which the kill came is unanswered.
    assert (read.status == 0).sum() <= 1
