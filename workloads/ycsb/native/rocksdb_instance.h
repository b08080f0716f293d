// One open RocksDB with all its column families.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/statistics.h>

#include <memory>
#include <string>
#include <vector>

#include "rocksdb_settings.h"

namespace duratune {

class RocksInstance {
 public:
  ~RocksInstance();
  RocksInstance(const RocksInstance&) = delete;
  RocksInstance& operator=(const RocksInstance&) = delete;

  // Opens with these settings as they are; column families that the folder lacks are created.
  static std::unique_ptr<RocksInstance> open(const RocksSettings& settings, rocksdb::Status& status);
  static std::unique_ptr<RocksInstance> open_or_throw(const RocksSettings& settings);

  rocksdb::DB* db() { return db_; }
  rocksdb::ColumnFamilyHandle* loaded() { return handles_[loaded_]; }
  const std::vector<rocksdb::ColumnFamilyHandle*>& handles() const { return handles_; }
  const std::vector<std::string>& created() const { return created_; }

  // The settings in force, in the form of an OPTIONS file.
  std::string effective() const;
  rocksdb::Status close();

 private:
  RocksInstance() = default;

  rocksdb::DB* db_ = nullptr;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
  std::vector<std::string> created_;
  size_t loaded_ = 0;
};

}  // namespace duratune
