// COPY's binary form (PostgreSQL's manual, COPY, "Binary Format"): written by the loader, read by read-back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace duratune {

std::string begin_copy();
std::string end_copy();
void append_copy_row(std::string& data, size_t values);
void append_copy_value(std::string& data, std::string_view value);
// Room for a value of so many bytes; valid until the next call.
char* append_copy_room(std::string& data, size_t bytes);

// The rows of what a COPY TO sends. Each piece of data holds whole rows.
class CopyReader {
 public:
  using Row = std::vector<std::optional<std::string_view>>;

  // Calls visit(row) for each row of the piece; the views last as long as the piece. False if it is no such data.
  template <typename Visit>
  bool read(std::string_view piece, Visit visit) {
    if (!has_begun_ && !skip_header(piece)) return false;
    while (!piece.empty()) {
      const std::optional<bool> is_row = next(piece);
      if (!is_row) return false;
      if (!*is_row) return piece.empty();
      visit(row_);
    }
    return true;
  }
  bool has_ended() const { return has_ended_; }

 private:
  bool skip_header(std::string_view& piece);
  // Whether a row was taken, or the end; nothing if neither is there.
  std::optional<bool> next(std::string_view& piece);

  bool has_begun_ = false;
  bool has_ended_ = false;
  Row row_;
};

// A number of 4 bytes, most significant first.
uint32_t read_copied_number(std::string_view value);

}  // namespace duratune
