#include "postgresql_connection.h"

#include <cstring>
#include <sstream>

#include "field_value.h"

namespace duratune {
namespace {

constexpr const char* kDiskFull = "53100";

std::string in_one_line(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  std::string word;
  while (words >> word) line += (line.empty() ? "" : " ") + word;
  return line;
}

}  // namespace

std::string conninfo_of(const Spec& spec) {
  const std::string conninfo = spec.require("pg.conninfo");
  char* error = nullptr;
  PQconninfoOption* options = PQconninfoParse(conninfo.c_str(), &error);
  if (options == nullptr) {
    const std::string said = error != nullptr ? in_one_line(error) : "no memory";
    PQfreemem(error);
    throw invalid_input("pg.conninfo: " + said);
  }
  PQconninfoFree(options);
  return conninfo;
}

PgConnection::PgConnection(const std::string& conninfo) {
  const char* const names[] = {"fallback_application_name", "dbname", nullptr};
  const char* const values[] = {"duratune-ycsb", conninfo.c_str(), nullptr};
  // A dbname that is a whole connection string is taken as one.
  connection_.reset(PQconnectdbParams(names, values, 1));
  if (!connection_) throw std::bad_alloc();
  if (is_lost()) throw Fault("engine", "connecting: " + message_of(connection_.get(), nullptr));
}

std::string PgConnection::server_version() const {
  const char* version = PQparameterStatus(connection_.get(), "server_version");
  return version != nullptr ? version : "";
}

PgResult PgConnection::execute(const std::string& statement) {
  return PgResult(PQexec(connection_.get(), statement.c_str()));
}

PgResult PgConnection::execute_or_throw(const std::string& statement, const std::string& doing) {
  PgResult result = execute(statement);
  if (!is_done(result.get())) throw fault(doing, result.get());
  return result;
}

Fault PgConnection::fault(const std::string& doing, const PGresult* result) const {
  const std::string what = doing + ": " + message_of(connection_.get(), result);
  const char* state = result != nullptr ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : nullptr;
  if (state != nullptr && std::strcmp(state, kDiskFull) == 0) {
    return Fault("no-space", what, "free space where the data lies, or name another folder");
  }
  return Fault("engine", what);
}

bool is_done(const PGresult* result) {
  const ExecStatusType status = PQresultStatus(result);
  return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

std::string message_of(const PGconn* connection, const PGresult* result) {
  const std::string said = in_one_line(result != nullptr ? PQresultErrorMessage(result) : PQerrorMessage(connection));
  return said.empty() ? "no message" : said;
}

std::string quoted(const std::string& name) {
  std::string text = "\"";
  for (char c : name) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

std::string quoted_fields(const Workload& workload) {
  std::string text;
  for (const std::string& name : workload.field_names) text += (text.empty() ? "" : ", ") + quoted(name);
  return text;
}

void refuse_what_does_not_fit(const Workload& workload) {
  const size_t fields = workload.field_names.size();
  if (fields > kFieldsMax) {
    throw invalid_input("fieldcount is above " + std::to_string(kFieldsMax) + ", more than a table can have here");
  }
  if (workload.record_count > kRegistersMax / fields) throw invalid_input("recordcount times fieldcount is above 10^12");
}

}  // namespace duratune
