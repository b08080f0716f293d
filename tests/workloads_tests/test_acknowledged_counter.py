"""The counter of inserted keys, answered by many threads at once, under ThreadSanitizer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import workloads.ycsb

SOURCE = r"""
#include "acknowledged_counter.h"
#include <cstdlib>
#include <thread>

// Rounds of 4 threads that answer 50 numbers each; every hundredth has failed.
// argv[1] = 1: number 777 stays unanswered.
int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const bool leaves_gap = argv[1][0] == '1';
  duratune::AcknowledgedCounter counter(10);
  for (int64_t round = 0; round < 400; ++round) {
    std::vector<std::thread> all;
    for (int i = 0; i < 4; ++i) {
      all.emplace_back([&] {
        for (int turn = 0; turn < 50; ++turn) {
          const uint64_t number = counter.next();
          if (leaves_gap && number == 777) continue;
          counter.answer(number, number % 100 != 0);
          if (counter.failed(number) != (number % 100 == 0)) std::abort();
        }
      });
    }
    for (std::thread& thread : all) thread.join();
    const int64_t last = 10 + 200 * (round + 1) - 1;
    if (counter.newest() != (leaves_gap && last >= 777 ? 776 : last)) std::abort();
  }
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler (Debian: apt-get install g++)")
    native = Path(workloads.ycsb.__file__).parent / "native"
    folder = tmp_path_factory.mktemp("counter")
    (folder / "main.cc").write_text(SOURCE)
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-fsanitize=thread", "-pthread"]
    sources = [folder / "main.cc", native / "acknowledged_counter.cc"]
    subprocess.run([compiler, *flags, f"-I{native}", *sources, "-o", folder / "counter"], check=True)
    return folder / "counter"


@pytest.mark.slow
@pytest.mark.parametrize("gap", [False, True])
def test_it_moves_to_the_last_number_before_which_all_are_answered(program: Path, gap: bool) -> None:
    # Without address randomisation: GCC's ThreadSanitizer fails to map its shadow under a high-entropy one.
    prefix = ["setarch", "-R"] if shutil.which("setarch") else []
    run = subprocess.run([*prefix, program, str(int(gap))], check=False, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
