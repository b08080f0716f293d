// The driver's side of the ledger (workloads/ledger.h): one mapping for the process, one writer for each client.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

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
  uint64_t operations() const { return __atomic_load_n(&header_->operations, __ATOMIC_RELAXED); }
  void count_operation() { __atomic_fetch_add(&header_->operations, 1, __ATOMIC_RELAXED); }

 private:
  void map(const std::string& path);

  std::unique_ptr<dt_ledger_header> own_;
  dt_ledger_header* header_;
  uint64_t mapped_bytes_ = 0;
};

// Written by one thread. A write goes: full()? next_sequence(), begin(), the engine's call, then acknowledge() or fail().
class LedgerClient {
 public:
  LedgerClient(Ledger& ledger, uint32_t client)
      : header_(ledger.header()), client_(client), records_(ledger.records()) {
    if (records_) entries_ = dt_ledger_entries(header_, client);
  }

  // The client's number in values: the loader is 0, so run clients count from 1.
  uint32_t number() const { return client_ + 1; }
  uint64_t next_sequence() const { return begun_ + 1; }
  bool full() const { return records_ && begun_ >= header_->capacity; }

  void begin(uint64_t register_id, uint64_t checksum, uint32_t kind) {
    if (records_) {
      entry_ = entries_ + begun_;
      entry_->register_id = register_id;
      entry_->checksum = checksum;
      entry_->kind = kind;
      entry_->begin_position = dt_ledger_next_position(header_);
      entry_->begin_ns = dt_monotonic_ns();
      dt_ledger_publish(header_, client_, begun_ + 1);
    }
    ++begun_;
  }

  void acknowledge() {
    if (records_) dt_ledger_acknowledge(header_, entry_);
  }

  void fail() {
    if (records_) dt_ledger_fail(entry_);
  }

 private:
  dt_ledger_header* header_;
  uint32_t client_;
  bool records_;
  dt_ledger_entry* entries_ = nullptr;
  dt_ledger_entry* entry_ = nullptr;
  uint64_t begun_ = 0;
};

}  // namespace duratune
