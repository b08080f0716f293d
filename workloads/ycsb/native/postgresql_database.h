// YCSB's binding of a PostgreSQL server: one table, a column for each field, prepared statements, autocommit, one
// connection for each client (as YCSB's JDBC binding has it).
//
// The server's own processes stamp the ledger: they are preloaded with the recorder, which finds each write's token in
// its parameters. Here an entry is filled before the write is sent, one for each field, since each field of a record
// is a register of its own: register = key number * fieldcount + field.
//
// Promise: a write is reported as done only if the server has answered that it is committed and the ledger holds it as
// acknowledged. A server that is killed breaks the connection, and the client's load is over.
#pragma once

#include "database.h"
#include "field_bytes.h"
#include "postgresql_connection.h"
#include "workload.h"

namespace duratune {

class PgDatabase : public Database {
 public:
  // With `notes_transactions` each write asks for the number of its transaction and notes it in the ledger. Throws
  // Fault if the server refuses, or has no table of this workload.
  PgDatabase(const std::string& conninfo, const Workload& workload, bool notes_transactions);

  std::unique_ptr<Session> new_session(LedgerClient& client, uint64_t seed) override;
  // flush: a checkpoint; compact: a vacuum of the table, then a new WAL segment.
  std::string provoke(const std::string& what) override;
  std::string flush_wal(bool sync) override;
  std::optional<uint64_t> wal_syncs() const override { return std::nullopt; }
  void close() override {}
  bool is_served() const override { return true; }

  std::string server_version() const { return control_.server_version(); }

 private:
  void check_table();

  std::string conninfo_;
  const Workload& workload_;
  bool notes_transactions_;
  PgConnection control_;
};

class PgSession : public Session {
 public:
  PgSession(const std::string& conninfo, const Workload& workload, bool notes_transactions, LedgerClient& client,
            uint64_t seed);

  Result read(const std::string& key_name, std::optional<size_t> field) override;
  Result scan(const std::string& key_name, uint64_t length, std::optional<size_t> field) override;
  Result insert(const Write& write) override;
  Result update(const Write& write) override;
  const std::string& last_error() const override { return last_error_; }
  bool is_lost() const override { return connection_.is_lost(); }
  uint64_t entries_max() const override { return entries_max_; }

 private:
  void prepare(const std::string& name, const std::string& statement, const std::vector<Oid>& types);
  void prepare_reads();
  void prepare_writes();
  PgResult execute(const std::string& statement, size_t parameters);
  Result write(const std::string& statement, size_t parameters);
  Result failed(const std::string& what);
  Result failed(const PGresult* result);
  Result check(const PGresult* rows, int row, std::optional<size_t> field);
  bool holds_its_own(const char* key_name, size_t field, const char* value, size_t bytes);
  // Makes the field's new value as the `nth` of its statement and fills its entry.
  const char* fill_field(const Write& write, size_t field, size_t nth);

  const Workload& workload_;
  bool notes_transactions_;
  LedgerClient& client_;
  FieldBytes bytes_;
  PgConnection connection_;
  uint64_t entries_max_;
  std::vector<std::string> read_names_;  // the statements' names, by field
  std::vector<std::string> scan_names_;
  std::vector<std::string> update_names_;
  std::vector<std::string> values_;  // by field; used again and again
  std::vector<const char*> parameters_;
  std::string limit_;
  std::string last_error_;
};

}  // namespace duratune
