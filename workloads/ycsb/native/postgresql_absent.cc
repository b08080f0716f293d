// In place of the PostgreSQL binding, where libpq was not there when this was built.
#include "fault.h"
#include "postgresql_commands.h"

namespace duratune {
namespace {

[[noreturn]] void refuse() {
  throw Fault("machine-lacks", "duratune-ycsb was built without libpq, so it cannot drive PostgreSQL",
              "apt-get install libpq-dev (it brings libpq5), then install duratune again (in a checkout: make)");
}

}  // namespace

void pg_load(const Spec&) { refuse(); }
void pg_run(const Spec&) { refuse(); }
void pg_read_back(const std::string&) { refuse(); }

}  // namespace duratune
