#include "abort_report.h"

#include <signal.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <string_view>

namespace duratune {
namespace {

constexpr std::string_view kFull =
    "{\"event\":\"error\",\"code\":\"no-space\",\"what\":\"the engine aborted: No space left on device\","
    "\"hint\":\"free space where the data lies, or name another folder\"}\n";
constexpr std::string_view kAborted =
    "{\"event\":\"error\",\"code\":\"engine\",\"what\":\"the engine aborted\",\"hint\":\"its message is in the log\"}\n";
constexpr unsigned long kLeastFreeBytes = 1 << 20;

// Never freed: a signal may come at any time.
const std::string* data_folder = nullptr;

// Only system calls in here. After it has returned, abort() ends the process as if there were no handler.
void tell(int) {
  struct statvfs about;
  const bool is_known = statvfs(data_folder->c_str(), &about) == 0;
  const bool is_full = is_known && about.f_bavail * about.f_frsize < kLeastFreeBytes;
  const std::string_view message = is_full ? kFull : kAborted;
  const ssize_t wrote = write(STDOUT_FILENO, message.data(), message.size());
  static_cast<void>(wrote);  // Nobody is left to tell.
}

}  // namespace

void report_aborts(const std::string& folder) {
  data_folder = new std::string(folder);
  struct sigaction action = {};
  action.sa_handler = tell;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGABRT, &action, nullptr);
}

}  // namespace duratune
