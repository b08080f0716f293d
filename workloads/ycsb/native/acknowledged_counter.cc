#include "acknowledged_counter.h"

#include "fault.h"

namespace duratune {

AcknowledgedCounter::AcknowledgedCounter(uint64_t first)
    : counter_(first), newest_(static_cast<int64_t>(first) - 1), answered_(kWindow) {}

void AcknowledgedCounter::answer(uint64_t number, bool inserted) {
  if (static_cast<int64_t>(number) > newest() + static_cast<int64_t>(kWindow)) {
    throw Fault("engine", "more than 2^20 inserts are unanswered");
  }
  if (!inserted) {
    std::lock_guard<std::mutex> lock(mutex_);
    failed_.insert(number);
    failures_.store(failed_.size());
  }
  slot(number).store(true);
  // Who finds another at work leaves the rest to it, which looks once more after it has let go.
  while (slot(newest() + 1).load() && !advancing_.exchange(true)) {
    for (int64_t next = newest() + 1; slot(next).load(); ++next) {
      slot(next).store(false);
      newest_.store(next, std::memory_order_release);
    }
    advancing_.store(false);
  }
}

bool AcknowledgedCounter::failed(uint64_t number) const {
  if (failures_.load() == 0) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  return failed_.count(number) != 0;
}

}  // namespace duratune
