#include "acknowledged_counter.h"

#include "fault.h"

namespace duratune {

AcknowledgedCounter::AcknowledgedCounter(uint64_t first)
    : counter_(first), newest_(static_cast<int64_t>(first) - 1), answered_(kWindow) {}

void AcknowledgedCounter::answer(uint64_t number, bool inserted) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (static_cast<int64_t>(number) > newest_.load() + static_cast<int64_t>(kWindow)) {
    throw Fault("engine", "more than 2^20 inserts are unanswered");
  }
  if (!inserted) {
    failed_.insert(number);
    failures_.store(failed_.size());
  }
  answered_[number % kWindow] = true;
  int64_t newest = newest_.load();
  while (answered_[static_cast<uint64_t>(newest + 1) % kWindow]) {
    answered_[static_cast<uint64_t>(newest + 1) % kWindow] = false;
    ++newest;
  }
  newest_.store(newest, std::memory_order_release);
}

bool AcknowledgedCounter::failed(uint64_t number) const {
  if (failures_.load() == 0) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  return failed_.count(number) != 0;
}

}  // namespace duratune
