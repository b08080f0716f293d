// Why a subcommand cannot go on: told to the caller as one `error` event and an exit code.
#pragma once

#include <stdexcept>
#include <string>

namespace duratune {

class Fault : public std::runtime_error {
 public:
  Fault(std::string code, const std::string& what, std::string hint = "")
      : std::runtime_error(what), code_(std::move(code)), hint_(std::move(hint)) {}

  const std::string& code() const { return code_; }
  const std::string& hint() const { return hint_; }
  // 2 for what the user wrote, 1 for everything else.
  int exit_code() const { return code_ == "invalid-input" ? 2 : 1; }

 private:
  std::string code_;
  std::string hint_;
};

inline Fault invalid_input(const std::string& what, const std::string& hint = "") {
  return Fault("invalid-input", what, hint);
}

}  // namespace duratune
