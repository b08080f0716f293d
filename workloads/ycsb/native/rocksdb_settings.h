// The engine side of a spec: OPTIONS file, column family and write options of RocksDB.
#pragma once

#include <rocksdb/db.h>

#include <string>
#include <vector>

#include "fault.h"
#include "spec.h"

namespace duratune {

struct RocksSettings {
  // Reads db.path, db.options, db.cf and write.*; throws invalid-input for whatever RocksDB rejects by itself.
  static RocksSettings from_spec(const Spec& spec);

  std::string path;
  std::string column_family;
  rocksdb::DBOptions options;
  std::vector<rocksdb::ColumnFamilyDescriptor> column_families;
  rocksdb::WriteOptions write;

  // The index of `column_family` in `column_families`.
  size_t loaded_index() const;
};

// invalid-input where RocksDB rejects settings, no-space where the disk is full, else engine.
Fault engine_fault(const std::string& doing, const rocksdb::Status& status);

}  // namespace duratune
