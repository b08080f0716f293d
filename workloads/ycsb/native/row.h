// One register of a recovered database, as it is written for others to read (docs/formats.md, "Recovered content").
#pragma once

#include <cstdint>

namespace duratune {

struct Row {
  uint64_t key;
  uint64_t sequence;
  uint32_t client;
  uint32_t flags;
  uint64_t checksum;
};
static_assert(sizeof(Row) == 32, "the rows are read by others");

enum RowFlag : uint32_t { kHeaderReadable = 1, kChecksumRight = 2, kKeyMatches = 4 };

// What stands for a value whose header cannot be read.
constexpr Row kUnreadable{UINT64_MAX, 0, 0, 0, 0};

}  // namespace duratune
