#include "requests.h"

#include <cmath>

#include "fault.h"

namespace duratune {

Requests::Requests(const Workload& workload, uint64_t seed, uint64_t client, uint64_t clients,
                   AcknowledgedCounter& inserted)
    : workload_(workload),
      inserted_(inserted),
      operations_(seed, client, Purpose::operation),
      keys_(seed, client, Purpose::key),
      sequential_(client - 1),
      stride_(clients) {
  const uint64_t start = workload.insert_start;
  if (workload.request_distribution == Distribution::zipfian) {
    // Inclusive at both ends, so there is one index more than records: it is always drawn again.
    scrambled_.emplace(start, start + workload.insert_count + workload.expected_new_keys());
  }
  if (workload.request_distribution == Distribution::latest) latest_.emplace(workload.record_count - 1);
  if (workload.request_distribution == Distribution::exponential) {
    const double range = static_cast<double>(workload.record_count) * workload.exponential_fraction;
    exponential_gamma_ = -std::log(1.0 - workload.exponential_percentile / 100.0) / range;
  }
  if (workload.scan_length_zipfian) scan_lengths_.emplace(workload.scan_length_min, workload.scan_length_max);
}

Request Requests::next() {
  Request request;
  request.operation = choose_operation(workload_, operations_.unit());
  if (request.operation == Operation::insert) {
    request.key = inserted_.next();
    return request;
  }
  request.key = next_key();
  if (request.operation == Operation::scan) request.scan_length = next_scan_length();
  const bool writes = request.operation == Operation::update || request.operation == Operation::read_modify_write;
  if (writes ? !workload_.write_all_fields : !workload_.read_all_fields) {
    request.field = operations_.below(workload_.field_names.size());
  }
  return request;
}

uint64_t Requests::next_key() {
  // Ends: the distributions give readable keys with a probability far from 0 (only failed inserts are left out).
  for (int attempt = 0; attempt < 1'000'000; ++attempt) {
    const int64_t key = draw_key();
    if (key < 0 || key > inserted_.newest()) continue;
    if (!inserted_.failed(static_cast<uint64_t>(key))) return static_cast<uint64_t>(key);
  }
  throw Fault("engine", "no readable key was found in a million draws");
}

int64_t Requests::draw_key() {
  switch (workload_.request_distribution) {
    case Distribution::uniform:
      return static_cast<int64_t>(workload_.insert_start + keys_.below(workload_.insert_count));
    case Distribution::zipfian:
      return static_cast<int64_t>(scrambled_->at(keys_.unit()));
    case Distribution::latest:
      return static_cast<int64_t>(latest_->at(keys_.unit(), static_cast<uint64_t>(inserted_.newest())));
    case Distribution::hotspot:
      return draw_hotspot();
    case Distribution::exponential:
      // 1 - u instead of u: never the logarithm of zero.
      return inserted_.newest() - static_cast<int64_t>(-std::log(1.0 - keys_.unit()) / exponential_gamma_);
    case Distribution::sequential: {
      // YCSB's clients share one counter; here each takes every n-th number, which can be repeated.
      const uint64_t turn = sequential_ % workload_.insert_count;
      sequential_ += stride_;
      return static_cast<int64_t>(workload_.insert_start + turn);
    }
  }
  return -1;
}

int64_t Requests::draw_hotspot() {
  const uint64_t count = workload_.insert_count;
  const auto hot = static_cast<uint64_t>(static_cast<double>(count) * workload_.hotspot_data_fraction);
  const bool wants_hot = keys_.unit() < workload_.hotspot_operation_fraction;
  // A part without keys cannot be drawn from (YCSB divides by zero there).
  const bool is_hot = hot == count || (wants_hot && hot > 0);
  const uint64_t offset = is_hot ? keys_.below(hot) : hot + keys_.below(count - hot);
  return static_cast<int64_t>(workload_.insert_start + offset);
}

uint64_t Requests::next_scan_length() {
  if (scan_lengths_) return scan_lengths_->at(operations_.unit());
  return workload_.scan_length_min + operations_.below(workload_.scan_length_max - workload_.scan_length_min + 1);
}

}  // namespace duratune
