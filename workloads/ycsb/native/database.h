// What the runner needs of an engine: a binding implements Database and Session, as YCSB's bindings implement DB.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ledger_client.h"

namespace duratune {

enum class Result { ok, not_found, error };
constexpr size_t kResults = 3;

struct Write {
  uint64_t key;
  const std::string& key_name;
  // None: all fields.
  std::optional<size_t> field;
  uint32_t kind;  // dt_ledger_kind
};

// One client's connection, used by one thread. A write is in the ledger before the engine is called, and is
// acknowledged there only after the engine reported success; where the engine is a server, its own processes stamp
// begin and end.
class Session {
 public:
  virtual ~Session() = default;
  virtual Result read(const std::string& key_name, std::optional<size_t> field) = 0;
  virtual Result scan(const std::string& key_name, uint64_t length, std::optional<size_t> field) = 0;
  virtual Result insert(const Write& write) = 0;
  virtual Result update(const Write& write) = 0;
  // What the engine said at the last Result::error.
  virtual const std::string& last_error() const = 0;
  // The connection is gone: nothing more can be asked.
  virtual bool is_lost() const { return false; }
  // Ledger entries that one operation may take.
  virtual uint64_t entries_max() const { return 1; }
};

class Database {
 public:
  virtual ~Database() = default;
  virtual std::unique_ptr<Session> new_session(LedgerClient& client, uint64_t seed) = 0;
  // Makes the engine do something that matters in a crash, by name; "" or what went wrong.
  virtual std::string provoke(const std::string& what) = 0;
  // What an application may do by itself from time to time; "" or what went wrong.
  virtual std::string flush_wal(bool sync) = 0;
  // The engine's own count of finished WAL syncs, if it keeps one.
  virtual std::optional<uint64_t> wal_syncs() const = 0;
  // Throws Fault when the engine reports a failure.
  virtual void close() = 0;
  // The engine is a process of its own, which the crash is for; else it is this one.
  virtual bool is_served() const { return false; }
};

}  // namespace duratune
