// The stored value: a header of 32 bytes, then YCSB's own serialization (docs/formats.md, "The stored value").
//
// The checksum is XXH3-64 over the whole value with its own field zero, so header and fields vouch for each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace duratune {

constexpr size_t kValueHeaderBytes = 32;

struct ValueHeader {
  uint32_t client = 0;
  uint64_t sequence = 0;
  uint64_t key = 0;
  uint64_t checksum = 0;
};

// Starts a value over `out`: room for the header, no fields.
void begin_value(std::string& out);

// Appends one field in YCSB's form; returns where its `length` bytes go, to be filled at once.
char* append_field(std::string& out, std::string_view name, size_t length);

// Replaces the field's bytes by room for `length` bytes and returns where they go; nullptr if there is no such field
// or the value cannot be read.
char* replace_field(std::string& value, std::string_view name, size_t length);

// Writes the header; returns the checksum.
uint64_t seal_value(std::string& value, uint32_t client, uint64_t sequence, uint64_t key);

std::optional<ValueHeader> read_header(std::string_view value);
bool checksum_is_right(std::string_view value, const ValueHeader& header);

// Walks the fields, calling visit(name, bytes) for each; false if the serialization is broken.
template <typename Visit>
bool for_each_field(std::string_view value, Visit visit);

// One length of YCSB's serialization: 32 bits, most significant byte first.
inline uint32_t read_length(const char* at) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(at);
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
}

template <typename Visit>
bool for_each_field(std::string_view value, Visit visit) {
  if (value.size() < kValueHeaderBytes) return false;
  std::string_view rest = value.substr(kValueHeaderBytes);
  while (!rest.empty()) {
    std::string_view parts[2];
    for (std::string_view& part : parts) {
      if (rest.size() < 4) return false;
      const uint32_t length = read_length(rest.data());
      if (rest.size() - 4 < length) return false;
      part = rest.substr(4, length);
      rest.remove_prefix(4 + length);
    }
    visit(parts[0], parts[1]);
  }
  return true;
}

}  // namespace duratune
