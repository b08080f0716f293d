#include "postgresql_copy.h"

namespace duratune {
namespace {

constexpr std::string_view kSignature("PGCOPY\n\377\r\n\0", 11);
constexpr size_t kHeaderBytes = kSignature.size() + 8;  // flags, and the length of an extension
constexpr uint16_t kEnd = 0xFFFF;
constexpr uint32_t kNull = 0xFFFFFFFF;

void append_number(std::string& data, uint64_t number, size_t bytes) {
  while (bytes-- > 0) data += static_cast<char>(number >> (8 * bytes));
}

uint32_t read_number(std::string_view bytes) {
  uint32_t number = 0;
  for (char byte : bytes) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

}  // namespace

std::string begin_copy() { return std::string(kSignature) + std::string(8, '\0'); }

std::string end_copy() { return std::string(2, '\377'); }

void append_copy_row(std::string& data, size_t values) { append_number(data, values, 2); }

void append_copy_value(std::string& data, std::string_view value) {
  append_number(data, value.size(), 4);
  data.append(value);
}

char* append_copy_room(std::string& data, size_t bytes) {
  append_number(data, bytes, 4);
  data.resize(data.size() + bytes);
  return data.data() + data.size() - bytes;
}

uint32_t read_copied_number(std::string_view value) { return value.size() == 4 ? read_number(value) : 0; }

bool CopyReader::skip_header(std::string_view& piece) {
  if (piece.size() < kHeaderBytes || piece.substr(0, kSignature.size()) != kSignature) return false;
  const uint32_t extension = read_number(piece.substr(kHeaderBytes - 4, 4));
  if (extension > piece.size() - kHeaderBytes) return false;
  piece.remove_prefix(kHeaderBytes + extension);
  has_begun_ = true;
  return true;
}

std::optional<bool> CopyReader::next(std::string_view& piece) {
  if (piece.size() < 2 || has_ended_) return std::nullopt;
  const uint32_t values = read_number(piece.substr(0, 2));
  piece.remove_prefix(2);
  if (values == kEnd) {
    has_ended_ = true;
    return false;
  }
  row_.assign(values, std::nullopt);
  for (std::optional<std::string_view>& value : row_) {
    if (piece.size() < 4) return std::nullopt;
    const uint32_t bytes = read_number(piece.substr(0, 4));
    piece.remove_prefix(4);
    if (bytes == kNull) continue;
    if (bytes > piece.size()) return std::nullopt;
    value = piece.substr(0, bytes);
    piece.remove_prefix(bytes);
  }
  return true;
}

}  // namespace duratune
