#include "rocksdb_database.h"

#include "value.h"

namespace duratune {

RocksDatabase::RocksDatabase(const RocksSettings& settings, const Workload& workload, bool counts_syncs)
    : settings_(settings), workload_(workload) {
  if (counts_syncs) {
    if (!settings_.options.statistics) {
      settings_.options.statistics = rocksdb::CreateDBStatistics();
      // Tickers only: histograms and timers would cost two clock readings per call.
      settings_.options.statistics->set_stats_level(rocksdb::StatsLevel::kExceptHistogramOrTimers);
    }
    statistics_ = settings_.options.statistics;
  }
  instance_ = RocksInstance::open_or_throw(settings_);
}

std::unique_ptr<Session> RocksDatabase::new_session(LedgerClient& client, uint64_t seed) {
  return std::make_unique<RocksSession>(*instance_, settings_.write, workload_, client, seed);
}

std::string RocksDatabase::provoke(const std::string& what) {
  rocksdb::Status status = rocksdb::Status::NotSupported("flush and compact can be provoked", what);
  if (what == "flush") status = instance_->db()->Flush(rocksdb::FlushOptions(), instance_->handles());
  if (what == "compact") {
    for (rocksdb::ColumnFamilyHandle* handle : instance_->handles()) {
      status = instance_->db()->CompactRange(rocksdb::CompactRangeOptions(), handle, nullptr, nullptr);
      if (!status.ok()) break;
    }
  }
  return status.ok() ? "" : status.ToString();
}

std::string RocksDatabase::flush_wal(bool sync) {
  const rocksdb::Status status = instance_->db()->FlushWAL(sync);
  return status.ok() ? "" : status.ToString();
}

std::optional<uint64_t> RocksDatabase::wal_syncs() const {
  if (!statistics_) return std::nullopt;
  return statistics_->getTickerCount(rocksdb::WAL_FILE_SYNCED);
}

void RocksDatabase::close() {
  const rocksdb::Status status = instance_->close();
  if (!status.ok()) throw engine_fault("closing RocksDB", status);
}

RocksSession::RocksSession(RocksInstance& instance, const rocksdb::WriteOptions& write, const Workload& workload,
                           LedgerClient& client, uint64_t seed)
    : db_(instance.db()),
      family_(instance.loaded()),
      write_(write),
      workload_(workload),
      client_(client),
      bytes_(workload, seed, client.number()) {
  if (workload.field_length_distribution == LengthDistribution::constant) lay_out();
}

void RocksSession::lay_out() {
  begin_value(whole_);
  for (const std::string& name : workload_.field_names) {
    const char* bytes = append_field(whole_, name, workload_.field_length);
    field_offsets_.push_back(static_cast<size_t>(bytes - whole_.data()));
  }
}

Result RocksSession::failed(const rocksdb::Status& status) {
  last_error_ = status.ToString();
  return Result::error;
}

// Reads as an application does: the fields asked for are found and, with dataintegrity, compared.
Result RocksSession::check(std::string_view key_name, std::string_view value, std::optional<size_t> field) {
  size_t found = 0;
  bool is_right = true;
  const std::string_view wanted = field ? std::string_view(workload_.field_names[*field]) : std::string_view();
  const bool readable = for_each_field(value, [&](std::string_view name, std::string_view bytes) {
    if (field && name != wanted) return;
    ++found;
    if (bytes_.deterministic() && bytes != FieldBytes::deterministic_value(key_name, name, bytes.size())) {
      is_right = false;
    }
  });
  if (readable && is_right && found == (field ? 1 : workload_.field_names.size())) return Result::ok;
  last_error_ = readable && !is_right ? "dataintegrity: a field does not hold what belongs to its key"
                                      : "the stored value is no record of this workload";
  return Result::error;
}

Result RocksSession::read(const std::string& key_name, std::optional<size_t> field) {
  pinned_.Reset();
  const rocksdb::Status status = db_->Get(read_, family_, key_name, &pinned_);
  if (status.IsNotFound()) return Result::not_found;
  if (!status.ok()) return failed(status);
  return check(key_name, std::string_view(pinned_.data(), pinned_.size()), field);
}

Result RocksSession::scan(const std::string& key_name, uint64_t length, std::optional<size_t> field) {
  std::unique_ptr<rocksdb::Iterator> rows(db_->NewIterator(read_, family_));
  uint64_t seen = 0;
  for (rows->Seek(key_name); rows->Valid() && seen < length; rows->Next(), ++seen) {
    const Result result = check(rows->key().ToStringView(), rows->value().ToStringView(), field);
    if (result != Result::ok) return result;
  }
  return rows->status().ok() ? Result::ok : failed(rows->status());
}

std::string& RocksSession::fill_all(const std::string& key_name) {
  if (!field_offsets_.empty()) {
    for (size_t i = 0; i < field_offsets_.size(); ++i) {
      bytes_.fill(whole_.data() + field_offsets_[i], workload_.field_length, key_name, workload_.field_names[i]);
    }
    return whole_;
  }
  begin_value(whole_);
  for (const std::string& name : workload_.field_names) {
    const size_t length = bytes_.next_length();
    bytes_.fill(append_field(whole_, name, length), length, key_name, name);
  }
  return whole_;
}

Result RocksSession::insert(const Write& write) {
  return put(write, fill_all(write.key_name));
}

Result RocksSession::update(const Write& write) {
  const rocksdb::Status status = db_->Get(read_, family_, write.key_name, &value_);
  if (status.IsNotFound()) return Result::not_found;
  if (!status.ok()) return failed(status);
  if (!write.field) return put(write, fill_all(write.key_name));
  const std::string& name = workload_.field_names[*write.field];
  const size_t length = bytes_.next_length();
  char* room = replace_field(value_, name, length);
  if (room == nullptr) {
    last_error_ = "the stored value is no record of this workload";
    return Result::error;
  }
  bytes_.fill(room, length, write.key_name, name);
  return put(write, value_);
}

Result RocksSession::put(const Write& write, std::string& value) {
  const uint64_t checksum = seal_value(value, client_.number(), client_.next_sequence(), write.key);
  batch_.Clear();
  rocksdb::Status status = batch_.Put(family_, write.key_name, value);
  client_.begin(write.key, checksum, write.kind);
  if (status.ok()) status = db_->Write(write_, &batch_);
  if (status.ok()) {
    client_.acknowledge();
    return Result::ok;
  }
  client_.fail();
  return failed(status);
}

}  // namespace duratune
