#include "verify.h"

#include <rocksdb/env.h>
#include <rocksdb/table.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>

#include "event.h"
#include "keys.h"
#include "lifeline.h"
#include "rocksdb_instance.h"
#include "row.h"
#include "value.h"
#include "workload.h"
#include "workloads/ledger.h"

namespace duratune {
namespace {

class Silence : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

struct Finding {
  std::string stage;  // "" as long as nothing failed
  std::string error;
  bool recovered = false;
  double recovery_s = 0;

  // The first failure is the one that is told.
  void fail(const std::string& where, const rocksdb::Status& status) {
    if (!stage.empty()) return;
    stage = where;
    error = status.ToString();
  }
};

// Where the child is, so that its parent can tell when the engine kills it.
struct Progress {
  char stage[32];
  bool recovered;
};

class Verification {
 public:
  Verification(const Spec& spec, Progress& progress)
      : progress_(progress),
        settings_(RocksSettings::from_spec(spec)),
        names_(spec.text("insertorder", "hashed") == "hashed", spec.integer("zeropadding", 1, 0)),
        candidate_rows_(spec.require("rows.candidate")),
        neutral_rows_(spec.text("rows.neutral", "")) {
    spec.reject_unused();
    // The database is there; to refuse it for that would be no finding about the crash.
    settings_.options.error_if_exists = false;
  }

  Finding run() {
    recover();
    if (finding_.recovered && !neutral_rows_.empty()) judge();
    return finding_;
  }

 private:
  void enter(const char* stage) { std::strncpy(progress_.stage, stage, sizeof progress_.stage - 1); }

  void recover() {
    enter("recover");
    rocksdb::Status status;
    const uint64_t begin_ns = dt_monotonic_ns();
    std::unique_ptr<RocksInstance> instance = RocksInstance::open(settings_, status);
    finding_.recovery_s = static_cast<double>(dt_monotonic_ns() - begin_ns) / 1e9;
    if (!instance) return finding_.fail("recover", status);
    finding_.recovered = progress_.recovered = true;
    enter("scan");
    scan(*instance, rocksdb::ReadOptions(), candidate_rows_, "scan");
    status = instance->close();
    if (!status.ok()) finding_.fail("scan", status);
  }

  void judge() {
    enter("neutral-open");
    rocksdb::Status status;
    std::unique_ptr<RocksInstance> instance = RocksInstance::open(neutral(), status);
    if (!instance) return finding_.fail("neutral-open", status);
    enter("neutral-scan");
    rocksdb::ReadOptions read;
    read.verify_checksums = true;
    read.total_order_seek = true;
    scan(*instance, read, neutral_rows_, "neutral-scan");
    enter("checksum");
    status = instance->db()->VerifyChecksum(read);
    if (!status.ok()) finding_.fail("checksum", status);
  }

  // The defaults, but for what says how the data is laid out. Compactions stay off: the second look changes nothing.
  RocksSettings neutral() const {
    RocksSettings neutral = settings_;
    neutral.options = rocksdb::DBOptions();
    neutral.options.paranoid_checks = true;
    neutral.options.wal_dir = settings_.options.wal_dir;
    neutral.options.db_paths = settings_.options.db_paths;
    neutral.options.avoid_flush_during_shutdown = true;
    neutral.options.max_background_jobs = 1;
    // Nothing of the judgement depends on these; they save threads and files in each of very many states.
    neutral.options.max_file_opening_threads = 1;
    neutral.options.stats_dump_period_sec = 0;
    neutral.options.stats_persist_period_sec = 0;
    neutral.options.skip_stats_update_on_db_open = true;
    neutral.options.info_log = std::make_shared<Silence>();
    for (rocksdb::ColumnFamilyDescriptor& family : neutral.column_families) {
      rocksdb::ColumnFamilyOptions plain;
      plain.num_levels = family.options.num_levels;
      plain.compaction_style = family.options.compaction_style;
      plain.prefix_extractor = family.options.prefix_extractor;
      plain.cf_paths = family.options.cf_paths;
      plain.disable_auto_compactions = true;
      const bool is_block_based = family.options.table_factory->IsInstanceOf("BlockBasedTable");
      if (!is_block_based) plain.table_factory = family.options.table_factory;
      family.options = plain;
    }
    return neutral;
  }

  void scan(RocksInstance& instance, const rocksdb::ReadOptions& read, const std::string& path, const char* stage) {
    std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "wb"), std::fclose);
    if (!file) throw invalid_input("cannot write " + path + ": " + std::strerror(errno));
    std::unique_ptr<rocksdb::Iterator> rows(instance.db()->NewIterator(read, instance.loaded()));
    for (rows->SeekToFirst(); rows->Valid(); rows->Next()) {
      const Row row = row_of(rows->key().ToStringView(), rows->value().ToStringView());
      if (std::fwrite(&row, sizeof row, 1, file.get()) != 1) break;
    }
    if (!rows->status().ok()) finding_.fail(stage, rows->status());
    if (std::fflush(file.get()) != 0 || std::ferror(file.get())) {
      throw Fault("no-space", "cannot write " + path, "free space where the crash states are judged");
    }
  }

  Row row_of(std::string_view key, std::string_view value) {
    const std::optional<ValueHeader> header = read_header(value);
    if (!header) return kUnreadable;
    uint32_t flags = kHeaderReadable;
    if (checksum_is_right(value, *header)) flags |= kChecksumRight;
    names_.write(header->key, name_);
    if (key == name_) flags |= kKeyMatches;
    return Row{header->key, header->sequence, header->client, flags, header->checksum};
  }

  Progress& progress_;
  RocksSettings settings_;
  KeyNames names_;
  std::string candidate_rows_;
  std::string neutral_rows_;
  std::string name_;
  Finding finding_;
};

void emit_verified(const std::string& spec_path, const Finding& finding, pid_t pid) {
  emit(event("verified")
           .text("spec", spec_path)
           .count("pid", static_cast<uint64_t>(pid))
           .truth("recovered", finding.recovered)
           .text("stage", finding.stage)
           .text("error", finding.error)
           .number("recovery_s", finding.recovery_s));
}

// The child's whole life; returns its exit code.
int verify_in_child(const std::string& spec_path, Progress& progress) {
  try {
    const Spec spec = Spec::from_file(spec_path);
    hold_lifeline(static_cast<int>(spec.integer("lifeline.fd", -1, -1)));
    emit_verified(spec_path, Verification(spec, progress).run(), getpid());
    return 0;
  } catch (const Fault& fault) {
    emit(event("error").text("spec", spec_path).text("code", fault.code()).text("what", fault.what()).text(
        "hint", fault.hint()));
    return fault.exit_code();
  }
}

}  // namespace

void verify_state(const std::string& spec_path) {
  void* shared = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw Fault("engine", "no memory for the child's progress");
  auto* progress = new (shared) Progress{};
  const pid_t child = fork();
  if (child < 0) throw Fault("engine", std::string("cannot fork: ") + std::strerror(errno));
  if (child == 0) {
    // A recovery that takes too long is ended by killing the parent.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // No destructors and no exit handlers: they belong to the parent.
    _exit(verify_in_child(spec_path, *progress));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    Finding finding;
    finding.recovered = progress->recovered;
    finding.stage = progress->stage[0] != '\0' ? progress->stage : "recover";
    finding.error = std::string("the engine ended by signal ") + std::to_string(WTERMSIG(status)) + " (" +
                    strsignal(WTERMSIG(status)) + ")";
    emit_verified(spec_path, finding, child);
  }
  munmap(shared, sizeof(Progress));
  // The child has told its error; the exit code is all that is left to pass on.
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) throw Fault(WEXITSTATUS(status) == 2 ? "invalid-input" : "engine", "");
}

void verify_states_from_stdin() {
  std::string spec_path;
  while (std::getline(std::cin, spec_path)) {
    try {
      verify_state(spec_path);
    } catch (const Fault& fault) {
      if (*fault.what() != '\0') throw;  // An empty one has been told by the child, and the next state may be fine.
    }
  }
}

}  // namespace duratune
