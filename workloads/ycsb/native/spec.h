// The spec of a subcommand: a properties file that Python writes, `key=value` a line, `#` for comments.
//
// Every key must be asked for by someone: what nobody asked for is an error, so a misspelt key never passes silently.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace duratune {

class Spec {
 public:
  static Spec from_file(const std::string& path);
  static Spec from_text(const std::string& text);

  std::optional<std::string> find(const std::string& key) const;
  std::string require(const std::string& key) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  int64_t integer(const std::string& key, int64_t otherwise, int64_t least = 0) const;
  double number(const std::string& key, double otherwise) const;
  bool truth(const std::string& key, bool otherwise) const;

  // Throws invalid-input naming every key that was never asked for.
  void reject_unused() const;

 private:
  std::map<std::string, std::string> values_;
  mutable std::set<std::string> used_;
};

}  // namespace duratune
