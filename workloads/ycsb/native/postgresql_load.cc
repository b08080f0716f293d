#include <atomic>
#include <thread>

#include "event.h"
#include "field_bytes.h"
#include "field_value.h"
#include "keys.h"
#include "postgresql_commands.h"
#include "postgresql_connection.h"
#include "postgresql_copy.h"
#include "workloads/ledger.h"

namespace duratune {
namespace {

constexpr size_t kSentAtOnceBytes = 1 << 16;

// Each thread copies a part of the keys of its own in one transaction. The content of each record depends on its key
// and the seed only.
class PgLoader {
 public:
  PgLoader(const std::string& conninfo, const Workload& workload, const Plan& plan)
      : conninfo_(conninfo), workload_(workload), plan_(plan) {}

  void load() {
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < plan_.threads; ++i) threads.emplace_back([this, i] { copy_or_fail(i); });
    for (std::thread& thread : threads) thread.join();
    if (failure_) throw *failure_;
  }

 private:
  void copy_or_fail(uint32_t part) {
    try {
      copy(part);
    } catch (const Fault& fault) {
      // The first is told; the others follow from it as often as not.
      if (!failed_.exchange(true)) failure_ = std::make_unique<Fault>(fault);
    }
  }

  void copy(uint32_t part) {
    PgConnection connection(conninfo_);
    const PgResult begun = connection.execute(std::string("COPY ") + kTable + " FROM STDIN (FORMAT binary)");
    if (PQresultStatus(begun.get()) != PGRES_COPY_IN) throw connection.fault("loading", begun.get());
    const KeyNames names(workload_.hashed_keys, workload_.zero_padding);
    std::string data = begin_copy();
    std::string name;
    for (uint64_t key = first_of(part); key < first_of(part + 1) && !failed_; ++key) {
      names.write(key, name);
      append_record(data, key, name);
      if (data.size() >= kSentAtOnceBytes) send(connection, data);
    }
    data += end_copy();
    send(connection, data);
    finish(connection);
  }

  uint64_t first_of(uint32_t part) const {
    const uint64_t count = workload_.insert_count;
    return workload_.insert_start + count / plan_.threads * part + std::min<uint64_t>(part, count % plan_.threads);
  }

  void append_record(std::string& data, uint64_t key, const std::string& name) const {
    FieldBytes bytes(workload_, plan_.seed ^ 0x6C6F6164u, key);
    const size_t fields = workload_.field_names.size();
    append_copy_row(data, fields + 1);
    append_copy_value(data, name);
    for (size_t field = 0; field < fields; ++field) {
      const size_t length = bytes.next_length();
      char* value = append_copy_room(data, kFieldHeaderBytes + length);
      bytes.fill(value + kFieldHeaderBytes, length, name, workload_.field_names[field]);
      const uint64_t register_id = key * fields + field;
      seal_field(value, kFieldHeaderBytes + length, 0, register_id + 1, register_id);
    }
  }

  static void send(PgConnection& connection, std::string& data) {
    if (PQputCopyData(connection.get(), data.data(), static_cast<int>(data.size())) != 1) {
      throw connection.fault("loading", nullptr);
    }
    data.clear();
  }

  void finish(PgConnection& connection) const {
    const char* error = failed_ ? "another client of the load failed" : nullptr;
    if (PQputCopyEnd(connection.get(), error) != 1) throw connection.fault("loading", nullptr);
    while (const PgResult result{PQgetResult(connection.get())}) {
      if (!is_done(result.get())) throw connection.fault("loading", result.get());
    }
  }

  const std::string& conninfo_;
  const Workload& workload_;
  const Plan& plan_;
  std::atomic<bool> failed_{false};
  std::unique_ptr<Fault> failure_;
};

std::string column_definitions(const Workload& workload) {
  std::string text = "ycsb_key text";
  for (const std::string& name : workload.field_names) text += ", " + quoted(name) + " text";
  return text;
}

void refuse_existing(PgConnection& connection) {
  const PgResult found =
      connection.execute_or_throw(std::string("SELECT to_regclass('") + kTable + "')", "looking for the table");
  if (PQgetisnull(found.get(), 0, 0) == 0) {
    throw invalid_input(std::string("the table ") + kTable + " already exists", "load into a new cluster");
  }
}

}  // namespace

void pg_load_records(const std::string& conninfo, const Workload& workload, const Plan& plan) {
  const uint64_t begin_ns = dt_monotonic_ns();
  const std::string table = kTable;
  PgConnection connection(conninfo);
  refuse_what_does_not_fit(workload);
  refuse_existing(connection);
  connection.execute_or_throw("CREATE TABLE " + table + " (" + column_definitions(workload) + ")", "creating the table");
  PgLoader(conninfo, workload, plan).load();
  // The index is made last and statistics are there from the start, as pgbench -i has it.
  connection.execute_or_throw("ALTER TABLE " + table + " ADD PRIMARY KEY (ycsb_key)", "making the primary key");
  connection.execute_or_throw("VACUUM (ANALYZE) " + table, "vacuuming the loaded table");
  emit(event("loaded")
           .count("records", workload.insert_count)
           .number("seconds", static_cast<double>(dt_monotonic_ns() - begin_ns) / 1e9));
}

}  // namespace duratune
