#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "event.h"
#include "field_value.h"
#include "keys.h"
#include "lifeline.h"
#include "postgresql_commands.h"
#include "postgresql_connection.h"
#include "postgresql_copy.h"
#include "row.h"
#include "workloads/ledger.h"

namespace duratune {
namespace {

// Rows come in the order of the heap, from its beginning, and no index is asked: what an index hides is amcheck's.
constexpr const char* kPlain =
    "SET synchronize_seqscans = off; SET enable_indexscan = off; SET enable_indexonlyscan = off;"
    "SET enable_bitmapscan = off";

class OutputFile {
 public:
  explicit OutputFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wb"), std::fclose) {
    if (!file_) throw invalid_input("cannot write " + path + ": " + std::strerror(errno));
  }

  void write(const void* bytes, size_t count) {
    if (std::fwrite(bytes, 1, count, file_.get()) != count) refuse();
  }

  void finish() {
    if (std::fflush(file_.get()) != 0) refuse();
  }

 private:
  [[noreturn]] void refuse() const {
    throw Fault("no-space", "cannot write " + path_, "free space where the crash states are judged");
  }

  std::string path_;
  std::unique_ptr<FILE, int (*)(FILE*)> file_;
};

class ReadBack {
 public:
  explicit ReadBack(const Spec& spec)
      : conninfo_(conninfo_of(spec)),
        workload_(Workload::from_spec(spec)),
        names_(workload_.hashed_keys, workload_.zero_padding),
        rows_(spec.require("rows.path")),
        transactions_(spec.require("xmin.path")) {
    spec.find("lifeline.fd");
    spec.reject_unused();
  }

  // Whatever the server refuses is a finding, told in the event.
  Json run() {
    const uint64_t begin_ns = dt_monotonic_ns();
    scan();
    rows_.finish();
    transactions_.finish();
    return event("read-back")
        .count("records", records_)
        .number("seconds", static_cast<double>(dt_monotonic_ns() - begin_ns) / 1e9)
        .text("stage", stage_)
        .text("error", error_)
        .text("sqlstate", state_);
  }

 private:
  void scan() {
    std::unique_ptr<PgConnection> connection;
    try {
      connection = std::make_unique<PgConnection>(conninfo_);
    } catch (const Fault& fault) {
      return fail("connect", fault.what(), nullptr);
    }
    const PgResult plain = connection->execute(kPlain);
    if (!is_done(plain.get())) return fail("connect", message_of(connection->get(), plain.get()), plain.get());
    const PgResult begun = connection->execute("COPY (SELECT ycsb_key, xmin, " + quoted_fields(workload_) + " FROM " +
                                               kTable + ") TO STDOUT (FORMAT binary)");
    if (PQresultStatus(begun.get()) != PGRES_COPY_OUT) {
      return fail("scan", message_of(connection->get(), begun.get()), begun.get());
    }
    copy(*connection);
  }

  void copy(PgConnection& connection) {
    CopyReader reader;
    char* data = nullptr;
    bool is_readable = true;
    int bytes = 0;
    while ((bytes = PQgetCopyData(connection.get(), &data, 0)) > 0) {
      const std::unique_ptr<char, void (*)(void*)> owned(data, PQfreemem);
      const std::string_view piece(data, static_cast<size_t>(bytes));
      is_readable = is_readable && reader.read(piece, [this](const CopyReader::Row& row) { take(row); });
    }
    while (const PgResult result{PQgetResult(connection.get())}) {
      if (!is_done(result.get())) fail("scan", message_of(connection.get(), result.get()), result.get());
    }
    if (bytes == -2) fail("scan", message_of(connection.get(), nullptr), nullptr);
    if (!is_readable || !reader.has_ended()) fail("scan", "the copied rows cannot be read", nullptr);
  }

  void take(const CopyReader::Row& row) {
    ++records_;
    const size_t fields = workload_.field_names.size();
    const uint64_t transaction = row.size() > 1 && row[1] ? read_copied_number(*row[1]) : 0;
    for (size_t field = 0; field < fields; ++field) {
      const bool is_there = row.size() == fields + 2 && row[0] && row[field + 2];
      const Row read = is_there ? row_of(*row[0], field, *row[field + 2]) : kUnreadable;
      rows_.write(&read, sizeof read);
      transactions_.write(&transaction, sizeof transaction);
    }
  }

  Row row_of(std::string_view key, size_t field, std::string_view value) {
    const std::optional<FieldHeader> header = read_field_header(value);
    if (!header) return kUnreadable;
    const size_t fields = workload_.field_names.size();
    uint32_t flags = kHeaderReadable;
    if (field_checksum_is_right(value, *header)) flags |= kChecksumRight;
    const uint64_t number = header->register_id / fields;
    // All fields of a record name one key, whose name is made once.
    if (number != named_ || name_.empty()) names_.write(named_ = number, name_);
    if (key == name_ && header->register_id % fields == field) flags |= kKeyMatches;
    return Row{header->register_id, header->sequence, header->client, flags, header->checksum};
  }

  // The first failure is the one that is told.
  void fail(const std::string& stage, const std::string& error, const PGresult* result) {
    if (!stage_.empty()) return;
    stage_ = stage;
    error_ = error;
    const char* state = result != nullptr ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : nullptr;
    if (state != nullptr) state_ = state;
  }

  std::string conninfo_;
  Workload workload_;
  KeyNames names_;
  OutputFile rows_;
  OutputFile transactions_;
  uint64_t records_ = 0;
  uint64_t named_ = 0;
  std::string name_;
  std::string stage_;
  std::string error_;
  std::string state_;
};

void read_back(const std::string& spec_path) {
  const Spec spec = Spec::from_file(spec_path);
  emit(ReadBack(spec).run().text("spec", spec_path));
}

}  // namespace

void pg_read_back(const std::string& argument) {
  if (argument != "-") {
    hold_lifeline(static_cast<int>(Spec::from_file(argument).integer("lifeline.fd", -1, -1)));
    return read_back(argument);
  }
  // Spec paths come from the lifeline itself, whose end ends the loop too.
  std::string spec_path;
  while (std::getline(std::cin, spec_path)) read_back(spec_path);
}

}  // namespace duratune
