#include "rocksdb_instance.h"

#include <rocksdb/convenience.h>
#include <rocksdb/table.h>
#include <rocksdb/version.h>

#include <algorithm>

namespace duratune {
namespace {

std::vector<std::string> missing_families(const RocksSettings& settings) {
  std::vector<std::string> present;
  std::vector<std::string> missing;
  if (!rocksdb::DB::ListColumnFamilies(settings.options, settings.path, &present).ok()) return missing;
  for (const auto& family : settings.column_families) {
    if (std::find(present.begin(), present.end(), family.name) == present.end()) missing.push_back(family.name);
  }
  return missing;
}

void append_section(std::string& text, const std::string& title, const std::string& body) {
  text += "[" + title + "]\n  " + body + "\n\n";
}

}  // namespace

std::unique_ptr<RocksInstance> RocksInstance::open(const RocksSettings& settings, rocksdb::Status& status) {
  std::unique_ptr<RocksInstance> instance(new RocksInstance);
  rocksdb::DBOptions options = settings.options;
  if (settings.column_families.size() > 1) {
    instance->created_ = missing_families(settings);
    if (!instance->created_.empty()) options.create_missing_column_families = true;
  }
  instance->loaded_ = settings.loaded_index();
  status = rocksdb::DB::Open(options, settings.path, settings.column_families, &instance->handles_, &instance->db_);
  if (!status.ok()) return nullptr;
  return instance;
}

std::unique_ptr<RocksInstance> RocksInstance::open_or_throw(const RocksSettings& settings) {
  rocksdb::Status status;
  std::unique_ptr<RocksInstance> instance = open(settings, status);
  if (!instance) throw engine_fault("RocksDB does not open " + settings.path, status);
  return instance;
}

RocksInstance::~RocksInstance() { close().PermitUncheckedError(); }

rocksdb::Status RocksInstance::close() {
  if (db_ == nullptr) return rocksdb::Status::OK();
  for (rocksdb::ColumnFamilyHandle* handle : handles_) {
    db_->DestroyColumnFamilyHandle(handle).PermitUncheckedError();
  }
  handles_.clear();
  rocksdb::Status status = db_->Close();
  delete db_;
  db_ = nullptr;
  return status;
}

std::string RocksInstance::effective() const {
  rocksdb::ConfigOptions config;
  config.delimiter = "\n  ";
  std::string text = "# The settings in force, as read back from the open database.\n";
  append_section(text, "Version",
                 "rocksdb_version=" + rocksdb::GetRocksVersionAsString() + "\n  options_file_version=1.1");
  std::string body;
  rocksdb::Status status = rocksdb::GetStringFromDBOptions(config, db_->GetDBOptions(), &body);
  if (!status.ok()) throw engine_fault("cannot read back DBOptions", status);
  append_section(text, "DBOptions", body);
  for (rocksdb::ColumnFamilyHandle* handle : handles_) {
    const rocksdb::Options options = db_->GetOptions(handle);
    body.clear();
    status = rocksdb::GetStringFromColumnFamilyOptions(config, options, &body);
    if (!status.ok()) throw engine_fault("cannot read back CFOptions of " + handle->GetName(), status);
    append_section(text, "CFOptions \"" + handle->GetName() + "\"", body);
    body.clear();
    status = options.table_factory->GetOptionString(config, &body);
    if (!status.ok()) throw engine_fault("cannot read back TableOptions of " + handle->GetName(), status);
    append_section(text, std::string("TableOptions/") + options.table_factory->Name() + " \"" + handle->GetName() + "\"",
                   body);
  }
  return text;
}

}  // namespace duratune
