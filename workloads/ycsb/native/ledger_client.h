// The driver's side of the ledger (workloads/ledger.h): one mapping for the process, one writer for each client.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "workloads/ledger.h"

namespace duratune {

class Ledger {
 public:
  // Maps an existing ledger with room for `clients`; an empty path gives counters that only this process sees and
  // clients that record nothing (to measure what the ledger costs).
  Ledger(const std::string& path, uint32_t clients);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  dt_ledger_header* header() { return header_; }
  bool records() const { return mapped_bytes_ != 0; }
  // Finished since it was mapped.
  uint64_t operations() const { return dt_ledger_operations(header_) - operations_before_; }

 private:
  void map(const std::string& path);

  struct Freed {
    void operator()(void* memory) const { std::free(memory); }
  };

  std::unique_ptr<void, Freed> own_;
  dt_ledger_header* header_;
  uint64_t mapped_bytes_ = 0;
  uint64_t operations_before_ = 0;
};

// Written by one thread. A write goes: has_room()? next_sequence(), begin(), the engine's call, then acknowledge() or
// fail(). Where the engine's own processes stamp entries: next_sequence(), fill(), for each entry; the engine's call.
class LedgerClient {
 public:
  LedgerClient(Ledger& ledger, uint32_t client)
      : header_(ledger.header()),
        shared_(dt_ledger_client_of(header_, client)),
        client_(client),
        records_(ledger.records()) {
    if (!records_) return;
    entries_ = dt_ledger_entries(header_, client);
    // A run may go on where another ended.
    begun_ = __atomic_load_n(&shared_->count, __ATOMIC_ACQUIRE);
  }

  // The client's number in values: the loader is 0, so run clients count from 1.
  uint32_t number() const { return client_ + 1; }
  uint64_t next_sequence() const { return begun_ + 1; }
  bool has_room(uint64_t entries) const { return !records_ || begun_ + entries <= header_->capacity; }
  void count_operation() { dt_ledger_count_operation(shared_); }

  void begin(uint64_t register_id, uint64_t checksum, uint32_t kind) {
    if (records_) {
      entry_ = entries_ + begun_;
      entry_->register_id = register_id;
      entry_->checksum = checksum;
      entry_->kind = kind;
      dt_ledger_begin(header_, shared_, entry_);
    }
    ++begun_;
  }

  // An entry that the engine's processes begin and end, by the token in its value (docs/formats.md, "Tokens").
  void fill(uint64_t register_id, uint64_t checksum, uint32_t kind, uint32_t nth) {
    if (records_) {
      entry_ = entries_ + begun_;
      entry_->register_id = register_id;
      entry_->checksum = checksum;
      entry_->extra = static_cast<uint64_t>(nth) << 32;
      entry_->kind = kind;
    }
    ++begun_;
  }

  // The engine's number of the transaction that the newest `entries` entries were written by.
  void note_transaction(uint64_t entries, uint32_t transaction) {
    if (!records_) return;
    for (dt_ledger_entry* entry = entry_; entries > 0; --entry, --entries) entry->extra |= transaction;
  }

  // Whether the newest entry is acknowledged; so is everything where nothing is recorded.
  bool is_acknowledged() const {
    return !records_ || __atomic_load_n(&entry_->status, __ATOMIC_ACQUIRE) == DT_STATUS_ACKNOWLEDGED;
  }

  void acknowledge() {
    if (!records_) return;
    acknowledged_ns_ = dt_ledger_acknowledge(header_, entry_);
    // The next entry is on a line that no core holds yet: it is fetched while this thread is busy elsewhere.
    __builtin_prefetch(entry_ + 1, 1);
  }

  void fail() {
    if (records_) dt_ledger_fail(entry_);
  }

  // The time of an acknowledgement since it was last asked for, else the clock's.
  uint64_t take_end_ns() {
    return acknowledged_ns_ != 0 ? std::exchange(acknowledged_ns_, 0) : dt_monotonic_ns();
  }

 private:
  dt_ledger_header* header_;
  dt_ledger_client* shared_;
  uint32_t client_;
  bool records_;
  dt_ledger_entry* entries_ = nullptr;
  dt_ledger_entry* entry_ = nullptr;
  uint64_t begun_ = 0;
  uint64_t acknowledged_ns_ = 0;
};

}  // namespace duratune
