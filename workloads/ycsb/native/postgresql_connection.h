// One connection to a PostgreSQL server, by libpq. Used by one thread at a time.
#pragma once

#include <libpq-fe.h>

#include <memory>
#include <string>

#include "fault.h"
#include "spec.h"
#include "workload.h"

namespace duratune {

constexpr const char* kTable = "usertable";

struct ResultFreed {
  void operator()(PGresult* result) const { PQclear(result); }
};
using PgResult = std::unique_ptr<PGresult, ResultFreed>;

// The spec key pg.conninfo; throws invalid-input if libpq cannot read it.
std::string conninfo_of(const Spec& spec);

class PgConnection {
 public:
  // Throws Fault if the server refuses.
  explicit PgConnection(const std::string& conninfo);

  PGconn* get() { return connection_.get(); }
  bool is_lost() const { return PQstatus(connection_.get()) != CONNECTION_OK; }
  std::string server_version() const;

  // A statement that returns rows or nothing; the result says whether it went well.
  PgResult execute(const std::string& statement);
  // The same; throws what went wrong.
  PgResult execute_or_throw(const std::string& statement, const std::string& doing);
  Fault fault(const std::string& doing, const PGresult* result) const;

 private:
  struct Closed {
    void operator()(PGconn* connection) const { PQfinish(connection); }
  };

  std::unique_ptr<PGconn, Closed> connection_;
};

// Whether a statement went well, whether it returns rows or not.
bool is_done(const PGresult* result);
// What the server or libpq said, in one line.
std::string message_of(const PGconn* connection, const PGresult* result);
// A name as SQL text.
std::string quoted(const std::string& name);
// "field0", "field1", ... as SQL text, parted by commas.
std::string quoted_fields(const Workload& workload);

// How many columns `execute` may meet: what a table can have, and what the preload library keeps of one transaction.
constexpr size_t kFieldsMax = 1000;
// Throws invalid-input for what PostgreSQL cannot hold.
void refuse_what_does_not_fit(const Workload& workload);

}  // namespace duratune
