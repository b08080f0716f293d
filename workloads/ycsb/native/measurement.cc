#include "measurement.h"

#include "event.h"

namespace duratune {
namespace {

void append_latency(Json& json, const Histogram& histogram, const std::string& prefix) {
  const auto us = [](uint64_t ns) { return static_cast<double>(ns) / 1000.0; };
  json.number(prefix + "average_us", histogram.average_ns() / 1000.0)
      .number(prefix + "min_us", us(histogram.min_ns()))
      .number(prefix + "max_us", us(histogram.max_ns()))
      .number(prefix + "p50_us", us(histogram.quantile_ns(0.50)))
      .number(prefix + "p95_us", us(histogram.quantile_ns(0.95)))
      .number(prefix + "p99_us", us(histogram.quantile_ns(0.99)))
      .number(prefix + "p999_us", us(histogram.quantile_ns(0.999)));
}

}  // namespace

void Measurement::add(Measurement& other) {
  std::lock_guard<std::mutex> lock(other.mutex);
  for (size_t i = 0; i < kOperations; ++i) {
    operations[i].latency.add(other.operations[i].latency);
    operations[i].intended.add(other.operations[i].intended);
    for (size_t r = 0; r < kResults; ++r) operations[i].results[r] += other.operations[i].results[r];
  }
  requests += other.requests;
  acknowledged_writes += other.acknowledged_writes;
  if (last_error.empty()) last_error = other.last_error;
}

std::string Measurement::operations_json() const {
  Json all;
  for (size_t i = 0; i < kOperations; ++i) {
    const OperationStats& stats = operations[i];
    if (stats.latency.count() == 0) continue;
    const auto result = [&](Result r) { return stats.results[static_cast<size_t>(r)]; };
    Json json;
    json.count("count", stats.latency.count()).count("errors", result(Result::error));
    append_latency(json, stats.latency, "");
    if (stats.intended.count() > 0) append_latency(json, stats.intended, "intended_");
    Json returns;
    returns.count("OK", result(Result::ok))
        .count("NOT_FOUND", result(Result::not_found))
        .count("ERROR", result(Result::error));
    json.raw("returns", returns.str());
    all.raw(kOperationNames[i], json.str());
  }
  return all.str();
}

}  // namespace duratune
