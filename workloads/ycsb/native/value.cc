#include "value.h"

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace duratune {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the header is copied in the machine's byte order");

constexpr char kMagic[4] = {'D', 'T', 'V', '1'};
constexpr size_t kChecksumOffset = 24;

void append_length(std::string& out, size_t length) {
  const char bytes[4] = {static_cast<char>(length >> 24), static_cast<char>(length >> 16),
                         static_cast<char>(length >> 8), static_cast<char>(length)};
  out.append(bytes, sizeof bytes);
}

uint64_t checksum_of(std::string_view value) {
  // The header is short: its copy with a zero checksum is cheaper than a copy of the value.
  char header[kValueHeaderBytes];
  std::memcpy(header, value.data(), sizeof header);
  std::memset(header + kChecksumOffset, 0, 8);
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, header, sizeof header);
  XXH3_64bits_update(&state, value.data() + sizeof header, value.size() - sizeof header);
  return XXH3_64bits_digest(&state);
}

}  // namespace

void begin_value(std::string& out) { out.assign(kValueHeaderBytes, '\0'); }

char* append_field(std::string& out, std::string_view name, size_t length) {
  append_length(out, name.size());
  out.append(name);
  append_length(out, length);
  const size_t start = out.size();
  out.resize(start + length);
  return out.data() + start;
}

char* replace_field(std::string& value, std::string_view name, size_t length) {
  size_t start = 0;
  size_t old_length = 0;
  const bool readable = for_each_field(value, [&](std::string_view field, std::string_view bytes) {
    if (field != name) return;
    start = static_cast<size_t>(bytes.data() - value.data());
    old_length = bytes.size();
  });
  if (!readable || start == 0) return nullptr;
  if (old_length != length) {
    std::string size;
    append_length(size, length);
    value.replace(start - 4, 4, size);
    value.replace(start, old_length, std::string(length, '\0'));
  }
  return value.data() + start;
}

uint64_t seal_value(std::string& value, uint32_t client, uint64_t sequence, uint64_t key) {
  char* header = value.data();
  std::memcpy(header, kMagic, 4);
  std::memcpy(header + 4, &client, 4);
  std::memcpy(header + 8, &sequence, 8);
  std::memcpy(header + 16, &key, 8);
  std::memset(header + kChecksumOffset, 0, 8);
  const uint64_t checksum = XXH3_64bits(value.data(), value.size());
  std::memcpy(header + kChecksumOffset, &checksum, 8);
  return checksum;
}

std::optional<ValueHeader> read_header(std::string_view value) {
  if (value.size() < kValueHeaderBytes || std::memcmp(value.data(), kMagic, 4) != 0) return std::nullopt;
  ValueHeader header;
  std::memcpy(&header.client, value.data() + 4, 4);
  std::memcpy(&header.sequence, value.data() + 8, 8);
  std::memcpy(&header.key, value.data() + 16, 8);
  std::memcpy(&header.checksum, value.data() + kChecksumOffset, 8);
  return header;
}

bool checksum_is_right(std::string_view value, const ValueHeader& header) {
  return checksum_of(value) == header.checksum;
}

}  // namespace duratune
