// The stored value of one field in PostgreSQL: 39 printable bytes of header, then YCSB's own (docs/formats.md, "The
// stored value of a field").
//
// The header begins with the token by which the preload library knows the write; a byte that is neither digit nor
// letter stands before it, and none of the header's other bytes is a digit, so the token is a run of its own. The
// checksum is XXH3-64 over the whole value with its own digits zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace duratune {

constexpr size_t kFieldHeaderBytes = 39;
// Sequences have 12 decimal digits, and the initial version of a register has the sequence register + 1.
constexpr uint64_t kRegistersMax = 999'999'999'999;

struct FieldHeader {
  uint32_t client = 0;
  uint64_t sequence = 0;
  uint64_t register_id = 0;
  uint64_t checksum = 0;
};

// Writes the header at the value's beginning, where its room is; returns the checksum.
uint64_t seal_field(std::string& value, uint32_t client, uint64_t sequence, uint64_t register_id);
uint64_t seal_field(char* value, size_t bytes, uint32_t client, uint64_t sequence, uint64_t register_id);

std::optional<FieldHeader> read_field_header(std::string_view value);
bool field_checksum_is_right(std::string_view value, const FieldHeader& header);

}  // namespace duratune
