// Seeded pseudo-random numbers: xoshiro256** (Blackman and Vigna, public domain), seeded by splitmix64.
//
// YCSB itself draws from ThreadLocalRandom and cannot be repeated. Here each client has one stream per purpose, so a
// key that is drawn again never shifts the choice of the operations that follow.
#pragma once

#include <cstdint>

namespace duratune {

enum class Purpose : uint64_t { operation = 1, key = 2, value = 3 };

class Random {
 public:
  Random(uint64_t seed, uint64_t client, Purpose purpose) {
    uint64_t state = seed;
    state = splitmix(state) ^ (client * 0x9E3779B97F4A7C15u);
    state = splitmix(state) ^ (static_cast<uint64_t>(purpose) * 0xD1B54A32D192ED03u);
    for (uint64_t& word : words_) word = splitmix(state);
  }

  uint64_t next() {
    const uint64_t result = rotated(words_[1] * 5, 7) * 9;
    const uint64_t shifted = words_[1] << 17;
    words_[2] ^= words_[0];
    words_[3] ^= words_[1];
    words_[1] ^= words_[2];
    words_[0] ^= words_[3];
    words_[2] ^= shifted;
    words_[3] = rotated(words_[3], 45);
    return result;
  }

  // Uniform in [0, 1), with 53 bits.
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  // Uniform in [0, bound), bound > 0; the bias is below 2^-64 * bound.
  uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }

 private:
  static uint64_t rotated(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

  static uint64_t splitmix(uint64_t& state) {
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  uint64_t words_[4];
};

}  // namespace duratune
