#include "spec.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "fault.h"

namespace duratune {
namespace {

std::string trimmed(const std::string& text) {
  const char* blank = " \t\r";
  size_t first = text.find_first_not_of(blank);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

}  // namespace

Spec Spec::from_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw invalid_input("cannot read the spec file " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return from_text(text.str());
}

Spec Spec::from_text(const std::string& text) {
  Spec spec;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    line = trimmed(line);
    if (line.empty() || line[0] == '#') continue;
    size_t equals = line.find('=');
    if (equals == std::string::npos) throw invalid_input("no '=' in the spec line '" + line + "'");
    std::string key = trimmed(line.substr(0, equals));
    if (!spec.values_.emplace(key, trimmed(line.substr(equals + 1))).second) {
      throw invalid_input("the spec names " + key + " twice");
    }
  }
  return spec;
}

std::optional<std::string> Spec::find(const std::string& key) const {
  used_.insert(key);
  auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

std::string Spec::require(const std::string& key) const {
  std::optional<std::string> value = find(key);
  if (!value || value->empty()) throw invalid_input("the spec lacks " + key);
  return *value;
}

std::string Spec::text(const std::string& key, const std::string& otherwise) const {
  return find(key).value_or(otherwise);
}

int64_t Spec::integer(const std::string& key, int64_t otherwise, int64_t least) const {
  std::optional<std::string> value = find(key);
  if (!value) return otherwise;
  char* end = nullptr;
  errno = 0;
  int64_t result = std::strtoll(value->c_str(), &end, 10);
  if (value->empty() || *end != '\0' || errno != 0) throw invalid_input(key + "=" + *value + " is no whole number");
  if (result < least) throw invalid_input(key + "=" + *value + " is below " + std::to_string(least));
  return result;
}

double Spec::number(const std::string& key, double otherwise) const {
  std::optional<std::string> value = find(key);
  if (!value) return otherwise;
  char* end = nullptr;
  double result = std::strtod(value->c_str(), &end);
  if (value->empty() || *end != '\0' || !std::isfinite(result)) {
    throw invalid_input(key + "=" + *value + " is no number");
  }
  if (result < 0) throw invalid_input(key + "=" + *value + " is negative");
  return result;
}

bool Spec::truth(const std::string& key, bool otherwise) const {
  std::optional<std::string> value = find(key);
  if (!value) return otherwise;
  if (*value == "true" || *value == "on" || *value == "1") return true;
  if (*value == "false" || *value == "off" || *value == "0") return false;
  throw invalid_input(key + "=" + *value + " is neither true nor false");
}

void Spec::reject_unused() const {
  std::string unknown;
  for (const auto& [key, value] : values_) {
    if (used_.count(key) == 0) unknown += (unknown.empty() ? "" : ", ") + key;
  }
  if (!unknown.empty()) throw invalid_input("unknown keys in the spec: " + unknown);
}

}  // namespace duratune
