// A high-dynamic-range histogram of latencies in nanoseconds: buckets that double in width every 1024 steps, so each
// value is kept within 0.1 %. Values above 2^37 ns (137 s) count in the last bucket; the maximum is kept exactly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace duratune {

class Histogram {
 public:
  void record(uint64_t ns) {
    if (counts_.empty()) counts_.resize(kBuckets);
    ++counts_[bucket_of(ns)];
    ++count_;
    sum_ += ns;
    min_ = std::min(min_, ns);
    max_ = std::max(max_, ns);
  }

  void add(const Histogram& other);

  uint64_t count() const { return count_; }
  double average_ns() const { return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_); }
  uint64_t min_ns() const { return count_ == 0 ? 0 : min_; }
  uint64_t max_ns() const { return max_; }
  // The highest value of the bucket in which the quantile (0..1] lies, never above the maximum.
  uint64_t quantile_ns(double quantile) const;

 private:
  static constexpr int kStepBits = 10;
  static constexpr int kTopBits = 37;
  static constexpr size_t kBuckets = static_cast<size_t>(kTopBits - kStepBits + 1) << kStepBits;

  static size_t bucket_of(uint64_t ns) {
    if (ns < (uint64_t{1} << kStepBits)) return ns;
    if (ns >> kTopBits) return kBuckets - 1;
    const int shift = 63 - __builtin_clzll(ns) - kStepBits;
    return (static_cast<size_t>(shift + 1) << kStepBits) + ((ns >> shift) - (uint64_t{1} << kStepBits));
  }

  std::vector<uint32_t> counts_;
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
  uint64_t min_ = UINT64_MAX;
  uint64_t max_ = 0;
};

}  // namespace duratune
