#include "field_bytes.h"

#include <cstring>
#include <fstream>

#include "fault.h"

namespace duratune {
namespace {

// Reads YCSB's histogram file: "BlockSize<tab>bytes", then "block<tab>count" lines.
uint64_t read_histogram(const std::string& path, std::vector<uint64_t>& buckets) {
  std::ifstream file(path);
  std::string word;
  uint64_t block_bytes = 0;
  if (!(file >> word >> block_bytes) || word != "BlockSize" || block_bytes == 0) {
    throw invalid_input("fieldlengthhistogram " + path + " does not begin with BlockSize");
  }
  uint64_t block = 0;
  uint64_t count = 0;
  while (file >> block >> count) {
    if (block > 1'000'000) throw invalid_input("fieldlengthhistogram " + path + " has more than 10^6 blocks");
    if (buckets.size() <= block) buckets.resize(block + 1);
    buckets[block] = count;
  }
  if (!file.eof()) throw invalid_input("fieldlengthhistogram " + path + " has a line that is no pair of numbers");
  return block_bytes;
}

// Java's String.hashCode of the text that follows a text with this hash.
uint32_t java_hash(std::string_view text, uint32_t hash) {
  for (unsigned char c : text) hash = hash * 31 + c;
  return hash;
}

// RandomByteIterator takes 5, 6 and 6 bits of a random int for each three bytes: 0x20..0x3F, 0x20..0x5F, and the third
// from 0x20..0x3F or 0x60..0x7F. Its bits are independent, so masking random bytes gives the same distribution.
constexpr uint64_t mask_from(int phase) {
  constexpr uint64_t kMasks[3] = {0x1F, 0x3F, 0x5F};
  uint64_t mask = 0;
  for (int byte = 0; byte < 8; ++byte) mask |= kMasks[(phase + byte) % 3] << (8 * byte);
  return mask;
}

constexpr uint64_t kLowest = 0x2020202020202020u;

}  // namespace

FieldBytes::FieldBytes(const Workload& workload, uint64_t seed, uint64_t client)
    : random_(seed, client, Purpose::value),
      distribution_(workload.field_length_distribution),
      length_min_(workload.field_length_min),
      length_max_(workload.field_length),
      deterministic_(workload.data_integrity) {
  if (distribution_ == LengthDistribution::zipfian) zipfian_.emplace(length_min_, length_max_);
  if (distribution_ == LengthDistribution::histogram) {
    block_bytes_ = read_histogram(workload.field_length_histogram, buckets_);
    for (uint64_t count : buckets_) area_ += count;
    if (area_ == 0) throw invalid_input("fieldlengthhistogram has no counts");
  }
}

size_t FieldBytes::next_length() {
  switch (distribution_) {
    case LengthDistribution::constant:
      return length_max_;
    case LengthDistribution::uniform:
      return length_min_ + random_.below(length_max_ - length_min_ + 1);
    case LengthDistribution::zipfian:
      return zipfian_->at(random_.unit());
    case LengthDistribution::histogram:
      return from_histogram();
  }
  return length_max_;
}

size_t FieldBytes::from_histogram() {
  uint64_t number = random_.below(area_);
  for (size_t block = 0; block < buckets_.size(); ++block) {
    if (number < buckets_[block]) return (block + 1) * block_bytes_;
    number -= buckets_[block];
  }
  return buckets_.size() * block_bytes_;
}

void FieldBytes::fill(char* out, size_t length, std::string_view key, std::string_view field) {
  if (!deterministic_) return fill_random(random_, out, length);
  const std::string value = deterministic_value(key, field, length);
  std::memcpy(out, value.data(), length);
}

void FieldBytes::fill_random(Random& random, char* out, size_t length) {
  // The masks repeat every 24 bytes; eight bytes further, the phase is two further.
  constexpr uint64_t kMasks[3] = {mask_from(0), mask_from(2), mask_from(1)};
  size_t turn = 0;
  for (; length >= 8; length -= 8, out += 8) {
    const uint64_t bytes = (random.next() & kMasks[turn]) + kLowest;
    std::memcpy(out, &bytes, 8);
    turn = turn == 2 ? 0 : turn + 1;
  }
  const uint64_t bytes = (random.next() & kMasks[turn]) + kLowest;
  std::memcpy(out, &bytes, length);
}

std::string FieldBytes::deterministic_value(std::string_view key, std::string_view field, size_t length) {
  std::string value = std::string(key) + ":" + std::string(field);
  uint32_t hash = java_hash(value, 0);
  while (value.size() < length) {
    // ":" and the hash of everything before it; String.hashCode is continued, not begun again.
    const std::string added = ":" + std::to_string(static_cast<int32_t>(hash));
    hash = java_hash(added, hash);
    value += added;
  }
  value.resize(length);
  return value;
}

}  // namespace duratune
