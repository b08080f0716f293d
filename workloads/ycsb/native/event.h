// One line of the driver's protocol: a JSON object on stdout, written whole and at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace duratune {

// Text as a JSON string. Bytes that are not ASCII are written as \u00XX, since engine messages may hold any bytes.
std::string json_text(const std::string& text);
std::string json_number(double value);

// A JSON object under construction; keys keep their order.
class Json {
 public:
  Json& text(const std::string& key, const std::string& value) { return raw(key, json_text(value)); }
  Json& count(const std::string& key, uint64_t value) { return raw(key, std::to_string(value)); }
  Json& number(const std::string& key, double value) { return raw(key, json_number(value)); }
  Json& truth(const std::string& key, bool value) { return raw(key, value ? "true" : "false"); }
  Json& texts(const std::string& key, const std::vector<std::string>& values);
  Json& raw(const std::string& key, const std::string& json);
  std::string str() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

// An event is an object whose first key is "event".
Json event(const std::string& name);

// Writes the line with one write(2), so that lines of several threads and processes never mix.
void emit(const Json& json);

}  // namespace duratune
