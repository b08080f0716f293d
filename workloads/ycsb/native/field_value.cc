#include "field_value.h"

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace duratune {
namespace {

constexpr char kMark = ':';
constexpr char kTokenMark = '7';
constexpr size_t kClientDigits = 6;
constexpr size_t kSequenceDigits = 12;
constexpr size_t kRegisterDigits = 8;   // 48 bits
constexpr size_t kChecksumDigits = 11;  // 64 bits and two zeros before them
constexpr size_t kClientAt = 2;
constexpr size_t kSequenceAt = kClientAt + kClientDigits;
constexpr size_t kRegisterAt = kSequenceAt + kSequenceDigits;
constexpr size_t kChecksumAt = kRegisterAt + kRegisterDigits;
static_assert(kChecksumAt + kChecksumDigits == kFieldHeaderBytes);

// Digits of base 64 are the 64 characters from ';' to 'z': printable, in order, and no decimal digit among them.
constexpr char kZero = ';';

void write_decimal(char* out, size_t digits, uint64_t number) {
  for (size_t i = digits; i-- > 0; number /= 10) out[i] = static_cast<char>('0' + number % 10);
}

void write_base64(char* out, size_t digits, uint64_t number) {
  for (size_t i = digits; i-- > 0; number >>= 6) out[i] = static_cast<char>(kZero + (number & 63));
}

std::optional<uint64_t> read_decimal(const char* at, size_t digits) {
  uint64_t number = 0;
  for (size_t i = 0; i < digits; ++i) {
    if (at[i] < '0' || at[i] > '9') return std::nullopt;
    number = number * 10 + static_cast<uint64_t>(at[i] - '0');
  }
  return number;
}

std::optional<uint64_t> read_base64(const char* at, size_t digits) {
  uint64_t number = 0;
  for (size_t i = 0; i < digits; ++i) {
    if (at[i] < kZero || at[i] > kZero + 63) return std::nullopt;
    if (number >> 58 != 0) return std::nullopt;  // more than 64 bits
    number = number << 6 | static_cast<uint64_t>(at[i] - kZero);
  }
  return number;
}

}  // namespace

uint64_t seal_field(char* value, size_t bytes, uint32_t client, uint64_t sequence, uint64_t register_id) {
  value[0] = kMark;
  value[1] = kTokenMark;
  write_decimal(value + kClientAt, kClientDigits, client);
  write_decimal(value + kSequenceAt, kSequenceDigits, sequence);
  write_base64(value + kRegisterAt, kRegisterDigits, register_id);
  write_base64(value + kChecksumAt, kChecksumDigits, 0);
  const uint64_t checksum = XXH3_64bits(value, bytes);
  write_base64(value + kChecksumAt, kChecksumDigits, checksum);
  return checksum;
}

uint64_t seal_field(std::string& value, uint32_t client, uint64_t sequence, uint64_t register_id) {
  return seal_field(value.data(), value.size(), client, sequence, register_id);
}

std::optional<FieldHeader> read_field_header(std::string_view value) {
  if (value.size() < kFieldHeaderBytes || value[0] != kMark || value[1] != kTokenMark) return std::nullopt;
  const std::optional<uint64_t> client = read_decimal(value.data() + kClientAt, kClientDigits);
  const std::optional<uint64_t> sequence = read_decimal(value.data() + kSequenceAt, kSequenceDigits);
  const std::optional<uint64_t> register_id = read_base64(value.data() + kRegisterAt, kRegisterDigits);
  const std::optional<uint64_t> checksum = read_base64(value.data() + kChecksumAt, kChecksumDigits);
  if (!client || !sequence || !register_id || !checksum) return std::nullopt;
  return FieldHeader{static_cast<uint32_t>(*client), *sequence, *register_id, *checksum};
}

bool field_checksum_is_right(std::string_view value, const FieldHeader& header) {
  // The header is short: its copy with a zero checksum is cheaper than a copy of the value.
  char begin[kFieldHeaderBytes];
  std::memcpy(begin, value.data(), sizeof begin);
  write_base64(begin + kChecksumAt, kChecksumDigits, 0);
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, begin, sizeof begin);
  XXH3_64bits_update(&state, value.data() + sizeof begin, value.size() - sizeof begin);
  return XXH3_64bits_digest(&state) == header.checksum;
}

}  // namespace duratune
