#include "event.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <mutex>

namespace duratune {

// Bytes above 0x7F are passed on as they are: a path's own UTF-8, and whoever reads replaces what is none.
std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c == 0x7F) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

Json& Json::texts(const std::string& key, const std::vector<std::string>& values) {
  std::string list = "[";
  for (const std::string& value : values) {
    if (list.size() > 1) list += ",";
    list += json_text(value);
  }
  return raw(key, list + "]");
}

Json& Json::raw(const std::string& key, const std::string& json) {
  if (!body_.empty()) body_ += ",";
  body_ += json_text(key) + ":" + json;
  return *this;
}

Json event(const std::string& name) {
  Json json;
  json.text("event", name);
  return json;
}

void emit(const Json& json) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  const std::string line = json.str() + "\n";
  size_t done = 0;
  while (done < line.size()) {
    ssize_t wrote = write(STDOUT_FILENO, line.data() + done, line.size() - done);
    if (wrote <= 0) return;  // The reader is gone; the lifeline ends this process.
    done += static_cast<size_t>(wrote);
  }
}

}  // namespace duratune
