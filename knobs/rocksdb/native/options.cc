// duratune-rocksdb-options: what the installed RocksDB itself says about its options.
//
//   options                 the version and every option that the library prints, as JSON
//   probe                   reads lines SECTION<TAB>NAME<TAB>VALUE, sets each value alone on the
//                           defaults and prints "ok<TAB>VALUE AS PRINTED" or "error<TAB>MESSAGE"
//   roundtrip FILE          loads an OPTIONS file strictly and prints it again
//   open FILE DIR           opens (creates) a database with the file; prints the options in force
//   write FILE DIR [sync] [disableWAL]
//                           opens the same way and writes one record: some mixes fail only then
//
// Every answer comes from the library's public interface. Exit codes: 0 done, 2 refused (the
// library's own message is on standard error), 70 standard output could not be written.

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/options_util.h>
#include <rocksdb/version.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using ROCKSDB_NAMESPACE::BlockBasedTableOptions;
using ROCKSDB_NAMESPACE::ColumnFamilyDescriptor;
using ROCKSDB_NAMESPACE::ColumnFamilyHandle;
using ROCKSDB_NAMESPACE::ColumnFamilyOptions;
using ROCKSDB_NAMESPACE::ConfigOptions;
using ROCKSDB_NAMESPACE::DB;
using ROCKSDB_NAMESPACE::DBOptions;
using ROCKSDB_NAMESPACE::Env;
using ROCKSDB_NAMESPACE::Status;
using ROCKSDB_NAMESPACE::WriteOptions;

using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr int kRefused = 2;
constexpr int kOutputLost = 70;

// The library writes one "name=value" per line with this delimiter; nested values keep ';'.
ConfigOptions Lines() {
  ConfigOptions config;
  config.delimiter = "\n";
  config.ignore_unknown_options = false;
  config.ignore_unsupported_options = false;
  return config;
}

std::string Trim(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

Pairs Split(const std::string& printed) {
  Pairs pairs;
  std::istringstream lines(printed);
  for (std::string line; std::getline(lines, line);) {
    const auto equals = line.find('=');
    if (equals == std::string::npos) continue;
    pairs.emplace_back(Trim(line.substr(0, equals)), Trim(line.substr(equals + 1)));
  }
  return pairs;
}

// A library that cannot print its own options has nothing to tell us: the message goes up.
struct Refusal {
  std::string message;
};

std::string Checked(const Status& status, std::string printed) {
  if (!status.ok()) throw Refusal{status.ToString()};
  return printed;
}

std::string Print(const ConfigOptions& config, const DBOptions& options) {
  std::string printed;
  const Status status = GetStringFromDBOptions(config, options, &printed);
  return Checked(status, printed);
}

std::string Print(const ConfigOptions& config, const ColumnFamilyOptions& options) {
  std::string printed;
  const Status status = GetStringFromColumnFamilyOptions(config, options, &printed);
  return Checked(status, printed);
}

std::string PrintTable(const ConfigOptions& config, const ColumnFamilyOptions& options) {
  std::string printed;
  const Status status = options.table_factory->GetOptionString(config, &printed);
  return Checked(status, printed);
}

// The block cache is an object: no OPTIONS file that the library writes names its size.
std::string BlockCacheBytes(const ColumnFamilyOptions& options) {
  const auto* table = options.table_factory->GetOptions<BlockBasedTableOptions>();
  if (table == nullptr || table->no_block_cache) return "";
  return table->block_cache == nullptr ? "" : std::to_string(table->block_cache->GetCapacity());
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      quoted += escaped;
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string Object(const Pairs& pairs) {
  std::string object = "{";
  for (const auto& [name, value] : pairs) {
    if (object.size() > 1) object += ", ";
    object += Quoted(name) + ": " + Quoted(value);
  }
  return object + "}";
}

std::string Names(const Pairs& pairs) {
  std::string names = "[";
  for (const auto& pair : pairs) {
    if (names.size() > 1) names += ", ";
    names += Quoted(pair.first);
  }
  return names + "]";
}

// What is linked decides which compressions a database opens with, whatever the parser accepts.
Pairs LinkedCompressions() {
  Pairs linked;
  for (const auto type : ROCKSDB_NAMESPACE::GetSupportedCompressions()) {
    ColumnFamilyOptions options;
    options.compression = type;
    std::string printed;
    const Status status = GetStringFromColumnFamilyOptions(Lines(), options, &printed);
    for (auto& pair : Split(Checked(status, printed)))
      if (pair.first == "compression") linked.emplace_back(pair.second, "");
  }
  return linked;
}

Pairs WriteDefaults() {
  const auto text = [](bool value) { return std::string(value ? "true" : "false"); };
  const WriteOptions write;
  return {{"sync", text(write.sync)},
          {"disableWAL", text(write.disableWAL)},
          {"ignore_missing_column_families", text(write.ignore_missing_column_families)},
          {"no_slowdown", text(write.no_slowdown)},
          {"low_pri", text(write.low_pri)},
          {"memtable_insert_hint_per_batch", text(write.memtable_insert_hint_per_batch)},
          {"rate_limiter_priority",
           write.rate_limiter_priority == Env::IO_TOTAL ? "IO_TOTAL" : "IO_USER"},
          {"protection_bytes_per_key", std::to_string(write.protection_bytes_per_key)}};
}

int PrintOptions() {
  const ConfigOptions config = Lines();
  ConfigOptions mutable_only = config;
  mutable_only.mutable_options_only = true;
  const DBOptions db;
  const ColumnFamilyOptions cf;
  std::cout << "{\"version\": " << Quoted(ROCKSDB_NAMESPACE::GetRocksVersionAsString(true)) << ",\n"
            << "\"DBOptions\": " << Object(Split(Print(config, db))) << ",\n"
            << "\"CFOptions\": " << Object(Split(Print(config, cf))) << ",\n"
            << "\"BlockBasedTableOptions\": " << Object(Split(PrintTable(config, cf))) << ",\n"
            << "\"WriteOptions\": " << Object(WriteDefaults()) << ",\n"
            << "\"linked_compressions\": " << Names(LinkedCompressions()) << ",\n"
            << "\"block_cache_bytes\": " << Quoted(BlockCacheBytes(cf)) << ",\n"
            << "\"dynamic\": {\"DBOptions\": " << Names(Split(Print(mutable_only, db)))
            << ", \"CFOptions\": " << Names(Split(Print(mutable_only, cf)))
            << ", \"BlockBasedTableOptions\": " << Names(Split(PrintTable(mutable_only, cf)))
            << "}}\n";
  return 0;
}

std::string Printed(const Pairs& pairs, const std::string& name) {
  for (const auto& pair : pairs)
    if (pair.first == name) return pair.second;
  return "";
}

Status SetUnguarded(const std::string& section, const std::string& name, const std::string& value,
              std::string* printed) {
  const ConfigOptions config = Lines();
  const std::unordered_map<std::string, std::string> one{{name, value}};
  if (section == "DBOptions") {
    DBOptions changed;
    const Status status = GetDBOptionsFromMap(config, DBOptions(), one, &changed);
    if (status.ok()) *printed = Printed(Split(Print(config, changed)), name);
    return status;
  }
  ColumnFamilyOptions changed;
  if (section == "CFOptions") {
    const Status status = GetColumnFamilyOptionsFromMap(config, ColumnFamilyOptions(), one, &changed);
    if (status.ok()) *printed = Printed(Split(Print(config, changed)), name);
    return status;
  }
  if (section != "BlockBasedTableOptions") return Status::InvalidArgument("no such section", section);
  const Status status = changed.table_factory->ConfigureFromMap(config, one);
  if (status.ok())
    *printed = name == "block_cache" ? BlockCacheBytes(changed)
                                     : Printed(Split(PrintTable(config, changed)), name);
  return status;
}

// Some values make the library throw where it derives others from them (num_levels=-1).
Status SetOne(const std::string& section, const std::string& name, const std::string& value,
              std::string* printed) {
  try {
    return SetUnguarded(section, name, value, printed);
  } catch (const std::exception& thrown) {
    return Status::InvalidArgument("the library threw", thrown.what());
  }
}

int Probe() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto first = line.find('\t');
    const auto second = first == std::string::npos ? first : line.find('\t', first + 1);
    if (second == std::string::npos) throw Refusal{"a probe is SECTION<TAB>NAME<TAB>VALUE: " + line};
    std::string printed;
    const Status status = SetOne(line.substr(0, first), line.substr(first + 1, second - first - 1),
                                 line.substr(second + 1), &printed);
    std::cout << (status.ok() ? "ok\t" + printed : "error\t" + status.ToString()) << '\n';
  }
  return 0;
}

void PrintFile(const DBOptions& db, const std::vector<ColumnFamilyDescriptor>& families) {
  const ConfigOptions config = Lines();
  std::cout << "[Version]\n  rocksdb_version=" << ROCKSDB_NAMESPACE::GetRocksVersionAsString(true)
            << "\n  options_file_version=1.1\n\n[DBOptions]\n"
            << Print(config, db) << "\n";
  for (const auto& family : families) {
    std::cout << "\n[CFOptions \"" << family.name << "\"]\n" << Print(config, family.options) << "\n";
    std::cout << "\n[TableOptions/" << family.options.table_factory->Name() << " \"" << family.name
              << "\"]\n";
    const std::string cache = BlockCacheBytes(family.options);
    if (!cache.empty()) std::cout << "block_cache=" << cache << "\n";
    std::cout << PrintTable(config, family.options) << "\n";
  }
}

void Load(const std::string& file, DBOptions* db, std::vector<ColumnFamilyDescriptor>* families) {
  ConfigOptions config;
  config.ignore_unknown_options = false;
  config.ignore_unsupported_options = false;
  const Status status = LoadOptionsFromFile(config, file, db, families);
  if (!status.ok()) throw Refusal{status.ToString()};
}

int RoundTrip(const std::string& file) {
  DBOptions db;
  std::vector<ColumnFamilyDescriptor> families;
  Load(file, &db, &families);
  PrintFile(db, families);
  return 0;
}

// A database opened with an OPTIONS file; closed, with its handles, when it goes out of scope.
class Opened {
 public:
  Opened(const std::string& file, const std::string& folder) {
    DBOptions options;
    Load(file, &options, &families_);
    options.create_if_missing = true;
    options.create_missing_column_families = true;
    DB* db = nullptr;
    const Status status = DB::Open(options, folder, families_, &handles_, &db);
    db_.reset(db);
    if (!status.ok()) throw Refusal{status.ToString()};
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() {
    for (auto* handle : handles_) db_->DestroyColumnFamilyHandle(handle);
  }

  void PrintInForce() {
    for (size_t i = 0; i < handles_.size(); ++i) families_[i].options = db_->GetOptions(handles_[i]);
    PrintFile(db_->GetDBOptions(), families_);
  }

  void WriteOne(const WriteOptions& how) {
    const Status status = db_->Put(how, handles_.front(), "key", "value");
    if (!status.ok()) throw Refusal{status.ToString()};
  }

 private:
  std::vector<ColumnFamilyDescriptor> families_;
  std::vector<ColumnFamilyHandle*> handles_;
  std::unique_ptr<DB> db_;
};

int Open(const std::string& file, const std::string& folder) {
  Opened(file, folder).PrintInForce();
  return 0;
}

int Write(const std::string& file, const std::string& folder, const std::vector<std::string>& flags) {
  WriteOptions how;
  for (const auto& flag : flags) {
    if (flag != "sync" && flag != "disableWAL") throw Refusal{"no such write option: " + flag};
    (flag == "sync" ? how.sync : how.disableWAL) = true;
  }
  Opened(file, folder).WriteOne(how);
  std::cout << "written\n";
  return 0;
}

int Usage() {
  std::cerr << "usage: duratune-rocksdb-options options | probe | roundtrip FILE |\n"
               "       open FILE DIR | write FILE DIR [sync] [disableWAL]\n";
  return kRefused;
}

int Run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return Usage();
  const std::string& mode = arguments[0];
  if (mode == "options" && arguments.size() == 1) return PrintOptions();
  if (mode == "probe" && arguments.size() == 1) return Probe();
  if (mode == "roundtrip" && arguments.size() == 2) return RoundTrip(arguments[1]);
  if (mode == "open" && arguments.size() == 3) return Open(arguments[1], arguments[2]);
  if (mode == "write" && arguments.size() >= 3)
    return Write(arguments[1], arguments[2], {arguments.begin() + 3, arguments.end()});
  return Usage();
}

}  // namespace

int main(int count, char** values) {
  try {
    const int code = Run(std::vector<std::string>(values + 1, values + count));
    std::cout.flush();
    return std::cout ? code : kOutputLost;
  } catch (const Refusal& refusal) {
    std::cerr << refusal.message << "\n";
    return kRefused;
  } catch (const std::exception& thrown) {
    std::cerr << "RocksDB threw: " << thrown.what() << "\n";
    return kRefused;
  }
}
