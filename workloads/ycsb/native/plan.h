// How a run goes: threads, phases, rate, what is provoked, and when it ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec.h"

namespace duratune {

struct Provocation {
  std::string what;
  double fraction = 0;  // of `operations`
};

struct Plan {
  static Plan from_spec(const Spec& spec);

  uint32_t threads = 1;
  double target_per_s = 0;  // 0: as fast as it goes
  uint64_t seed = 0;
  double warmup_s = 0;
  double measure_s = 0;
  uint64_t operations = 0;   // 0: bounded in time only
  bool stop_after = false;   // end cleanly instead of going on until killed
  std::vector<Provocation> provocations;
  int64_t flush_wal_every_ms = 0;
  int64_t sync_wal_every_ms = 0;
  int64_t ticker_ms = 20;
  std::string ledger_path;  // empty: no ledger
  int lifeline_fd = -1;
};

}  // namespace duratune
