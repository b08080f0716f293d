// YCSB's RocksDB binding: one column family, all fields of a record in one value, update = get, merge, put.
#pragma once

#include <rocksdb/write_batch.h>

#include "database.h"
#include "field_bytes.h"
#include "rocksdb_instance.h"
#include "workload.h"

namespace duratune {

class RocksDatabase : public Database {
 public:
  // `counts_syncs` opens with RocksDB's tickers on, which costs a counter per event.
  RocksDatabase(const RocksSettings& settings, const Workload& workload, bool counts_syncs);

  std::unique_ptr<Session> new_session(LedgerClient& client, uint64_t seed) override;
  // flush: every column family; compact: everything.
  std::string provoke(const std::string& what) override;
  std::string flush_wal(bool sync) override;
  std::optional<uint64_t> wal_syncs() const override;
  void close() override;

  RocksInstance& instance() { return *instance_; }

 private:
  RocksSettings settings_;
  const Workload& workload_;
  std::shared_ptr<rocksdb::Statistics> statistics_;
  std::unique_ptr<RocksInstance> instance_;
};

class RocksSession : public Session {
 public:
  RocksSession(RocksInstance& instance, const rocksdb::WriteOptions& write, const Workload& workload,
               LedgerClient& client, uint64_t seed);

  Result read(const std::string& key_name, std::optional<size_t> field) override;
  Result scan(const std::string& key_name, uint64_t length, std::optional<size_t> field) override;
  Result insert(const Write& write) override;
  Result update(const Write& write) override;
  const std::string& last_error() const override { return last_error_; }

 private:
  Result failed(const rocksdb::Status& status);
  Result check(std::string_view key_name, std::string_view value, std::optional<size_t> field);
  void lay_out();
  // A new value of all fields; valid until the next call.
  std::string& fill_all(const std::string& key_name);
  Result put(const Write& write, std::string& value);

  rocksdb::DB* db_;
  rocksdb::ColumnFamilyHandle* family_;
  rocksdb::WriteOptions write_;
  rocksdb::ReadOptions read_;
  const Workload& workload_;
  LedgerClient& client_;
  FieldBytes bytes_;
  std::string value_;
  std::string whole_;                  // a value of all fields; where all lengths are known beforehand, its frame stays
  std::vector<size_t> field_offsets_;  // where the bytes of each field go in it, if its frame stays
  std::string last_error_;
  rocksdb::WriteBatch batch_;  // used again and again: a batch per put would be an allocation per put
  rocksdb::PinnableSlice pinned_;
};

}  // namespace duratune
