#include "postgresql_database.h"

#include <cstdlib>
#include <cstring>

#include "field_value.h"

namespace duratune {
namespace {

// pg_type.dat: their numbers are the same in all versions.
constexpr Oid kText = 25;
constexpr Oid kBigint = 20;

const std::string kReadAll = "read_all";
const std::string kScanAll = "scan_all";
const std::string kUpdateAll = "update_all";
const std::string kInsert = "insert";

// An operation of the workload that is asked for at all.
bool has(const Workload& workload, Operation operation) {
  return workload.proportions[static_cast<size_t>(operation)] > 0;
}

bool updates(const Workload& workload) {
  return has(workload, Operation::update) || has(workload, Operation::read_modify_write);
}

std::string select(const std::string& columns, const std::string& rest) {
  return "SELECT " + columns + " FROM " + kTable + " WHERE ycsb_key " + rest;
}

constexpr const char* kReturning = " RETURNING pg_current_xact_id()";
constexpr const char* kOne = "= $1";
constexpr const char* kRange = ">= $1 ORDER BY ycsb_key LIMIT $2";

}  // namespace

PgDatabase::PgDatabase(const std::string& conninfo, const Workload& workload, bool notes_transactions)
    : conninfo_(conninfo), workload_(workload), notes_transactions_(notes_transactions), control_(conninfo) {
  refuse_what_does_not_fit(workload);
  check_table();
}

void PgDatabase::check_table() {
  const std::string columns = "ycsb_key, " + quoted_fields(workload_);
  const PgResult found = control_.execute("SELECT " + columns + " FROM " + kTable + " LIMIT 0");
  if (is_done(found.get())) return;
  if (control_.is_lost()) throw control_.fault("looking for the table", found.get());
  throw invalid_input("the database does not hold this workload's data: " + message_of(control_.get(), found.get()),
                      "load it first");
}

std::unique_ptr<Session> PgDatabase::new_session(LedgerClient& client, uint64_t seed) {
  return std::make_unique<PgSession>(conninfo_, workload_, notes_transactions_, client, seed);
}

std::string PgDatabase::provoke(const std::string& what) {
  const std::vector<std::string> statements =
      what == "flush" ? std::vector<std::string>{"CHECKPOINT"}
                      : std::vector<std::string>{std::string("VACUUM ") + kTable, "SELECT pg_switch_wal()"};
  for (const std::string& statement : statements) {
    const PgResult result = control_.execute(statement);
    if (!is_done(result.get())) return message_of(control_.get(), result.get());
  }
  return "";
}

std::string PgDatabase::flush_wal(bool) { return "PostgreSQL flushes its WAL by itself"; }

PgSession::PgSession(const std::string& conninfo, const Workload& workload, bool notes_transactions,
                     LedgerClient& client, uint64_t seed)
    : workload_(workload),
      notes_transactions_(notes_transactions),
      client_(client),
      bytes_(workload, seed, client.number()),
      connection_(conninfo),
      entries_max_(has(workload, Operation::insert) || workload.write_all_fields ? workload.field_names.size() : 1),
      values_(workload.field_names.size()),
      parameters_(workload.field_names.size() + 1) {
  prepare_reads();
  prepare_writes();
}

void PgSession::prepare(const std::string& name, const std::string& statement, const std::vector<Oid>& types) {
  const PgResult result(PQprepare(connection_.get(), name.c_str(), statement.c_str(), static_cast<int>(types.size()),
                                  types.data()));
  if (!is_done(result.get())) throw connection_.fault("preparing '" + statement + "'", result.get());
}

void PgSession::prepare_reads() {
  const bool scans = has(workload_, Operation::scan);
  // A read-modify-write reads everything, whatever readallfields says.
  prepare(kReadAll, select("*", kOne), {kText});
  if (scans && workload_.read_all_fields) prepare(kScanAll, select("*", kRange), {kText, kBigint});
  if (workload_.read_all_fields) return;
  for (size_t i = 0; i < workload_.field_names.size(); ++i) {
    const std::string name = quoted(workload_.field_names[i]);
    read_names_.push_back("read_" + std::to_string(i));
    prepare(read_names_.back(), select("ycsb_key, " + name, kOne), {kText});
    if (!scans) continue;
    scan_names_.push_back("scan_" + std::to_string(i));
    prepare(scan_names_.back(), select("ycsb_key, " + name, kRange), {kText, kBigint});
  }
}

void PgSession::prepare_writes() {
  const size_t fields = workload_.field_names.size();
  const std::string table = kTable;
  const std::string returning = notes_transactions_ ? kReturning : "";
  std::string all;
  std::string numbers = "$1";
  for (size_t i = 0; i < fields; ++i) {
    const std::string name = quoted(workload_.field_names[i]);
    const std::string number = "$" + std::to_string(i + 2);
    all += (i > 0 ? ", " : "") + name + " = " + number;
    numbers += ", " + number;
    if (!updates(workload_) || workload_.write_all_fields) continue;
    update_names_.push_back("update_" + std::to_string(i));
    prepare(update_names_.back(), "UPDATE " + table + " SET " + name + " = $2 WHERE ycsb_key = $1" + returning,
            {kText, kText});
  }
  const std::vector<Oid> types(fields + 1, kText);
  if (updates(workload_) && workload_.write_all_fields) {
    prepare(kUpdateAll, "UPDATE " + table + " SET " + all + " WHERE ycsb_key = $1" + returning, types);
  }
  if (has(workload_, Operation::insert)) {
    prepare(kInsert, "INSERT INTO " + table + " (ycsb_key, " + quoted_fields(workload_) + ") VALUES (" + numbers +
                         ")" + returning,
            types);
  }
}

PgResult PgSession::execute(const std::string& statement, size_t parameters) {
  return PgResult(PQexecPrepared(connection_.get(), statement.c_str(), static_cast<int>(parameters), parameters_.data(),
                                 nullptr, nullptr, 0));
}

Result PgSession::failed(const std::string& what) {
  last_error_ = what;
  return Result::error;
}

Result PgSession::failed(const PGresult* result) { return failed(message_of(connection_.get(), result)); }

bool PgSession::holds_its_own(const char* key_name, size_t field, const char* value, size_t bytes) {
  if (!bytes_.deterministic()) return true;
  const std::string_view own(value + kFieldHeaderBytes, bytes - kFieldHeaderBytes);
  return own == FieldBytes::deterministic_value(key_name, workload_.field_names[field], own.size());
}

// Reads as an application does: every field asked for is there and, with dataintegrity, compared. The key comes first.
Result PgSession::check(const PGresult* rows, int row, std::optional<size_t> field) {
  const size_t fields = field ? 1 : workload_.field_names.size();
  if (static_cast<size_t>(PQnfields(rows)) != fields + 1) return failed("a row has another number of fields");
  for (size_t i = 0; i < fields; ++i) {
    const int column = static_cast<int>(i) + 1;
    const auto bytes = static_cast<size_t>(PQgetlength(rows, row, column));
    if (bytes < kFieldHeaderBytes) return failed("the stored value is no field of this workload");
    if (!holds_its_own(PQgetvalue(rows, row, 0), field.value_or(i), PQgetvalue(rows, row, column), bytes)) {
      return failed("dataintegrity: a field does not hold what belongs to its key");
    }
  }
  return Result::ok;
}

Result PgSession::read(const std::string& key_name, std::optional<size_t> field) {
  parameters_[0] = key_name.c_str();
  const PgResult rows = execute(field ? read_names_[*field] : kReadAll, 1);
  if (PQresultStatus(rows.get()) != PGRES_TUPLES_OK) return failed(rows.get());
  if (PQntuples(rows.get()) == 0) return Result::not_found;
  return check(rows.get(), 0, field);
}

Result PgSession::scan(const std::string& key_name, uint64_t length, std::optional<size_t> field) {
  limit_ = std::to_string(length);
  parameters_[0] = key_name.c_str();
  parameters_[1] = limit_.c_str();
  const PgResult rows = execute(field ? scan_names_[*field] : kScanAll, 2);
  if (PQresultStatus(rows.get()) != PGRES_TUPLES_OK) return failed(rows.get());
  for (int row = 0; row < PQntuples(rows.get()); ++row) {
    const Result result = check(rows.get(), row, field);
    if (result != Result::ok) return result;
  }
  return Result::ok;
}

const char* PgSession::fill_field(const Write& write, size_t field, size_t nth) {
  const size_t length = bytes_.next_length();
  std::string& value = values_[field];
  value.resize(kFieldHeaderBytes + length);
  bytes_.fill(value.data() + kFieldHeaderBytes, length, write.key_name, workload_.field_names[field]);
  const uint64_t register_id = write.key * workload_.field_names.size() + field;
  const uint64_t checksum = seal_field(value, client_.number(), client_.next_sequence(), register_id);
  client_.fill(register_id, checksum, write.kind, static_cast<uint32_t>(nth));
  return value.c_str();
}

Result PgSession::insert(const Write& write) {
  parameters_[0] = write.key_name.c_str();
  for (size_t i = 0; i < values_.size(); ++i) parameters_[i + 1] = fill_field(write, i, i);
  return this->write(kInsert, values_.size() + 1);
}

Result PgSession::update(const Write& write) {
  parameters_[0] = write.key_name.c_str();
  if (write.field) {
    parameters_[1] = fill_field(write, *write.field, 0);
    return this->write(update_names_[*write.field], 2);
  }
  for (size_t i = 0; i < values_.size(); ++i) parameters_[i + 1] = fill_field(write, i, i);
  return this->write(kUpdateAll, values_.size() + 1);
}

Result PgSession::write(const std::string& statement, size_t parameters) {
  const PgResult result = execute(statement, parameters);
  if (!is_done(result.get())) return failed(result.get());
  if (std::strcmp(PQcmdTuples(result.get()), "0") == 0) return Result::not_found;
  // The stamp comes before the answer, so it is there by now wherever the recorder is.
  if (!client_.is_acknowledged()) return failed("the server did not stamp the ledger: the recorder is not in it");
  if (notes_transactions_) {
    // The log of the server numbers transactions by the lower half.
    const auto number = static_cast<uint32_t>(std::strtoull(PQgetvalue(result.get(), 0, 0), nullptr, 10));
    client_.note_transaction(parameters - 1, number);
  }
  return Result::ok;
}

}  // namespace duratune
