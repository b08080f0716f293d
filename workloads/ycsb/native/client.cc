#include "client.h"

#include <time.h>

namespace duratune {

Client::Client(Shared& shared, Database& database, uint32_t index)
    : shared_(shared),
      ledger_(shared.ledger, index),
      session_(database.new_session(ledger_, shared.plan.seed)),
      requests_(shared.workload, shared.plan.seed, index + 1, shared.plan.threads, shared.inserted),
      names_(shared.workload.hashed_keys, shared.workload.zero_padding) {
  const Plan& plan = shared.plan;
  if (plan.stop_after && plan.operations > 0) {
    // The remainder goes one each to the first threads, as in YCSB's Client.
    quota_ = plan.operations / plan.threads + (index < plan.operations % plan.threads ? 1 : 0);
  } else {
    quota_ = UINT64_MAX;
  }
  if (plan.target_per_s > 0) interval_ns_ = static_cast<uint64_t>(1e9 * plan.threads / plan.target_per_s);
}

void Client::run() {
  try {
    loop();
  } catch (const std::exception& error) {
    std::lock_guard<std::mutex> lock(measurement_.mutex);
    measurement_.last_error = error.what();
  }
  shared_.running.fetch_sub(1);
}

void Client::loop() {
  start_ns_ = dt_monotonic_ns();
  for (uint64_t done = 0; done < quota_ && goes_on(); ++done) {
    if (!ledger_.has_room(session_->entries_max())) {
      dt_ledger_ask_stop(shared_.ledger.header(), DT_STOP_LEDGER_FULL);
      break;
    }
    if (interval_ns_ > 0) {
      wait_until_due(done);
      if (!goes_on()) break;
    }
    perform(requests_.next());
    if (session_->is_lost()) {
      // One is enough: a load with fewer clients would be another one.
      shared_.lose(session_->last_error());
      break;
    }
    ledger_.count_operation();
  }
}

bool Client::goes_on() const {
  return dt_ledger_stop_reason(shared_.ledger.header()) == DT_STOP_NONE &&
         !shared_.ends.load(std::memory_order_relaxed);
}

void Client::wait_until_due(uint64_t done) {
  due_ns_ = start_ns_ + done * interval_ns_;
  // In steps, so that a slow rate does not delay the end of the run.
  for (uint64_t now = dt_monotonic_ns(); now < due_ns_ && goes_on(); now = dt_monotonic_ns()) {
    const uint64_t step = std::min<uint64_t>(due_ns_ - now, 100'000'000);
    const struct timespec pause = {0, static_cast<long>(step)};
    nanosleep(&pause, nullptr);
  }
}

// A request is counted with its outermost operation, so that one lock serves both.
template <typename Call>
Result Client::timed(Operation operation, Call call, bool is_part) {
  const uint64_t begin_ns = dt_monotonic_ns();
  const Result result = call();
  const uint64_t end_ns = ledger_.take_end_ns();
  const bool is_written = result == Result::ok && (operation == Operation::update || operation == Operation::insert);
  // One writer only.
  if (is_written) written_.store(written() + 1, std::memory_order_relaxed);
  if (shared_.phase.load(std::memory_order_acquire) != Phase::measuring) return result;
  std::lock_guard<std::mutex> lock(measurement_.mutex);
  // Asked again under the lock: after the main thread has read the sums, nothing is added.
  if (shared_.phase.load(std::memory_order_acquire) != Phase::measuring) return result;
  measurement_.record(operation, result, end_ns - begin_ns);
  if (!is_part) ++measurement_.requests;
  if (interval_ns_ > 0) {
    measurement_.operations[static_cast<size_t>(operation)].intended.record(end_ns - due_ns_);
  }
  if (is_written) ++measurement_.acknowledged_writes;
  if (result == Result::error && measurement_.last_error.empty()) measurement_.last_error = session_->last_error();
  return result;
}

void Client::perform(const Request& request) {
  names_.write(request.key, key_name_);
  switch (request.operation) {
    case Operation::read:
      timed(Operation::read, [&] { return session_->read(key_name_, request.field); });
      break;
    case Operation::update:
      perform_write(request, DT_KIND_UPDATE);
      break;
    case Operation::insert:
      shared_.inserted.answer(request.key, perform_write(request, DT_KIND_INSERT) == Result::ok);
      break;
    case Operation::scan:
      timed(Operation::scan, [&] { return session_->scan(key_name_, request.scan_length, request.field); });
      break;
    case Operation::read_modify_write:
      timed(Operation::read_modify_write, [&] { return perform_read_modify_write(request); });
      break;
  }
}

Result Client::perform_write(const Request& request, uint32_t kind) {
  const Write write{request.key, key_name_, request.field, kind};
  if (kind == DT_KIND_INSERT) return timed(Operation::insert, [&] { return session_->insert(write); });
  return timed(Operation::update, [&] { return session_->update(write); }, kind == DT_KIND_READ_MODIFY_WRITE);
}

// Counted three times, as in YCSB: as READ, as UPDATE and as a whole.
Result Client::perform_read_modify_write(const Request& request) {
  const Result read = timed(Operation::read, [&] { return session_->read(key_name_, std::nullopt); }, true);
  const Result written = perform_write(request, DT_KIND_READ_MODIFY_WRITE);
  return read == Result::ok ? written : read;
}

}  // namespace duratune
