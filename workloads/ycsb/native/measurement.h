// What one client measured, operation by operation, and how it is told.
#pragma once

#include <array>
#include <mutex>
#include <string>

#include "database.h"
#include "histogram.h"
#include "workload.h"

namespace duratune {

struct OperationStats {
  Histogram latency;   // from the call
  Histogram intended;  // from the moment the call was due, where a target rate is set
  std::array<uint64_t, kResults> results{};
};

// Filled by one client, read once by the main thread; the lock is uncontended except at that moment.
struct Measurement {
  std::mutex mutex;
  std::array<OperationStats, kOperations> operations;
  uint64_t requests = 0;
  uint64_t acknowledged_writes = 0;
  std::string last_error;

  void record(Operation operation, Result result, uint64_t latency_ns) {
    OperationStats& stats = operations[static_cast<size_t>(operation)];
    stats.latency.record(latency_ns);
    ++stats.results[static_cast<size_t>(result)];
  }
  void add(Measurement& other);
  // {"READ": {"count": ..., "errors": ..., "p99_us": ..., ...}, ...}, operations that happened only.
  std::string operations_json() const;
};

}  // namespace duratune
