// The bytes of a field: random printable ones (YCSB RandomByteIterator), or with dataintegrity=true a function of key
// and field name (CoreWorkload.buildDeterministicValue). Lengths follow fieldlengthdistribution.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "random.h"
#include "workload.h"
#include "zipfian.h"

namespace duratune {

class FieldBytes {
 public:
  FieldBytes(const Workload& workload, uint64_t seed, uint64_t client);

  size_t next_length();
  // Fills `length` bytes at `out` for this key's field.
  void fill(char* out, size_t length, std::string_view key, std::string_view field);

  bool deterministic() const { return deterministic_; }
  static std::string deterministic_value(std::string_view key, std::string_view field, size_t length);
  static void fill_random(Random& random, char* out, size_t length);

 private:
  size_t from_histogram();

  Random random_;
  LengthDistribution distribution_;
  uint64_t length_min_;
  uint64_t length_max_;
  bool deterministic_;
  std::optional<Zipfian> zipfian_;
  uint64_t block_bytes_ = 0;
  std::vector<uint64_t> buckets_;
  uint64_t area_ = 0;
};

}  // namespace duratune
