// The load phase: a new database with the initial version of every record, on disk.
#pragma once

#include "plan.h"
#include "rocksdb_settings.h"
#include "workload.h"

namespace duratune {

// Throws Fault; whatever was created by then stays for the caller to remove.
void load_records(RocksSettings settings, const Workload& workload, const Plan& plan);

// Syncs every file below `folder`, the folders, and the folder's own entry in its parent.
void sync_tree(const std::string& folder);

}  // namespace duratune
