// One client thread: takes requests from its stream, performs them, measures them, and keeps to its rate.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "database.h"
#include "keys.h"
#include "measurement.h"
#include "plan.h"
#include "requests.h"

namespace duratune {

enum class Phase : int { warming, measuring, measured };

// What all clients of a run share.
struct Shared {
  Shared(const Workload& the_workload, const Plan& the_plan, Ledger& the_ledger, AcknowledgedCounter& the_inserted)
      : workload(the_workload), plan(the_plan), ledger(the_ledger), inserted(the_inserted) {}

  const Workload& workload;
  const Plan& plan;
  Ledger& ledger;
  AcknowledgedCounter& inserted;
  std::atomic<Phase> phase{Phase::warming};
  std::atomic<bool> ends{false};
  std::atomic<uint32_t> running{0};

  // A connection broke, so the load is over. The first to say so is the one that is told.
  void lose(const std::string& error) {
    std::lock_guard<std::mutex> lock(mutex);
    if (lost_error.empty()) lost_error = error.empty() ? "no message" : error;
    is_lost = true;
    ends = true;
  }

  std::mutex mutex;
  std::atomic<bool> is_lost{false};
  std::string lost_error;
};

class Client {
 public:
  Client(Shared& shared, Database& database, uint32_t index);

  // Until the ledger says stop, `ends` is set, the connection is lost, or its share of a bounded run that ends
  // cleanly is done.
  void run();
  Measurement& measurement() { return measurement_; }
  // Writes that the engine has reported as done, in all phases.
  uint64_t written() const { return written_.load(std::memory_order_relaxed); }

 private:
  void loop();
  bool goes_on() const;
  void wait_until_due(uint64_t done);
  void perform(const Request& request);
  Result perform_write(const Request& request, uint32_t kind);
  Result perform_read_modify_write(const Request& request);
  template <typename Call>
  Result timed(Operation operation, Call call, bool is_part = false);

  Shared& shared_;
  LedgerClient ledger_;
  std::unique_ptr<Session> session_;
  Requests requests_;
  KeyNames names_;
  uint64_t quota_ = 0;
  uint64_t interval_ns_ = 0;
  uint64_t start_ns_ = 0;
  uint64_t due_ns_ = 0;
  std::string key_name_;
  std::atomic<uint64_t> written_{0};
  Measurement measurement_;
};

}  // namespace duratune
