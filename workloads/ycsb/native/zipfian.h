// The zipfian distributions of YCSB (Gray et al., "Quickly generating billion-record synthetic databases"), after
// ZipfianGenerator, ScrambledZipfianGenerator and SkewedLatestGenerator. Each is a function of u, uniform in [0, 1).
#pragma once

#include <cstdint>

namespace duratune {

constexpr double kZipfianConstant = 0.99;

// Continues the sum of i^-theta from `from` (already in `sum`) up to `to`, in doubles from small i to large.
double zeta(uint64_t from, uint64_t to, double theta, double sum);

class Zipfian {
 public:
  // Over [min, max], both inclusive. Costs O(max - min).
  Zipfian(uint64_t min, uint64_t max);
  // With a known zeta(max - min + 1).
  Zipfian(uint64_t min, uint64_t max, double zetan);

  uint64_t at(double u) const;
  // Over `items` items instead of the first count; zeta grows with them and eta keeps the first count, as in YCSB.
  uint64_t at_items(double u, uint64_t items);

  double zetan() const { return zetan_; }
  double eta() const { return eta_; }

 private:
  uint64_t draw(double u, uint64_t items) const;
  void set_eta();

  uint64_t base_;
  uint64_t items_;
  uint64_t counted_;
  double zetan_;
  double eta_ = 0;
};

// "zipfian" in a workload file: popular items scattered over the key space, whatever its size.
class ScrambledZipfian {
 public:
  ScrambledZipfian(uint64_t min, uint64_t max);
  uint64_t at(double u) const;
  double eta() const { return zipfian_.eta(); }

 private:
  uint64_t min_;
  uint64_t items_;
  Zipfian zipfian_;
};

// "latest": the newest key is the most popular.
class SkewedLatest {
 public:
  explicit SkewedLatest(uint64_t newest) : zipfian_(0, newest > 1 ? newest - 1 : 0) {}
  uint64_t at(double u, uint64_t newest) { return newest - zipfian_.at_items(u, newest); }

 private:
  Zipfian zipfian_;
};

}  // namespace duratune
