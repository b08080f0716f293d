// One client thread: takes requests from its stream, performs them, measures them, and keeps to its rate.
#pragma once

#include <atomic>
#include <memory>

#include "database.h"
#include "keys.h"
#include "measurement.h"
#include "plan.h"
#include "requests.h"

namespace duratune {

enum class Phase : int { warming, measuring, measured };

// What all clients of a run share.
struct Shared {
  const Workload& workload;
  const Plan& plan;
  Ledger& ledger;
  AcknowledgedCounter& inserted;
  std::atomic<Phase> phase{Phase::warming};
  std::atomic<bool> ends{false};
  std::atomic<uint32_t> running{0};
};

class Client {
 public:
  Client(Shared& shared, Database& database, uint32_t index);

  // Until the ledger says stop, `ends` is set, or its share of a bounded run that ends cleanly is done.
  void run();
  Measurement& measurement() { return measurement_; }

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
  Measurement measurement_;
};

}  // namespace duratune
