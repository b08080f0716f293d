#include "load.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "event.h"
#include "field_bytes.h"
#include "keys.h"
#include "rocksdb_instance.h"
#include "value.h"
#include "workloads/ledger.h"

namespace duratune {
namespace {

// All loader threads take the next key number from one counter, as YCSB's do.
class Loader {
 public:
  // Without a WAL where the candidate writes none (some settings deadlock RocksDB only with one): the records are
  // flushed in the end. Nothing else of its WriteOptions matters to what is loaded.
  Loader(RocksInstance& instance, bool disables_wal, const Workload& workload, const Plan& plan)
      : instance_(instance), workload_(workload), plan_(plan), next_(workload.insert_start) {
    write_.disableWAL = disables_wal;
  }

  void load() {
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < plan_.threads; ++i) threads.emplace_back([this] { insert_until_done(); });
    for (std::thread& thread : threads) thread.join();
    if (!failure_.ok()) throw engine_fault("loading", failure_);
  }

 private:
  void insert_until_done() {
    const KeyNames names(workload_.hashed_keys, workload_.zero_padding);
    const uint64_t end = workload_.insert_start + workload_.insert_count;
    std::string value;
    std::string name;
    for (uint64_t key = next_++; key < end && !failed_; key = next_++) {
      names.write(key, name);
      fill(value, key, name);
      const rocksdb::Status status = instance_.db()->Put(write_, instance_.loaded(), name, value);
      if (!status.ok() && !failed_.exchange(true)) failure_ = status;
    }
  }

  // Each record has its own random stream, so the loaded content does not depend on the threads.
  void fill(std::string& value, uint64_t key, const std::string& name) const {
    FieldBytes bytes(workload_, plan_.seed ^ 0x6C6F6164u, key);
    begin_value(value);
    for (const std::string& field : workload_.field_names) {
      const size_t length = bytes.next_length();
      bytes.fill(append_field(value, field, length), length, name, field);
    }
    seal_value(value, 0, key + 1, key);
  }

  RocksInstance& instance_;
  rocksdb::WriteOptions write_;
  const Workload& workload_;
  const Plan& plan_;
  std::atomic<uint64_t> next_;
  std::atomic<bool> failed_{false};
  rocksdb::Status failure_;
};

void sync_path(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_RDONLY | O_CLOEXEC);
  const bool is_synced = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!is_synced) throw Fault(error == ENOSPC ? "no-space" : "engine", "cannot sync " + path + ": " + std::strerror(error));
}

}  // namespace

void sync_tree(const std::string& folder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) sync_path(entry.path(), 0);
    if (entry.is_directory()) sync_path(entry.path(), O_DIRECTORY);
  }
  sync_path(folder, O_DIRECTORY);
  sync_path(std::filesystem::absolute(folder).parent_path(), O_DIRECTORY);
}

void load_records(RocksSettings settings, const Workload& workload, const Plan& plan) {
  if (std::filesystem::exists(settings.path)) {
    throw invalid_input(settings.path + " already exists", "name a folder that does not exist yet");
  }
  settings.options.create_if_missing = true;
  settings.options.error_if_exists = true;
  settings.options.create_missing_column_families = true;
  const uint64_t begin_ns = dt_monotonic_ns();
  RocksInstance* instance = RocksInstance::open_or_throw(settings).release();
  // After a failed write the instance is abandoned and never closed, since RocksDB may assert when it closes a WAL
  // that it could not write (WritableFileWriter); the process ends anyway.
  Loader(*instance, settings.write.disableWAL, workload, plan).load();
  rocksdb::Status status = instance->db()->Flush(rocksdb::FlushOptions(), instance->handles());
  if (!status.ok()) throw engine_fault("flushing the loaded records", status);
  status = instance->close();
  if (!status.ok()) throw engine_fault("closing the loaded database", status);
  delete instance;
  sync_tree(settings.path);
  emit(event("loaded")
           .count("records", workload.insert_count)
           .number("seconds", static_cast<double>(dt_monotonic_ns() - begin_ns) / 1e9));
}

}  // namespace duratune
