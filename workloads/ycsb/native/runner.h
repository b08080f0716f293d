// Runs the clients through their phases and tells it; returns only for a run that ends cleanly.
#pragma once

#include "database.h"
#include "plan.h"
#include "workload.h"

namespace duratune {

void run_workload(Database& database, const Workload& workload, const Plan& plan, Ledger& ledger);

}  // namespace duratune
