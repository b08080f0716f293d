#include "keys.h"

#include <charconv>

namespace duratune {

uint64_t fnv_hash(uint64_t number) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (int byte = 0; byte < 8; ++byte) {
    hash ^= number & 0xFF;
    hash *= 1099511628211u;
    number >>= 8;
  }
  // Math.abs of the value read as signed; Java leaves the smallest long as it is, and so does this.
  return static_cast<int64_t>(hash) < 0 ? ~hash + 1 : hash;
}

void KeyNames::write(uint64_t number, std::string& out) const {
  char digits[20];
  const uint64_t shown = hashed_ ? fnv_hash(number) : number;
  const auto length = std::to_chars(digits, digits + sizeof digits, shown).ptr - digits;
  out.assign("user");
  if (zero_padding_ > length) out.append(static_cast<size_t>(zero_padding_ - length), '0');
  out.append(digits, static_cast<size_t>(length));
}

std::string KeyNames::name(uint64_t number) const {
  std::string out;
  write(number, out);
  return out;
}

}  // namespace duratune
