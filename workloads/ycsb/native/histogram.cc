#include "histogram.h"

#include <cmath>

namespace duratune {

void Histogram::add(const Histogram& other) {
  if (other.count_ == 0) return;
  if (counts_.empty()) counts_.resize(kBuckets);
  for (size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

uint64_t Histogram::quantile_ns(double quantile) const {
  const auto rank = static_cast<uint64_t>(std::ceil(quantile * static_cast<double>(count_)));
  uint64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen < rank || counts_[i] == 0) continue;
    if (i < (size_t{1} << kStepBits)) return std::min<uint64_t>(i, max_);
    const size_t shift = (i >> kStepBits) - 1;
    const uint64_t lowest = ((i & ((size_t{1} << kStepBits) - 1)) + (uint64_t{1} << kStepBits)) << shift;
    return i == kBuckets - 1 ? max_ : std::min(lowest + (uint64_t{1} << shift) - 1, max_);
  }
  return max_;
}

}  // namespace duratune
