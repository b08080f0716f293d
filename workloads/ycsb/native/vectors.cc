#include "vectors.h"

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "event.h"
#include "fault.h"
#include "field_bytes.h"
#include "histogram.h"
#include "keys.h"
#include "requests.h"
#include "zipfian.h"

namespace duratune {
namespace {

template <typename Value>
std::vector<Value> list_of(const Spec& spec, const std::string& key) {
  std::vector<Value> values;
  std::istringstream items(spec.require(key));
  std::string item;
  while (std::getline(items, item, ',')) {
    std::istringstream text(item);
    Value value;
    if (!(text >> value)) throw invalid_input(key + " has the item '" + item + "'");
    values.push_back(value);
  }
  return values;
}

std::string array(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) text += (text.size() > 1 ? "," : "") + item;
  return text + "]";
}

std::string draws(const Spec& spec, const std::function<uint64_t(double)>& at) {
  std::vector<std::string> items;
  for (double u : list_of<double>(spec, "vectors.u")) items.push_back(std::to_string(at(u)));
  return array(items);
}

std::string hashes(const Spec& spec) {
  std::vector<std::string> items;
  for (uint64_t number : list_of<uint64_t>(spec, "vectors.numbers")) items.push_back(std::to_string(fnv_hash(number)));
  return array(items);
}

// zeta(n) for each n, and eta for the last.
std::string zetas(const Spec& spec) {
  std::vector<std::string> items;
  for (uint64_t n : list_of<uint64_t>(spec, "vectors.numbers")) {
    items.push_back(json_number(zeta(0, n, kZipfianConstant, 0)));
  }
  return array(items);
}

std::string etas(const Spec& spec) {
  std::vector<std::string> items;
  for (uint64_t n : list_of<uint64_t>(spec, "vectors.numbers")) items.push_back(json_number(Zipfian(0, n - 1).eta()));
  items.push_back(json_number(ScrambledZipfian(0, 1000).eta()));
  return array(items);
}

// The newest key grows from one to the next, as when keys are inserted.
std::string latest(const Spec& spec) {
  const std::vector<uint64_t> newest = list_of<uint64_t>(spec, "vectors.numbers");
  SkewedLatest generator(newest.front());
  std::vector<std::string> items;
  for (uint64_t key : newest) {
    for (double u : list_of<double>(spec, "vectors.u")) items.push_back(std::to_string(generator.at(u, key)));
  }
  return array(items);
}

// One client's requests: [operation, key, scan length, field or -1] each. Inserts count as answered at once, except
// that every vectors.fail_every-th fails.
std::string requests(const Spec& spec) {
  const Workload workload = Workload::from_spec(spec);
  const int64_t fail_every = spec.integer("vectors.fail_every", 0);
  AcknowledgedCounter inserted(workload.record_count);
  Requests stream(workload, static_cast<uint64_t>(spec.integer("seed", 0)),
                  static_cast<uint64_t>(spec.integer("vectors.client", 1, 1)),
                  static_cast<uint64_t>(spec.integer("threads", 1, 1)), inserted);
  std::vector<std::string> items;
  int64_t inserts = 0;
  for (int64_t i = spec.integer("vectors.count", 1000, 1); i > 0; --i) {
    const Request request = stream.next();
    if (request.operation == Operation::insert) {
      inserted.answer(request.key, fail_every == 0 || ++inserts % fail_every != 0);
    }
    items.push_back("[" + std::to_string(static_cast<int>(request.operation)) + "," + std::to_string(request.key) +
                    "," + std::to_string(request.scan_length) + "," +
                    (request.field ? std::to_string(*request.field) : "-1") + "]");
  }
  return array(items);
}

// How often each of [0, n) is drawn by the scrambled zipfian in vectors.count draws, before any is drawn again.
std::string shares(const Spec& spec) {
  const auto n = static_cast<uint64_t>(spec.integer("vectors.items", 1001, 1));
  const ScrambledZipfian scrambled(0, n - 1);
  Random random(static_cast<uint64_t>(spec.integer("seed", 0)), 1, Purpose::key);
  std::vector<uint64_t> counts(n);
  for (int64_t i = spec.integer("vectors.count", 1000, 1); i > 0; --i) ++counts[scrambled.at(random.unit())];
  std::vector<std::string> items;
  for (uint64_t count : counts) items.push_back(std::to_string(count));
  return array(items);
}

std::string key_names(const Spec& spec) {
  const KeyNames names(spec.text("insertorder", "hashed") == "hashed", spec.integer("zeropadding", 1, 0));
  std::vector<std::string> items;
  for (uint64_t number : list_of<uint64_t>(spec, "vectors.numbers")) items.push_back(json_text(names.name(number)));
  return array(items);
}

// Latencies in nanoseconds: minimum, maximum, average, then the quantiles of vectors.u.
std::string quantiles(const Spec& spec) {
  Histogram halves[2];
  size_t turn = 0;
  for (uint64_t ns : list_of<uint64_t>(spec, "vectors.numbers")) halves[turn++ % 2].record(ns);
  halves[0].add(halves[1]);
  const Histogram& all = halves[0];
  std::vector<std::string> items = {std::to_string(all.min_ns()), std::to_string(all.max_ns()),
                                    json_number(all.average_ns())};
  for (double u : list_of<double>(spec, "vectors.u")) items.push_back(std::to_string(all.quantile_ns(u)));
  return array(items);
}

// The fields of one record, as vectors.count texts.
std::string fields(const Spec& spec) {
  const Workload workload = Workload::from_spec(spec);
  FieldBytes bytes(workload, static_cast<uint64_t>(spec.integer("seed", 0)), 1);
  const std::string key = KeyNames(workload.hashed_keys, workload.zero_padding)
                              .name(static_cast<uint64_t>(spec.integer("vectors.key", 0)));
  std::vector<std::string> items;
  const int64_t count = spec.integer("vectors.count", 1, 1);
  for (int64_t i = 0; i < count; ++i) {
    std::string value(bytes.next_length(), '\0');
    bytes.fill(value.data(), value.size(), key, workload.field_names[0]);
    items.push_back(json_text(value));
  }
  return array(items);
}

}  // namespace

void print_vectors(const Spec& spec) {
  const std::string generator = spec.require("vectors.generator");
  std::string values;
  if (generator == "hash") values = hashes(spec);
  if (generator == "zeta") values = zetas(spec);
  if (generator == "eta") values = etas(spec);
  if (generator == "latest") values = latest(spec);
  if (generator == "names") values = key_names(spec);
  if (generator == "quantiles") values = quantiles(spec);
  if (generator == "requests") values = requests(spec);
  if (generator == "shares") values = shares(spec);
  if (generator == "fields") values = fields(spec);
  if (generator == "zipfian" || generator == "scrambled") {
    const auto n = static_cast<uint64_t>(spec.integer("vectors.items", 1000, 1));
    Zipfian zipfian(0, n - 1);
    ScrambledZipfian scrambled(0, n - 1);
    values = draws(spec, [&](double u) { return generator == "zipfian" ? zipfian.at(u) : scrambled.at(u); });
  }
  if (values.empty()) throw invalid_input("vectors.generator=" + generator + " is unknown");
  spec.reject_unused();
  emit(event("vectors").raw("values", values));
}

}  // namespace duratune
