// YCSB's key names: "user" + padding + number, where the number is hashed unless inserts are ordered
// (YCSB CoreWorkload.buildKeyName, Utils.hash: 64-bit FNV-1a, least significant byte first, then Math.abs).
#pragma once

#include <cstdint>
#include <string>

namespace duratune {

uint64_t fnv_hash(uint64_t number);

class KeyNames {
 public:
  KeyNames(bool hashed, int64_t zero_padding) : hashed_(hashed), zero_padding_(zero_padding) {}

  // The name of the key with this number, written over `out`.
  void write(uint64_t number, std::string& out) const;
  std::string name(uint64_t number) const;

 private:
  bool hashed_;
  int64_t zero_padding_;
};

}  // namespace duratune
