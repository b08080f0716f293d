// duratune-ycsb: YCSB's core workloads on RocksDB or PostgreSQL, with a ledger of every write.
//
//   duratune-ycsb load|run SPEC                 on what the spec names: db.path or pg.conninfo
//   duratune-ycsb effective|verify SPEC         RocksDB
//   duratune-ycsb read-back SPEC                PostgreSQL
//   duratune-ycsb verify|read-back -            spec paths on stdin
//   duratune-ycsb vectors SPEC
//
// stdout is one JSON object a line; exit code 2 for bad input, 1 for everything else that went wrong.

#include <rocksdb/version.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>

#include "abort_report.h"
#include "event.h"
#include "fault.h"
#include "lifeline.h"
#include "load.h"
#include "plan.h"
#include "postgresql_commands.h"
#include "rocksdb_database.h"
#include "runner.h"
#include "vectors.h"
#include "verify.h"

namespace duratune {
namespace {

void write_effective(const Spec& spec, const RocksInstance& instance) {
  const std::string path = spec.text("effective.path", "");
  if (path.empty()) return;
  std::ofstream file(path);
  file << instance.effective();
  file.close();
  if (!file) throw Fault("no-space", "cannot write " + path);
}

void load(const Spec& spec) {
  const RocksSettings settings = RocksSettings::from_spec(spec);
  const Workload workload = Workload::from_spec(spec);
  const Plan plan = Plan::from_spec(spec);
  spec.text("effective.path", "");
  spec.reject_unused();
  hold_lifeline(plan.lifeline_fd);
  report_aborts(settings.path);
  load_records(settings, workload, plan);
}

void run(const Spec& spec) {
  RocksSettings settings = RocksSettings::from_spec(spec);
  const Workload workload = Workload::from_spec(spec);
  const Plan plan = Plan::from_spec(spec);
  spec.text("effective.path", "");
  spec.reject_unused();
  hold_lifeline(plan.lifeline_fd);
  report_aborts(settings.path);
  Ledger ledger(plan.ledger_path, plan.threads);
  // A folder without a database is a mistake, whatever the candidate's create_if_missing says.
  settings.options.create_if_missing = false;
  settings.options.error_if_exists = false;
  const uint64_t begin_ns = dt_monotonic_ns();
  RocksDatabase database(settings, workload, ledger.records() && plan.ticker_ms > 0);
  emit(event("opened")
           .number("seconds", static_cast<double>(dt_monotonic_ns() - begin_ns) / 1e9)
           .text("rocksdb", rocksdb::GetRocksVersionAsString())
           .count("pid", static_cast<uint64_t>(getpid()))
           .texts("created", database.instance().created())
           .truth("ledger", ledger.records()));
  write_effective(spec, database.instance());
  run_workload(database, workload, plan, ledger);
}

// Opens an empty database with the settings, to see whether RocksDB takes them and what it makes of them.
void effective(const Spec& spec) {
  RocksSettings settings = RocksSettings::from_spec(spec);
  spec.require("effective.path");
  hold_lifeline(static_cast<int>(spec.integer("lifeline.fd", -1, -1)));
  spec.reject_unused();
  settings.options.create_if_missing = true;
  settings.options.error_if_exists = true;
  settings.options.create_missing_column_families = true;
  std::unique_ptr<RocksInstance> instance = RocksInstance::open_or_throw(settings);
  write_effective(spec, *instance);
  emit(event("effective").text("rocksdb", rocksdb::GetRocksVersionAsString()));
}

void verify(const std::string& argument) {
  if (argument == "-") {
    verify_states_from_stdin();
  } else {
    verify_state(argument);
  }
}

// The engine is the one whose database the spec names.
bool is_for_postgresql(const Spec& spec) {
  const bool is_named = spec.find("pg.conninfo").has_value();
  if (is_named && spec.find("db.path")) throw invalid_input("the spec names both db.path and pg.conninfo");
  return is_named;
}

void load_either(const Spec& spec) { is_for_postgresql(spec) ? pg_load(spec) : load(spec); }
void run_either(const Spec& spec) { is_for_postgresql(spec) ? pg_run(spec) : run(spec); }

void dispatch(const std::string& command, const std::string& argument) {
  const std::map<std::string, void (*)(const Spec&)> commands = {
      {"load", load_either}, {"run", run_either}, {"effective", effective}, {"vectors", print_vectors}};
  if (command == "verify") return verify(argument);
  if (command == "read-back") return pg_read_back(argument);
  const auto found = commands.find(command);
  if (found == commands.end()) throw invalid_input("'" + command + "' is no subcommand");
  found->second(Spec::from_file(argument));
}

}  // namespace
}  // namespace duratune

// Without destructors of globals: engine threads of an abandoned instance may still use them.
[[noreturn]] static void end(int exit_code) { _exit(exit_code); }

int main(int argc, char** argv) {
  using namespace duratune;
  try {
    if (argc != 3) throw invalid_input("usage: duratune-ycsb load|run|verify|read-back|effective|vectors SPEC");
    dispatch(argv[1], argv[2]);
    return 0;
  } catch (const Fault& fault) {
    if (*fault.what() != '\0') {
      emit(event("error").text("code", fault.code()).text("what", fault.what()).text("hint", fault.hint()));
    }
    end(fault.exit_code());
  } catch (const std::exception& error) {
    emit(event("error").text("code", "internal").text("what", error.what()).text("hint", ""));
    end(1);
  }
}
