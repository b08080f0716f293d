#include "workload.h"

#include "fault.h"

namespace duratune {
namespace {

template <typename Value>
Value one_of(const Spec& spec, const std::string& key, const std::string& otherwise,
             const std::vector<std::pair<std::string, Value>>& names) {
  const std::string text = spec.text(key, otherwise);
  std::string allowed;
  for (const auto& [name, value] : names) {
    if (name == text) return value;
    allowed += (allowed.empty() ? "" : ", ") + name;
  }
  throw invalid_input(key + "=" + text + " is unknown", "use one of " + allowed);
}

uint64_t at_least(const Spec& spec, const std::string& key, int64_t otherwise, int64_t least) {
  return static_cast<uint64_t>(spec.integer(key, otherwise, least));
}

void read_proportions(const Spec& spec, Workload& workload) {
  workload.proportions = {spec.number("readproportion", 0.95), spec.number("updateproportion", 0.05),
                          spec.number("insertproportion", 0), spec.number("scanproportion", 0),
                          spec.number("readmodifywriteproportion", 0)};
  double sum = 0;
  for (double proportion : workload.proportions) sum += proportion;
  if (sum <= 0) throw invalid_input("all proportions are zero");
  for (double& proportion : workload.proportions) proportion /= sum;
}

void read_records(const Spec& spec, Workload& workload) {
  workload.record_count = at_least(spec, "recordcount", 1000, 1);
  workload.operation_count = at_least(spec, "operationcount", 1000, 0);
  workload.insert_start = at_least(spec, "insertstart", 0, 0);
  const int64_t rest = static_cast<int64_t>(workload.record_count) - static_cast<int64_t>(workload.insert_start);
  if (rest <= 0) throw invalid_input("insertstart is not below recordcount");
  workload.insert_count = at_least(spec, "insertcount", rest, 1);
  if (workload.insert_start + workload.insert_count > workload.record_count) {
    throw invalid_input("insertstart + insertcount is above recordcount");
  }
}

void read_fields(const Spec& spec, Workload& workload) {
  const uint64_t count = at_least(spec, "fieldcount", 10, 1);
  const std::string prefix = spec.text("fieldnameprefix", "field");
  for (uint64_t i = 0; i < count; ++i) workload.field_names.push_back(prefix + std::to_string(i));
  workload.field_length = at_least(spec, "fieldlength", 100, 1);
  workload.field_length_min = at_least(spec, "minfieldlength", 1, 1);
  workload.field_length_distribution = one_of<LengthDistribution>(
      spec, "fieldlengthdistribution", "constant",
      {{"constant", LengthDistribution::constant},
       {"uniform", LengthDistribution::uniform},
       {"zipfian", LengthDistribution::zipfian},
       {"histogram", LengthDistribution::histogram}});
  workload.field_length_histogram = spec.text("fieldlengthhistogram", "hist.txt");
  if (workload.field_length < workload.field_length_min) throw invalid_input("fieldlength is below minfieldlength");
  workload.read_all_fields = spec.truth("readallfields", true);
  workload.write_all_fields = spec.truth("writeallfields", false);
  workload.data_integrity = spec.truth("dataintegrity", false);
  if (workload.data_integrity && workload.field_length_distribution != LengthDistribution::constant) {
    throw invalid_input("dataintegrity needs fieldlengthdistribution=constant");
  }
}

void read_requests(const Spec& spec, Workload& workload) {
  workload.request_distribution = one_of<Distribution>(spec, "requestdistribution", "uniform",
                                                       {{"uniform", Distribution::uniform},
                                                        {"zipfian", Distribution::zipfian},
                                                        {"latest", Distribution::latest},
                                                        {"hotspot", Distribution::hotspot},
                                                        {"exponential", Distribution::exponential},
                                                        {"sequential", Distribution::sequential}});
  workload.hotspot_data_fraction = spec.number("hotspotdatafraction", 0.2);
  workload.hotspot_operation_fraction = spec.number("hotspotopnfraction", 0.8);
  workload.exponential_percentile = spec.number("exponential.percentile", 95);
  workload.exponential_fraction = spec.number("exponential.frac", 0.8571428571);
  if (workload.hotspot_data_fraction > 1 || workload.hotspot_operation_fraction > 1) {
    throw invalid_input("a hotspot fraction is above 1");
  }
  if (workload.exponential_percentile <= 0 || workload.exponential_percentile >= 100 ||
      workload.exponential_fraction <= 0) {
    throw invalid_input("exponential.percentile or exponential.frac is out of range");
  }
  workload.hashed_keys = spec.text("insertorder", "hashed") == "hashed";
  workload.zero_padding = spec.integer("zeropadding", 1, 0);
  workload.scan_length_min = at_least(spec, "minscanlength", 1, 1);
  workload.scan_length_max = at_least(spec, "maxscanlength", 1000, 1);
  if (workload.scan_length_max < workload.scan_length_min) {
    throw invalid_input("maxscanlength is below minscanlength");
  }
  workload.scan_length_zipfian =
      one_of<bool>(spec, "scanlengthdistribution", "uniform", {{"uniform", false}, {"zipfian", true}});
}

}  // namespace

Workload Workload::from_spec(const Spec& spec) {
  Workload workload;
  read_records(spec, workload);
  read_proportions(spec, workload);
  read_fields(spec, workload);
  read_requests(spec, workload);
  return workload;
}

uint64_t Workload::expected_new_keys() const {
  const double inserts = proportions[static_cast<size_t>(Operation::insert)];
  return static_cast<uint64_t>(static_cast<double>(operation_count) * inserts * 2.0);
}

Operation choose_operation(const Workload& workload, double u) {
  size_t last = 0;
  for (size_t i = 0; i < kOperations; ++i) {
    if (workload.proportions[i] <= 0) continue;
    if (u < workload.proportions[i]) return static_cast<Operation>(i);
    u -= workload.proportions[i];
    last = i;
  }
  return static_cast<Operation>(last);  // The sum of the weights may lie a rounding error below 1.
}

}  // namespace duratune
