#include "rocksdb_settings.h"

#include <rocksdb/convenience.h>
#include <rocksdb/utilities/options_util.h>

#include <fstream>

namespace duratune {
namespace {

std::string without_blanks(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// RocksDB would open a foreign comparator or merge operator only if this program had linked it, and reading the data
// in another order would look like loss. The file's text is asked, because the loader drops names it does not know.
void reject_foreign_code(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw invalid_input("cannot read the OPTIONS file " + path);
  std::string line;
  while (std::getline(file, line)) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = without_blanks(line.substr(0, equals));
    const std::string value = without_blanks(line.substr(equals + 1));
    if (name == "merge_operator" && value != "nullptr" && !value.empty()) {
      throw invalid_input("merge_operator=" + value + " is application code", "set merge_operator=nullptr");
    }
    if (name == "comparator" && value != "leveldb.BytewiseComparator") {
      throw invalid_input("comparator=" + value + " is application code or another key order",
                          "set comparator=leveldb.BytewiseComparator");
    }
  }
}

void load_options(const std::string& path, RocksSettings& settings) {
  reject_foreign_code(path);
  rocksdb::ConfigOptions config;
  config.ignore_unknown_options = false;
  config.ignore_unsupported_options = false;
  const rocksdb::Status status =
      rocksdb::LoadOptionsFromFile(config, path, &settings.options, &settings.column_families);
  if (!status.ok()) throw invalid_input("RocksDB rejects the OPTIONS file " + path + ": " + status.ToString());
}

}  // namespace

Fault engine_fault(const std::string& doing, const rocksdb::Status& status) {
  const std::string what = doing + ": " + status.ToString();
  if (status.IsNoSpace()) return Fault("no-space", what, "free space where the data lies, or name another folder");
  if (status.IsInvalidArgument() || status.IsNotSupported()) return Fault("invalid-input", what);
  return Fault("engine", what);
}

RocksSettings RocksSettings::from_spec(const Spec& spec) {
  RocksSettings settings;
  settings.path = spec.require("db.path");
  settings.column_family = spec.text("db.cf", rocksdb::kDefaultColumnFamilyName);
  const std::string options = spec.text("db.options", "");
  if (options.empty()) {
    settings.column_families.emplace_back(rocksdb::kDefaultColumnFamilyName, rocksdb::ColumnFamilyOptions());
  } else {
    load_options(options, settings);
  }
  settings.write.sync = spec.truth("write.sync", false);
  settings.write.disableWAL = spec.truth("write.disableWAL", false);
  settings.write.no_slowdown = spec.truth("write.no_slowdown", false);
  settings.write.low_pri = spec.truth("write.low_pri", false);
  settings.write.memtable_insert_hint_per_batch = spec.truth("write.memtable_insert_hint_per_batch", false);
  if (settings.write.sync && settings.write.disableWAL) {
    throw invalid_input("WriteOptions.sync=true contradicts WriteOptions.disableWAL=true",
                        "without a WAL there is nothing to sync: drop one of the two");
  }
  settings.loaded_index();
  return settings;
}

size_t RocksSettings::loaded_index() const {
  std::string names;
  for (size_t i = 0; i < column_families.size(); ++i) {
    if (column_families[i].name == column_family) return i;
    names += (names.empty() ? "" : ", ") + column_families[i].name;
  }
  throw invalid_input("the OPTIONS file has no column family '" + column_family + "'", "it has: " + names);
}

}  // namespace duratune
