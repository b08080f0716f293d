// What the subcommands do where the spec names a PostgreSQL server (pg.conninfo). Without libpq at build time each of
// them throws what the machine lacks.
#pragma once

#include <string>

#include "plan.h"
#include "spec.h"
#include "workload.h"

namespace duratune {

// Makes the table with the initial version of every record; emits `loaded`.
void pg_load(const Spec& spec);
void pg_run(const Spec& spec);
// Tells what the table holds: `argument` is a spec, or "-" for spec paths on stdin. Emits `read-back` for each.
void pg_read_back(const std::string& argument);

// Throws Fault; what was created by then stays.
void pg_load_records(const std::string& conninfo, const Workload& workload, const Plan& plan);

}  // namespace duratune
