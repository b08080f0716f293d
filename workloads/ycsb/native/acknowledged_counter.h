// The counter of inserted keys: a key may be requested only once its insert has been answered, and only if every key
// before it has been answered too (YCSB AcknowledgedCounterGenerator, window 2^20).
//
// YCSB acknowledges failed inserts as well, or the window would stay where it is for ever. Here the window moves on
// too, but a key whose insert failed is remembered and never requested.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

namespace duratune {

class AcknowledgedCounter {
 public:
  static constexpr uint64_t kWindow = uint64_t{1} << 20;

  // The first number handed out; all before it count as inserted.
  explicit AcknowledgedCounter(uint64_t first);

  uint64_t next() { return counter_.fetch_add(1); }
  // The highest number up to which every insert has been answered (first - 1 at the start).
  int64_t newest() const { return newest_.load(std::memory_order_acquire); }
  // Throws when more than the window's size is unanswered.
  void answer(uint64_t number, bool inserted);
  bool failed(uint64_t number) const;

 private:
  template <typename Number>
  std::atomic<bool>& slot(Number number) {
    return answered_[static_cast<uint64_t>(number) % kWindow];
  }

  // Each on a line of its own: all clients write to the first, one at a time to the second.
  alignas(64) std::atomic<uint64_t> counter_;
  alignas(64) std::atomic<int64_t> newest_;
  alignas(64) std::atomic<bool> advancing_{false};
  std::vector<std::atomic<bool>> answered_;  // the numbers after the newest, modulo the window
  std::atomic<uint64_t> failures_{0};
  mutable std::mutex mutex_;  // of what follows
  std::set<uint64_t> failed_;
};

}  // namespace duratune
