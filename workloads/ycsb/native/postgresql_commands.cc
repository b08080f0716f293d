#include "postgresql_commands.h"

#include <unistd.h>

#include "event.h"
#include "lifeline.h"
#include "postgresql_database.h"
#include "runner.h"

namespace duratune {

void pg_load(const Spec& spec) {
  const std::string conninfo = conninfo_of(spec);
  const Workload workload = Workload::from_spec(spec);
  const Plan plan = Plan::from_spec(spec);
  spec.reject_unused();
  hold_lifeline(plan.lifeline_fd);
  pg_load_records(conninfo, workload, plan);
}

void pg_run(const Spec& spec) {
  const std::string conninfo = conninfo_of(spec);
  const Workload workload = Workload::from_spec(spec);
  const Plan plan = Plan::from_spec(spec);
  const bool notes_transactions = spec.truth("pg.transactions", false);
  spec.reject_unused();
  if (plan.flush_wal_every_ms > 0 || plan.sync_wal_every_ms > 0) {
    throw invalid_input("application.* says what an application of RocksDB does", "leave it out for PostgreSQL");
  }
  hold_lifeline(plan.lifeline_fd);
  Ledger ledger(plan.ledger_path, plan.threads);
  const uint64_t begin_ns = dt_monotonic_ns();
  PgDatabase database(conninfo, workload, notes_transactions);
  emit(event("opened")
           .number("seconds", static_cast<double>(dt_monotonic_ns() - begin_ns) / 1e9)
           .text("postgresql", database.server_version())
           .count("pid", static_cast<uint64_t>(getpid()))
           .truth("ledger", ledger.records()));
  run_workload(database, workload, plan, ledger);
}

}  // namespace duratune
